"""Compiled regions: prepared once per session (weights packed), bound once per signature, run as one native call."""

from __future__ import annotations

import copy
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Fail, NodeView, Region, RunContext, TensorSpec, ValueView, prefer_host
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.choices import Choices
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.driver import STATUS
from onnxplug_ep_cpu.codegen.interpret import InterpretedRegion
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported, lowerings
from onnxplug_ep_cpu.codegen.packer import Packer, aligned, aligned_zeros
from onnxplug_ep_cpu.codegen.pool import pool
from onnxplug_ep_cpu.codegen.program import Buffer, Image, Program
from onnxplug_ep_cpu.codegen.settings import Settings
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor, dense_strides, element_of

log = logging.getLogger("onnxplug.cpu")


class Prepared:
    """What all binds of a region share: who reads what, and constants as kernels want them."""

    def __init__(self, region: Region, settings: Settings, growing: frozenset[str] | None) -> None:
        self.region, self.settings, self.choices = region, settings, Choices(growing)
        self.nodes: Sequence[NodeView] = region.graph.nodes
        lowerings()  # enters the patterns as well
        self.steps = fuse.steps(self.nodes, {v.name for v in region.outputs})
        self.uses = Counter(v.name for n in self.nodes for v in n.inputs if v is not None)
        for name in fuse.joined_readers(self.nodes, {v.name for v in region.outputs}):
            self.uses[name] = 1
        self.reader = {v.name: n for n in self.nodes for v in n.inputs if v is not None}
        """Value -> the last node that reads it."""
        self.joined: dict[str, tuple[NodeView, int]] = {}
        """Value -> the concatenation that reads it and the axis."""
        self.constants: dict[str, Tensor] = {}
        """Constants that kernels have read, as tensors."""
        self.constant = {v.name for n in self.nodes for v in n.inputs if v is not None and v.constant is not None}
        """Names of constants."""
        self._values = {v.name: v for n in self.nodes for v in n.outputs if v is not None}
        self._packed: dict[tuple[str, object], np.ndarray] = {}
        self._zeros = np.zeros(64, np.float32)
        self.lock = threading.Lock()
        """Held while a bind packs constants."""
        for node in self.nodes:
            if node.op_type == "Concat" and node.domain == "":
                self._join(node)

    def _join(self, node: NodeView) -> None:
        (whole,) = node.outputs
        names = [v.name for v in node.inputs if v is not None]
        if whole is None or whole.shape is None or len(set(names)) < len(names):
            return
        axis = node.attributes.get("axis", 1) % len(whole.shape)
        if all(name in self._values and name not in self.joined for name in names):
            self.joined.update((name, (node, axis)) for name in names)

    def aside(self) -> Prepared:
        """The same region with constants of its own."""
        other = copy.copy(self)
        other.constants, other._packed = {}, {}
        return other

    def value(self, name: str) -> ValueView:
        """A value made inside the region, by name."""
        return self._values[name]

    def packed(self, value: ValueView, form: object, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A constant in another form, made once."""
        found = self.held(value, form)
        if found is None:
            assert value.constant is not None
            array = value.constant
            array = array.astype(np.float32) if array.dtype == np.float16 else array
            found = self._packed[value.name, form] = aligned(make(array))
        return found

    def held(self, value: ValueView, form: object) -> np.ndarray | None:
        """What was made of a constant, if it was."""
        return self._packed.get((value.name, form))

    def hold(self, value: ValueView, form: object, shape: tuple[int, ...]) -> np.ndarray:
        """Float32 zeros that are kept as a form of a constant, to be filled."""
        made = self._packed[value.name, form] = aligned_zeros(shape)
        return made

    def facts(self) -> Mapping[str, Any]:
        """Bytes of packed constants and what Winograd's filters take of them beyond the model's, and the chosen algorithms."""
        return {
            "packed_bytes": sum(array.nbytes for array in self._packed.values()),
            "winograd_surplus_bytes": self.choices.surplus,
            "algorithms": dict(self.choices.algorithms),
        }

    def zeros(self, count: int) -> np.ndarray:
        """At least ``count`` float32 zeros."""
        if len(self._zeros) < count:
            self._zeros = np.zeros(count, np.float32)
        return self._zeros


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
        parent = region.graph.parent
        hosted = {id(node) for node in prefer_host(parent)} if parent is not None else set()
        self.shape_inputs = frozenset(i for i, v in enumerate(region.inputs) if id(v.producer) in hosted)

    def bind(self, specs: Mapping[str, TensorSpec]) -> CompiledRegion:
        try:
            with self._prepared.lock:
                return BoundRegion(self._prepared, specs, self._target, self._threads)
        except Unsupported as reason:
            region = self._prepared.region
            log.warning("region %s runs node by node with NumPy: %s", region.name, reason)
            return InterpretedRegion(region, specs, str(reason))

    def facts(self) -> Mapping[str, Any]:
        return self._prepared.facts()

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise NotImplementedError("a native region is bound before it runs")


class BoundRegion(CompiledRegion):
    """A region for one signature: an image the driver runs. Keeps no state between runs."""

    def __init__(self, prepared: Prepared, specs: Mapping[str, TensorSpec], target: Target, threads: int) -> None:
        region = self._region = prepared.region
        self._specs = specs
        program = Program()
        for value in (*region.inputs, *region.outputs):
            if value.name not in specs:
                raise Unsupported(f"the shape of '{value.name}' depends on data")
        self._shapes = [specs[v.name].shape for v in region.outputs]
        self._dtypes = [specs[v.name].dtype for v in region.outputs]
        self._known = [
            (i, specs[v.name].constant) for i, v in enumerate(region.outputs) if specs[v.name].constant is not None
        ]
        outputs = {
            v.name: Buffer("output", 0, i) for i, v in enumerate(region.outputs) if specs[v.name].constant is None
        }
        workers = pool(threads, prepared.settings.spinning)
        packer = Packer(target, threads, workers)
        lowering = Lowering(program, target, threads, specs, prepared, packer, outputs=outputs)
        for number, value in enumerate(region.inputs):
            spec = specs[value.name]
            buffer = Buffer("input", spec.nbytes, number)
            lowering.values[value.name] = Tensor(
                buffer, spec.shape, dense_strides(spec.shape), element=element_of(spec.dtype)
            )
        for step in prepared.steps:
            if not isinstance(step, fuse.Group):
                self._lower(lowering, step)
            elif not step.lower(lowering):
                for node in step.nodes:
                    self._lower(lowering, node)
        lowering.finish()
        self.program = program
        self._image: Image = program.finish(compiler(target), len(region.inputs), len(region.outputs), threads)
        self._pool = workers
        packer.finish()
        log.debug("region %s is bound: %s", region.name, prepared.facts())

    @staticmethod
    def _lower(lowering: Lowering, node: NodeView) -> None:
        if any(v is not None and lowering.specs[v.name].constant is None for v in node.outputs):
            lowerings()[node.domain, node.op_type][0](lowering, node)

    def output_shapes(self, inputs: Any) -> Any:
        return self._shapes

    def workspace(self, inputs: Any) -> int:
        return self._image.workspace

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        operands = [x if x.flags.num & 1 else np.ascontiguousarray(x) for x in inputs]
        image = self._image
        bases = image.bases(*map(id, (context.workspace, *operands, *outputs)))
        first, *others = image.records
        self._pool.run(first, bases, image.shared)
        for record in others:
            if context.cancelled():
                raise Fail("Exiting due to terminate flag being set to true.")
            self._pool.run(record, bases, image.shared)
        for index, constant in self._known:
            if outputs[index] is not None:
                outputs[index][...] = constant
        if image.checked and context.workspace[8 * STATUS : 8 * STATUS + 8].any():
            self._run_by_node(context, operands, outputs)
        return True

    def _run_by_node(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run with NumPy: its kernels raise what is wrong with the data."""
        results = InterpretedRegion(self._region, self._specs, "its data")(context, *inputs)
        for output, result in zip(outputs, results, strict=True):
            if output is not None:
                output[...] = result

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        outputs = [np.empty(shape, dtype) for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]
        self.run_into(context, inputs, outputs)
        return outputs
