"""Compiled regions: prepared once per session (weights packed), bound once per signature, run as one native call."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import (
    CompiledRegion,
    Fail,
    NodeView,
    Region,
    Rows,
    RunContext,
    TensorSpec,
    Watch,
    prefer_host,
)
from onnxplug.contract.errors import TERMINATED
from onnxplug.contract.logs import Log
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.driver import STATUS
from onnxplug_ep_cpu.codegen.families import Images
from onnxplug_ep_cpu.codegen.interpret import InterpretedRegion
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported
from onnxplug_ep_cpu.codegen.lower.decided import decide
from onnxplug_ep_cpu.codegen.lower.entries import lower
from onnxplug_ep_cpu.codegen.packer import Packer
from onnxplug_ep_cpu.codegen.pool import Pool, pool
from onnxplug_ep_cpu.codegen.prepared import Prepared
from onnxplug_ep_cpu.codegen.program import Buffer, Form, Image, Program
from onnxplug_ep_cpu.codegen.settings import Settings
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor, dense_strides, element_of
from onnxplug_ep_cpu.codegen.undecided import Open
from onnxplug_ep_cpu.codegen.words import numbering

log = Log("onnxplug.cpu")

Number = Callable[[np.ndarray], np.ndarray]
"""Words -> their numbers."""

_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
FINE = bytes(8)
"""The status of a program that found nothing wrong with its data."""


class NativeRegion(CompiledRegion):
    """A region before shapes are known."""

    def __init__(
        self,
        region: Region,
        target: Target,
        threads: int,
        settings: Settings,
        growing: frozenset[str] | None = None,
    ) -> None:
        self._prepared, self._target, self._threads = Prepared(region, settings, growing), target, threads
        self._images = Images()
        parent = region.graph.parent
        hosted = {id(node) for node in prefer_host(parent)} if parent is not None else set()
        self.shape_inputs = frozenset(i for i, v in enumerate(region.inputs) if id(v.producer) in hosted)

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        prepared = self._prepared
        try:
            with prepared.lock:
                if any(v.dtype == object for v in prepared.region.outputs):  # of shapes that their lowering finds
                    form, lowering = self._lowered(specs, Open())
                    image = form.image(specs)
                    return self._bound(specs, lowering.specs, lowering.words, image)
                return self._bound(specs, specs, {}, self._images.image(specs, self._form))
        except Unsupported as reason:
            region = prepared.region
            log.warning("region %s runs node by node with NumPy: %s", region.name, reason)
            return InterpretedRegion(region, specs, str(reason))
        except (
            _FAULTS
        ) as fault:  # the answer can still be given; what is wrong with the model the nodes' own kernels say
            region = prepared.region
            log.exception(
                "region %s runs node by node with NumPy for a fault of the generator: please report it", region.name
            )
            return InterpretedRegion(region, specs, f"fault of the generator: {fault!r}")

    def _bound(
        self,
        specs: Mapping[str, TensorSpec],
        made: Mapping[str, TensorSpec],
        words: Mapping[str, np.ndarray],
        image: Image,
    ) -> CompiledRegion:
        region, numbers = self._prepared.region, self._prepared.numbers
        numbered = [(i, numbering(numbers[v.name])) for i, v in enumerate(region.inputs) if v.name in numbers]
        return BoundRegion(region, specs, made, words, numbered, image, self._pool())

    def facts(self) -> Mapping[str, Any]:
        return self._prepared.facts()

    def _pool(self) -> Pool:
        return pool(self._threads, self._prepared.settings.spinning)

    def _form(self, specs: Mapping[str, TensorSpec], open_: Open) -> Form:
        return self._lowered(specs, open_)[0]

    def _lowered(self, specs: Mapping[str, TensorSpec], open_: Open) -> tuple[Form, Lowering]:
        """The region's nodes lowered; constants they want packed are packed."""
        region, target = self._prepared.region, self._target
        for value in (*region.inputs, *region.outputs):
            if value.name not in specs and value.dtype != object:
                raise Unsupported(f"the shape of '{value.name}' depends on data")
        known = {v.name for v in region.outputs if v.name in specs and specs[v.name].constant is not None}
        outputs = {v.name: Buffer("output", 0, i) for i, v in enumerate(region.outputs) if v.name not in known}
        packer = Packer(target, self._threads, self._pool())
        program = Program(begin=compiler(target).begin)
        lowering = Lowering(
            program, target, self._threads, dict(specs), self._prepared, packer, outputs=outputs, open=open_
        )
        for number, value in enumerate(region.inputs):
            spec = specs[value.name]
            buffer = Buffer("input", spec.nbytes, number)
            element = "int64" if spec.dtype == object else element_of(spec.dtype)  # strings are numbered
            lowering.values[value.name] = Tensor(buffer, spec.shape, dense_strides(spec.shape), element=element)
        try:
            for step in self._prepared.steps:
                if not isinstance(step, fuse.Group):
                    self._lower(lowering, step)
                    continue
                lowering.program.turn_to(step.nodes)
                if not step.lower(lowering):
                    for node in step.nodes:
                        self._lower(lowering, node)
            lowering.finish()
        finally:  # another lowering takes what this one packed for filled
            packer.finish()
        form = Form(lowering.program, compiler(target), len(region.inputs), len(region.outputs), self._threads)
        log.debug("region %s is lowered: %s", region.name, self._prepared.facts())
        return form, lowering

    @staticmethod
    def _lower(lowering: Lowering, node: NodeView) -> None:
        if any(v is not None and lowering.is_computed(v) for v in node.outputs):
            lowering.program.turn_to((node,))
            (decide if _is_decided(lowering, node) else lower)(lowering, node)

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a native region is bound before it runs")


def _is_decided(b: Lowering, node: NodeView) -> bool:
    """Whether the node's results are constants of this bind: it has no lowering, or it reads nothing but such constants and the
    plan, to which they were too large, does not know what shapes follow."""
    if id(node) in b.prepared.decided:
        return True
    unknown = any(v is not None and v.dtype != object and v.name not in b.specs for v in node.outputs)
    return unknown and all(v is None or b.is_constant(v) for v in node.inputs)


def _never(*operands: Any) -> bool:
    """The function of a program that has none (see ``Image.function``)."""
    return False


class BoundRegion(CompiledRegion):
    """A region for one signature: an image the driver runs. ``made`` are the specs of what it writes; ``words``: the lists in
    which it computes places, for outputs that are strings; ``numbered``: what gives the numbers of words, for operands that are
    strings. Keeps no state between runs."""

    def __init__(
        self,
        region: Region,
        specs: Mapping[str, TensorSpec],
        made: Mapping[str, TensorSpec],
        words: Mapping[str, np.ndarray],
        numbered: Sequence[tuple[int, Number]],
        image: Image,
        threads: Pool,
    ) -> None:
        self._numbered = numbered
        self._region, self._specs, self._image, self._pool = region, specs, image, threads
        self._shapes = [made[v.name].shape for v in region.outputs]
        self._makes = [(made[v.name].shape, made[v.name].dtype) for v in region.outputs]
        self._known = [
            (i, s.constant) for i, v in enumerate(region.outputs) if (s := made[v.name]).constant is not None
        ]
        self._words = [(i, words[v.name]) for i, v in enumerate(region.outputs) if v.name in words]
        self._direct = _never if self._known else image.function(threads.entry) or _never

    def output_shapes(self, inputs: Any) -> Any:
        return self._shapes

    def workspace(self, inputs: Any) -> int:
        return self._image.workspace

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        if not self._run(context, self._operands(inputs) if self._numbered else inputs, outputs):
            for output, result in zip(outputs, self._run_by_node(context, inputs), strict=True):
                if output is not None:
                    output[...] = result
        return True

    def function(self) -> Callable[..., bool] | None:
        return None if self._direct is _never or self._numbered else self._direct

    def run_trips(
        self, context: RunContext, inputs: Sequence[Rows], outputs: Sequence[Rows], trips: int, going: Any = None
    ) -> int | None:
        image = self._image
        if len(image.records) > 1 or self._known or self._numbered or not trips:
            return None
        listed = [0, id(context.workspace), 0]
        for rows, first in inputs:
            listed += (0, id(rows), first and first % len(rows))
        for rows, first in outputs:
            listed += (0, id(rows), first and first % len(rows))
        count = 1 + len(inputs) + len(outputs)
        words = array("q", listed + [0] * count)
        place, flag = words.buffer_info()[0], 0 if going is None else id(going)
        ran = 0
        while True:
            ran += self._pool.run_trips(image.records[0], place, count, trips - ran, flag, image.checked, image.shared)
            if not image.checked or self._is_fine(context):
                return ran
            operands, places = ([rows.of(ran) for rows in side] for side in (inputs, outputs))
            for output, result in zip(places, self._run_by_node(context, operands), strict=True):
                output[...] = result
            ran += 1
            if ran == trips or (going is not None and not going.item()):
                return ran

    def _operands(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs, with numbers for words: 0 for those that no node knows."""
        operands = list(inputs)
        for index, number in self._numbered:
            operands[index] = number(operands[index])
        return operands

    def _run(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Run the program; False where it found data that only the nodes' own kernels can answer to."""
        operands = [x if x.flags.num & 1 else np.ascontiguousarray(x) for x in inputs]
        image = self._image
        bases, records = image.bases(id(context.workspace), *map(id, operands), *map(id, outputs)), image.records
        watch = context.watch()
        if watch is not None:
            self._run_watched(context, bases, watch)
        else:
            self._pool.run(records[0], bases, image.shared)
            for part in records[1:]:
                if context.cancelled():
                    raise Fail(TERMINATED)
                self._pool.run(part, bases, image.shared)
        for index, constant in self._known:
            if outputs[index] is not None:
                outputs[index][...] = constant
        return not image.checked or self._is_fine(context)

    def _run_watched(self, context: RunContext, bases: bytes, watch: Watch) -> None:
        for nodes, part in self._image.parts():
            if context.cancelled():
                raise Fail(TERMINATED)
            start = time.perf_counter_ns()
            self._pool.run(part.ctypes.data, bases, self._image.shared)
            watch(nodes, self._specs, start, time.perf_counter_ns())

    @staticmethod
    def _is_fine(context: RunContext) -> bool:
        return bool(context.workspace[8 * STATUS : 8 * STATUS + 8].tobytes() == FINE)

    def _run_by_node(self, context: RunContext, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run with NumPy: its kernels raise what is wrong with the data."""
        return InterpretedRegion(self._region, self._specs, "its data")(context, *inputs)

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [np.empty(shape, dtype) for shape, dtype in self._makes]
        operands = self._operands(inputs) if self._numbered else inputs
        direct = context.watch() is None and self._direct(context.workspace, *operands, *outputs)
        if not direct and not self._run(context, operands, outputs):
            return self._run_by_node(context, inputs)
        for index, words in self._words:
            outputs[index] = words.take(outputs[index])
        return outputs
