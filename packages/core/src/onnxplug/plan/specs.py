"""What a plan knows of each value before anything runs: dtype and shape, and the array itself where only shapes decide
it.

Shape arithmetic (Shape, then Gather, Concat, ...) is evaluated here once per input-shape signature, so that a Reshape
behind it has a known shape and the run executes none of it.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxplug.contract.claims import CompiledRegion
from onnxplug.contract.errors import RuntimeException
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import is_device_type
from onnxplug.graph.ir import Node
from onnxplug.graph.schemas import Evaluate
from onnxplug.graph.value import Value
from onnxplug.place.units import ControlUnit, CopyUnit, KernelUnit, Located, RegionUnit, Unit
from onnxplug.plan.course import Course, Infer
from onnxplug.plan.failures import describe, failures_of
from onnxplug.plan.infer import Inference, of_constant

LARGE = 1 << 32
"""Bytes from which on it is asked whether there is room for a tensor, before kernels are made for it."""


class Memory:
    """What was inferred for earlier shapes, so that for shapes that differ in little only what changes is inferred."""

    def __init__(self, identity: str = "") -> None:
        self._lock = threading.Lock()
        self.inference = Inference(identity)
        self.regions: dict[Unit, RegionSpecs] = {}

    @contextmanager
    def alone(self) -> Iterator[Memory]:
        """This, for one thread at a time; one of nothing while another thread has it."""
        if not self._lock.acquire(blocking=False):
            yield Memory()
            return
        try:
            yield self
        finally:
            self.inference.keep()
            self._lock.release()

    def region(self, unit: RegionUnit) -> RegionSpecs:
        """The specs inside a region, as they were for the latest shapes."""
        found = self.regions.get(unit)
        if found is None:
            found = self.regions[unit] = RegionSpecs(unit, self.inference)
        return found


class Specs:
    """Specs of values that follow from given ones (None: not known, or no dense tensor); ``visit`` walks the units."""

    def __init__(self, inputs: Mapping[Value, TensorSpec | None], evaluate: Evaluate, memory: Memory) -> None:
        self._evaluate = evaluate
        self._bound: dict[Unit, CompiledRegion] = {}
        self._memory = memory
        self._specs = {value: memory.inference.same(spec) for value, spec in inputs.items()}
        self.known = {v: s.constant for v, s in inputs.items() if s is not None and s.constant is not None}
        """Values that only shapes decide."""
        self.words: dict[Value, TensorSpec] = {}
        """Strings that a region makes, where it says of what shape."""
        self._as_declared = all(s is None or v.shape is None or len(v.shape) == len(s.shape) for v, s in inputs.items())
        """False when an input declared a scalar came with another rank, as it may: what was inferred from it is void."""

    def of(self, value: Value) -> TensorSpec | None:
        """Spec of a value; None when its shape is not known, or it is no dense tensor of fixed-size elements."""
        if value in self._specs:
            return self._specs[value]
        return of_constant(value)

    def shape(self, located: Located | None) -> tuple[int, ...] | None:
        """Shape of an operand where it is known."""
        spec = None if located is None else self.of(located[0])
        return None if spec is None else spec.shape

    def constant(self, value: Value) -> np.ndarray | None:
        """The array of a constant or of a value that only shapes decide; None for weights that were let go, which are too large
        to decide a shape."""
        found = self.known.get(value)
        return found if found is not None or value.was_released else value.constant

    def visit(self, unit: Unit) -> None:
        """Learn the specs of a unit's outputs."""
        if isinstance(unit, KernelUnit):
            operands = [None if v is None else self.of(v) for v in unit.node.inputs]
            found = self._memory.inference.outputs(unit.node, operands, self._as_declared, self._evaluate)
            for value, spec in zip(unit.node.outputs, found, strict=False):
                if value is not None:
                    _check_room(unit, value.name, spec)
                    self._learn(value, spec)
        elif isinstance(unit, RegionUnit):
            with failures_of(unit):
                self._visit_region(unit)
        elif isinstance(unit, ControlUnit):
            from onnxplug.plan.bodies import Follower  # few models have bodies

            follower = Follower(self._specs, self._memory.inference, self._as_declared, self._evaluate)
            for value, spec in zip(unit.node.outputs, follower.node(unit.node), strict=False):
                if value is not None:
                    self._specs[value] = None if spec is None else TensorSpec(spec.dtype, spec.shape)
        else:
            assert isinstance(unit, CopyUnit)

    def region(self, unit: RegionUnit) -> CompiledRegion | None:
        """The unit's region for these shapes; None when they do not say the shape of an input, or an input that decides shapes."""
        return self._bound.get(unit)

    def _learn(self, value: Value, spec: TensorSpec | None) -> None:
        self._specs[value] = spec
        if spec is not None and spec.constant is not None:
            self.known[value] = spec.constant

    def _visit_region(self, unit: RegionUnit) -> None:
        compiled = unit.compiled
        shapes = [self.shape(located) for located in unit.ins]
        bound = None if None in shapes else self.bind(unit)
        if bound is not None:
            compiled = self._bound[unit] = bound
        found = compiled.output_shapes(shapes)
        if found is not None:
            _check_shapes(found, len(unit.outs))
        for index, located in enumerate(unit.outs):
            if located is not None and located[0] not in self.known:
                value, dtype = located[0], located[0].dtype
                shape = found[index] if found is not None else None
                spec = TensorSpec(dtype, tuple(shape)) if shape is not None and dtype is not None else None
                if spec is not None and not is_device_type(value.type):
                    self.words[value] = spec
                    spec = None
                self._specs[value] = self._memory.inference.same(spec)

    def bind(self, unit: RegionUnit) -> CompiledRegion | None:
        """The unit's region for the specs of its inputs; None where one that decides shapes, which then are not known, is to come with
        a run."""
        if type(unit.compiled).bind is CompiledRegion.bind:
            return unit.compiled
        region = self._memory.region(unit) if self._as_declared else RegionSpecs(unit, self._memory.inference)
        region.follow(self.of, self._as_declared, self._evaluate)
        if None in region.specs.values() and any(not self._decides(unit.ins[i]) for i in unit.compiled.shape_inputs):
            return None
        for located in unit.outs:
            spec = None if located is None else region.specs.get(located[0])
            if located is not None and spec is not None and spec.constant is not None:
                self._learn(located[0], spec)
        for name, made in region.large.items():
            _check_room(unit, name, made)
        return unit.compiled.bind(region.named.copy())

    def _decides(self, located: Located | None) -> bool:
        """Whether the operand's value is known."""
        return located is None or self.constant(located[0]) is not None


def _check_room(unit: KernelUnit | RegionUnit, name: str, spec: TensorSpec | None) -> None:
    """RuntimeException for a tensor of the host that memory cannot hold: what is made for its shape may itself be as long."""
    if spec is not None and spec.nbytes >= LARGE and unit.provider.device == HOST:
        try:
            np.empty(spec.nbytes, np.uint8)
        except (MemoryError, ValueError):
            node, op_type = _maker(unit, name)
            raise RuntimeException(
                f"Non-zero status code returned while running {op_type} node. Name:'{node}' Status Message: Unable to allocate "
                f"{spec.nbytes} bytes for '{name}' of shape {list(spec.shape)}"
            ) from None


def _maker(unit: KernelUnit | RegionUnit, name: str) -> tuple[str, str]:
    """Name and operator of the node that gives the value."""
    for node in unit.nodes if isinstance(unit, RegionUnit) else ():
        if any(value is not None and value.name == name for value in node.outputs):
            return node.name, node.op_type
    return describe(unit)[:2]


def _check_shapes(found: Sequence[Any], outputs: int) -> None:
    """RuntimeError for what ``output_shapes`` must not give."""
    good = len(found) == outputs and all(
        shape is None or (isinstance(shape, tuple | list) and all(hasattr(d, "__index__") and d >= 0 for d in shape))
        for shape in found
    )
    if not good:
        raise RuntimeError(
            f"its output_shapes() gave {found!r}, it must give a shape or None for each of {outputs} outputs"
        )


class RegionSpecs:
    """Specs of the values of a region, for the shapes that came last."""

    def __init__(self, unit: RegionUnit, inference: Inference) -> None:
        self._inference = inference
        self._nodes: list[Node] = list(unit.nodes)
        made = {v for node in self._nodes for v in node.outputs if v is not None}
        read = dict.fromkeys(v for node in self._nodes for v in node.reads)
        self._inputs = [v for v in read if v not in made and not v.is_constant]
        self._readers: dict[Value, list[int]] = {}
        for number, node in enumerate(self._nodes):
            for value in node.reads:
                self._readers.setdefault(value, []).append(number)
        self._constructs = any(node.subgraphs for node in self._nodes)
        self.specs: dict[Value, TensorSpec | None] = {}
        constants = {v: spec for v in read if v.is_constant and (spec := of_constant(v)) is not None}
        self._constants = {v: inference.operand(spec) for v, spec in constants.items()}
        self.named = {v.name: spec for v, spec in constants.items()}
        """Specs by name, of constants and of what is known."""
        self.large: dict[str, TensorSpec] = {}
        """Those of tensors so large that it is asked whether there is room."""
        self._given: list[TensorSpec | None] | None = None
        """Those of the inputs; None where the specs do not follow from them, or from nothing yet."""
        self._course: Course | None = None

    def follow(self, of: Callable[[Value], TensorSpec | None], as_declared: bool, evaluate: Evaluate) -> None:
        """Bring the specs up to date with those of the inputs: nodes are looked at again behind what changed."""
        inputs = [self._inference.same(of(value)) for value in self._inputs]
        before, self._given = self._given, None

        def infer(node: Node, operands: Sequence[TensorSpec | None]) -> Sequence[TensorSpec | None]:
            try:
                if node.subgraphs:
                    from onnxplug.plan.bodies import Follower

                    return Follower(self.specs, self._inference, as_declared, evaluate).node(node)
                return self._inference.outputs(node, operands, as_declared, evaluate)
            except Exception as error:  # it is the node's, not the region's
                error.node = node  # type: ignore[attr-defined]
                raise

        def anew(node: Node, operands: Sequence[TensorSpec | None]) -> Sequence[TensorSpec | None]:
            return self._inference.anew(node, operands, as_declared, evaluate)

        found = None
        if before is not None and self._course is not None:
            found = self._course.repeat(before, inputs, infer, anew)
        if found is None:
            self._walk(before, inputs, infer)
        else:
            for values, spec in found:
                self._learn(values, self._inference.same(spec))
        self._given = inputs

    def _learn(self, values: Sequence[Value], spec: TensorSpec | None) -> None:
        names = [value.name for value in values]
        self.specs.update(dict.fromkeys(values, spec))
        for name in names if spec is None else ():
            self.named.pop(name, None)
        if spec is not None:
            self.named.update(dict.fromkeys(names, spec))
        if spec is not None and spec.nbytes >= LARGE:
            self.large.update(dict.fromkeys(names, spec))
        elif self.large:
            for name in names:
                self.large.pop(name, None)

    def _walk(self, before: list[TensorSpec | None] | None, inputs: list[TensorSpec | None], infer: Infer) -> None:
        """Node by node; the course is noted where it may be taken again."""
        waiting = [] if before is not None else list(range(len(self._nodes)))
        marked = set(waiting)
        changed: set[Value] = set()
        visited: list[tuple[Node, list[TensorSpec | None]]] = []

        def learn(value: Value, spec: TensorSpec | None) -> None:
            if value in self.specs and self.specs[value] is spec:
                return
            self._learn([value], spec)
            changed.add(value)
            for number in self._readers.get(value, ()):
                if number not in marked:
                    marked.add(number)
                    heapq.heappush(waiting, number)

        for value, spec in zip(self._inputs, inputs, strict=True):
            learn(value, spec)
        while waiting:
            node = self._nodes[heapq.heappop(waiting)]
            operands = [None if v is None else self._constants.get(v, self.specs.get(v)) for v in node.inputs]
            visited.append((node, operands))
            for made, spec in zip(node.outputs, infer(node, operands), strict=False):
                if made is not None:
                    learn(made, spec)
        self._course = None
        if before is not None and not self._constructs:
            self._course = Course(self._inputs, before, inputs, visited, changed, self.specs, self._inference.kind)
