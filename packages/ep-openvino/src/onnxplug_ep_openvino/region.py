"""A region as OpenVINO's compiled model."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Fail, Region, RunContext, TensorSpec
from onnxplug.contract.errors import TERMINATED
from onnxplug_ep_openvino.compiler import Compiled, Compiler
from onnxplug_ep_openvino.device import after_fork, library
from onnxplug_ep_openvino.empty import EmptyRegion
from onnxplug_ep_openvino.errors import plain

Shapes = Sequence[tuple[int, ...] | None]
_LOOK = 20
"""Milliseconds between two questions whether a run is to stop."""
_QUICK = 2e6
"""Nanoseconds of a run below which the next one of the same shapes is not asked about."""
_NAMED = re.compile(r"name '([^']*)'|node ([^\s:]+)")


class OpenVINORegion(CompiledRegion):
    """The region for any shapes. ``region`` is not known of one that was restored."""

    def __init__(self, made: Compiled, compiler: Compiler, region: Region | None = None) -> None:
        self.made, self._compiler, self._source, self._empty = made, compiler, region, EmptyRegion(region)
        self._names = [value.name for value in (*region.inputs, *region.outputs)] if region is not None else []
        self._nodes = {node.name: node for node in region.graph.nodes} if region is not None else {}
        self.types = [port.get_element_type() for port in (*made.model.inputs, *made.model.outputs)]

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        if any(0 in spec.shape for spec in specs.values()):
            return self._empty
        found = [spec for name in self._names if (spec := specs.get(name)) is not None]
        return BoundRegion(self, [spec.shape for spec in found]) if found and len(found) == len(self._names) else self

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        if any(array.size == 0 for array in inputs):
            return self._empty(context, *inputs)
        after_fork()
        request = self.made.model.create_infer_request()
        for number, place in enumerate(self.made.places):
            request.set_input_tensor(number, tensor(np.require(inputs[place], requirements="C"), self.types[number]))
        self.infer(request, context)
        return [made.data.copy() for made in request.output_tensors]

    def infer(self, request: Any, context: RunContext) -> None:
        """A run that ends when it is told to; its errors name the node."""
        try:
            request.start_async()
            while not request.wait_for(_LOOK):
                if context.cancelled():
                    request.cancel()
                    break
            request.wait()
        except Exception as error:
            if context.cancelled():
                raise Fail(TERMINATED) from error
            raise self.failure(error) from error

    def failure(self, error: Exception) -> Exception:
        """The error of a run as it is raised. A compiled model whose run failed may fail or be wrong from then on (OpenVINO 2026.4, shapes
        that do not go together), so that another takes its place."""
        if self._source is not None:
            self.made = self._compiler.compiled(self._source)
        made = plain(error)
        named = (name for found in _NAMED.findall(str(error)) for name in found if name in self._nodes)
        if (name := next(named, None)) is not None or (len(self._nodes) == 1 and (name := next(iter(self._nodes)))):
            made.node = self._nodes[name]  # type: ignore[attr-defined]
        return made

    def facts(self) -> Mapping[str, Any]:
        properties = ("EXECUTION_DEVICES", "INFERENCE_PRECISION_HINT", "INFERENCE_NUM_THREADS")
        known = set(self.made.model.get_property("SUPPORTED_PROPERTIES"))
        return {name.lower(): str(self.made.model.get_property(name)) for name in properties if name in known}

    def export(self) -> bytes:
        return self._compiler.dump(self.made)


class BoundRegion(CompiledRegion):
    """The region for the shapes of one plan: results go where the plan wants them. Requests are kept from run to run, and of each only what
    lies elsewhere than before is bound anew."""

    def __init__(self, region: OpenVINORegion, shapes: Sequence[tuple[int, ...]]) -> None:
        self._region = region
        self._count = len(shapes) - len(region.made.model.outputs)
        self._results = shapes[self._count :]
        self._shapes = [shapes[place] for place in region.made.places] + [*self._results]
        self._idle: list[_Request] = []
        self._quick = False

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return self._region(context, *inputs)

    def output_shapes(self, inputs: Shapes) -> Shapes:
        return self._results

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        after_fork()
        region, count = self._region, len(self._region.made.places)
        try:
            request = self._idle.pop()
        except IndexError:
            request = None
        if request is None or request.model is not region.made.model:
            request = _Request(region.made.model, len(self._shapes))
        copies = []
        for number, array in enumerate((*(inputs[place] for place in region.made.places), *outputs)):
            if array is None or array.shape != self._shapes[number]:
                return False
            if not array.flags.c_contiguous:
                if number >= count:
                    return False
                array = np.ascontiguousarray(array)
                copies.append(array)
            address = array.__array_interface__["data"][0]
            if request.addresses[number] != address:
                bound = tensor(array, region.types[number])
                if number < count:
                    request.native.set_input_tensor(number, bound)
                else:
                    request.native.set_output_tensor(number - count, bound)
                request.addresses[number] = address
        began = time.perf_counter_ns()
        if self._quick:
            try:
                request.native.infer()
            except Exception as error:
                raise region.failure(error) from error
        else:
            region.infer(request.native, context)
        self._quick = time.perf_counter_ns() - began < _QUICK
        self._idle.append(request)
        return True

    def facts(self) -> Mapping[str, Any]:
        return self._region.facts()

    def export(self) -> bytes:
        return self._region.export()


class _Request:
    """A request of OpenVINO's with the addresses of the tensors it has."""

    __slots__ = ("addresses", "model", "native")

    def __init__(self, model: Any, count: int) -> None:
        self.model, self.native = model, model.create_infer_request()
        self.addresses: list[int | None] = [None] * count


def tensor(array: np.ndarray, type_: Any) -> Any:
    """OpenVINO's tensor over the memory of a dense array, which it takes writable ones of only."""
    openvino = library()

    if not array.flags.writeable:
        memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
        array = np.frombuffer(memoryview(memory), array.dtype).reshape(array.shape)
    return openvino.Tensor(array, openvino.Shape(array.shape), type_)


class Nothing(CompiledRegion):
    """A region whose results nobody reads."""

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return []
