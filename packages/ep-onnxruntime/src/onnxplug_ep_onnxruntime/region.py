"""A region as a session of onnxruntime's."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Fail, Region, RunContext, TensorSpec, TensorType, element_of
from onnxplug.contract.errors import TERMINATED
from onnxplug.contract.types import ELEMENT_CODES, ELEMENT_NAMES, numpy_dtype
from onnxplug_ep_onnxruntime.errors import translated
from onnxplug_ep_onnxruntime.packed import BITS, pack, unpack
from onnxplug_ep_onnxruntime.stopping import watcher

Shapes = Sequence[tuple[int, ...] | None]
_NODE = re.compile(r"Name:'([^']*)'")


class SessionRegion(CompiledRegion):
    """The region for any shapes. What NumPy has no type for goes to onnxruntime and back as bits; strings and sequences as Python's
    objects."""

    def __init__(self, region: Region, session: Any, module: Any, provider: str, packed: Sequence[str]) -> None:
        self.packed, self._session, self._module, self._provider = tuple(packed), session, module, provider
        self._nodes = {node.name: node for node in region.graph.nodes}
        self._inputs, self._outputs = region.inputs, region.outputs
        self._device = module.OrtDevice(module.OrtDevice.cpu(), module.OrtDevice.default_memory(), 0)
        types = [v.type for v in (*region.inputs, *region.outputs)]
        self._objects = not all(isinstance(t, TensorType) and t.element != "string" for t in types)
        self._packed = any(isinstance(t, TensorType) and t.element in BITS for t in types)
        self._bits = any(isinstance(t, TensorType) and t.dtype.isbuiltin != 1 for t in types)

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        found = [specs.get(v.name) for v in (*self._inputs, *self._outputs)]
        if self._objects or self._packed or not self._outputs or any(spec is None for spec in found):
            return self
        return BoundRegion(self, [spec for spec in found if spec is not None])

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        if not self._outputs:
            return []
        options = self._module.RunOptions()
        if not self._bits:
            names = [v.name for v in self._outputs]
            feeds = {v.name: _object(x) for v, x in zip(self._inputs, inputs, strict=True)}
            results: list[Any] = self.guarded(context, options, lambda: self._session.run(names, feeds, options))
            return results
        binding = self._module.SessionIOBinding(self._session)
        kept = [self._bind(binding, v.name, x) for v, x in zip(self._inputs, inputs, strict=True)]
        for value in self._outputs:
            binding.bind_output(value.name, self._device)
        self.guarded(context, options, lambda: self._session.run_with_iobinding(binding, options))
        del kept
        return [_array(made) for made in binding.get_outputs()]

    def _bind(self, binding: Any, name: str, x: np.ndarray) -> np.ndarray:
        """Have an input read where the array is, or a copy of it, which is the result."""
        element = element_of(x.dtype)
        held = pack(x, element) if element in BITS else np.require(x, requirements="C")
        binding.bind_input(name, self._device, ELEMENT_CODES[element], x.shape, held.ctypes.data)
        return held

    def guarded(self, context: RunContext, options: Any, run: Callable[[], Any]) -> Any:
        """What a run gives, which ends when it is told to; its errors are onnxplug's and name the node."""
        watcher.runs[options] = context.cancelled
        try:
            if not watcher.awake:
                watcher.start()
            return run()
        except Exception as error:
            if context.cancelled():
                raise Fail(TERMINATED) from error
            raise self.failure(error) from error
        finally:
            watcher.runs.pop(options, None)

    def failure(self, error: Exception) -> Exception:
        """The error of a run as it is raised."""
        made = translated(error, self._provider)
        named = _NODE.search(str(error))
        if named is not None and named[1] in self._nodes:
            made.node = self._nodes[named[1]]  # type: ignore[attr-defined]
        return made

    def facts(self) -> Mapping[str, Any]:
        return {"onnxruntime": self._module.get_version_string(), "provider": self._provider}


class BoundRegion(CompiledRegion):
    """The region for the shapes of one plan: results go where the plan wants them. Bindings are kept from run to run, and of each only what
    lies elsewhere than before is bound anew."""

    def __init__(self, region: SessionRegion, specs: Sequence[TensorSpec]) -> None:
        self._region, self._count = region, len(region._inputs)
        self._shapes = [spec.shape for spec in specs]
        self._codes = [ELEMENT_CODES[element_of(spec.dtype)] for spec in specs]
        self._names = [v.name for v in (*region._inputs, *region._outputs)]
        self._idle: list[_Binding] = []

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return self._region(context, *inputs)

    def output_shapes(self, inputs: Shapes) -> Shapes:
        return self._shapes[self._count :]

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        region = self._region
        try:
            binding = self._idle.pop()
        except IndexError:
            binding = _Binding(region, len(self._names))
        copies = []
        for place, array in enumerate((*inputs, *outputs)):
            if array is None or array.shape != self._shapes[place]:
                return False
            if not array.flags.c_contiguous:
                if place >= self._count:
                    return False
                array = np.ascontiguousarray(array)
                copies.append(array)
            address = array.__array_interface__["data"][0]
            if binding.addresses[place] != address:
                bind = binding.native.bind_input if place < self._count else binding.native.bind_output
                bind(self._names[place], region._device, self._codes[place], self._shapes[place], address)
                binding.addresses[place] = address
        options = binding.options
        watcher.runs[options] = context.cancelled
        try:
            if not watcher.awake:
                watcher.start()
            region._session.run_with_iobinding(binding.native, options)
        except Exception as error:
            if context.cancelled():
                raise Fail(TERMINATED) from error
            return False  # a binding does not tell the class of its errors: the returning form has it raised again
        finally:
            watcher.runs.pop(options, None)
        self._idle.append(binding)
        return True

    def facts(self) -> Mapping[str, Any]:
        return self._region.facts()


class _Binding:
    """A binding of onnxruntime's with the addresses it has, and the options of its runs."""

    __slots__ = ("addresses", "native", "options")

    def __init__(self, region: SessionRegion, count: int) -> None:
        self.native = region._module.SessionIOBinding(region._session)
        self.options = region._module.RunOptions()
        self.addresses: list[int | None] = [None] * count


def _object(x: Any) -> Any:
    """A feed as onnxruntime takes it: strings as an array of objects."""
    return x.astype(object) if isinstance(x, np.ndarray) and x.dtype.kind in "UST" else x


def _array(value: Any) -> np.ndarray:
    """A tensor of onnxruntime's as an array of its own."""
    element = ELEMENT_NAMES[value.element_type()]
    dtype, shape = numpy_dtype(element), tuple(value.shape())
    if dtype.isbuiltin == 1:
        array: np.ndarray = value.numpy()
        return array
    bits = np.empty(value.tensor_size_in_bytes(), np.uint8)
    ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return unpack(bits, element, shape) if element in BITS else bits.view(dtype).reshape(shape)
