"""What a plan knows of each value before anything runs: dtype and shape, and the array itself where only shapes decide
it.

Shape arithmetic (Shape, then Gather, Concat, ...) is evaluated here once per input-shape signature, so that a Reshape
behind it has a known shape and the run executes none of it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from onnxplug.contract.claims import CompiledRegion
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.types import TensorType, ValueType, is_device_type
from onnxplug.graph.infer import output_types
from onnxplug.graph.ir import Node, Value
from onnxplug.graph.schemas import RANDOM, Evaluate
from onnxplug.place.units import ControlUnit, CopyUnit, KernelUnit, Located, RegionUnit, Unit
from onnxplug.plan.failures import failures_of
from onnxplug.plan.rules import output_shapes

SMALL = 4096
"""Elements; larger results are computed by the run."""


class Memory:
    """What the latest shapes led to, node by node: the next ones, if they differ in little, repeat only what changes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.specs: dict[Value, TensorSpec | None] = {}
        self.given: dict[Node, tuple[TensorSpec | None, ...]] = {}
        """The specs that a node's outputs followed from."""
        self.values: dict[Unit, tuple[dict[str, TensorSpec], list[tuple[str, Value]]]] = {}
        """Of a region: the specs of its constants, and its other values."""

    def same(self, value: Value, spec: TensorSpec | None) -> TensorSpec | None:
        """The spec, or the value's latest one if it says the same; remembered."""
        found = self.specs.get(value)
        if spec is None or found is None or not _alike(spec, found):
            self.specs[value] = found = spec
        return found


class Specs:
    """Specs of values that follow from given ones (None: not known, or no dense tensor); ``visit`` walks the units."""

    def __init__(
        self, inputs: Mapping[Value, TensorSpec | None], evaluate: Evaluate, memory: Memory | None = None
    ) -> None:
        self._evaluate = evaluate
        self._bound: dict[Unit, CompiledRegion] = {}
        self._memory = memory
        if memory is not None:
            inputs = {value: memory.same(value, spec) for value, spec in inputs.items()}
        self._specs: dict[Value, TensorSpec | None] = dict(inputs)
        self.known = {v: s.constant for v, s in inputs.items() if s is not None and s.constant is not None}
        """Values that only shapes decide."""
        self._as_declared = all(s is None or v.shape is None or len(v.shape) == len(s.shape) for v, s in inputs.items())
        """False when an input declared a scalar came with another rank, as it may: what was inferred from it is void."""

    def of(self, value: Value) -> TensorSpec | None:
        """Spec of a value; None when its shape is not known, or it is no dense tensor of fixed-size elements."""
        if value in self._specs:
            return self._specs[value]
        if value.was_released:
            return _static(value.type)
        array = self.constant(value)
        if array is not None and array.dtype != object:
            return TensorSpec(array.dtype, array.shape, array)
        return None

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
            self._visit_node(unit.node)
        elif isinstance(unit, RegionUnit):
            with failures_of(unit):
                self._visit_region(unit)
        elif isinstance(unit, ControlUnit):
            for located in unit.outs:
                if located is not None:
                    self._specs[located[0]] = None
        else:
            assert isinstance(unit, CopyUnit)

    def region(self, unit: RegionUnit) -> CompiledRegion | None:
        """The unit's region for these shapes; None when the shape of an input is not known."""
        return self._bound.get(unit)

    def _visit_region(self, unit: RegionUnit) -> None:
        compiled = unit.compiled
        shapes = [self.shape(located) for located in unit.ins]
        if None not in shapes:
            compiled = self._bound[unit] = self.bind(unit)
        found = compiled.output_shapes(shapes)
        for index, located in enumerate(unit.outs):
            if located is not None and located[0] not in self.known:
                dtype = located[0].dtype if is_device_type(located[0].type) else None
                shape = found[index] if found is not None else None
                self._specs[located[0]] = (
                    TensorSpec(dtype, tuple(shape)) if shape is not None and dtype is not None else None
                )

    def bind(self, unit: RegionUnit) -> CompiledRegion:
        """The unit's region for the specs of its inputs."""
        if type(unit.compiled).bind is CompiledRegion.bind:
            return unit.compiled
        memory = self._memory if self._as_declared else None
        for node in unit.nodes:
            if memory is None:
                self._visit_node(node)
            else:
                self._visit_again(node, memory)
        found = None if memory is None else memory.values.get(unit)
        constants, others = found or self._values(unit)
        if memory is not None and found is None:
            memory.values[unit] = constants, others
        specs = dict(constants)
        for name, value in others:
            spec = self.of(value)
            if spec is not None:
                specs[name] = spec
        return unit.compiled.bind(specs)

    def _values(self, unit: RegionUnit) -> tuple[dict[str, TensorSpec], list[tuple[str, Value]]]:
        """Specs of the constants a region reads, and its other values, by name. Large arrays are left to the constants
        themselves, which may let go of them."""
        values = {v.name: v for n in unit.nodes for v in (*n.reads, *n.outputs) if v is not None}
        constants = {
            name: spec if spec.nbytes <= SMALL else TensorSpec(spec.dtype, spec.shape)
            for name, v in values.items()
            if v.is_constant and (spec := self.of(v)) is not None
        }
        return constants, [(name, value) for name, value in values.items() if name not in constants]

    def _visit_again(self, node: Node, memory: Memory) -> None:
        """As before where the node's operands are."""
        given = tuple(None if v is None else self._specs.get(v) for v in node.inputs)
        before = memory.given.get(node)
        made = [v for v in node.outputs if v is not None]
        if before is None or any(new is not old for new, old in zip(given, before, strict=True)):
            self._visit_node(node)
            for value in made:
                spec = self._specs[value] = memory.same(value, self._specs.get(value))
                if value in self.known and spec is not None and spec.constant is not None:
                    self.known[value] = spec.constant
            memory.given[node] = given
            return
        for value in made:
            spec = self._specs[value] = memory.specs.get(value)
            if spec is not None and spec.constant is not None:
                self.known[value] = spec.constant

    def _visit_node(self, node: Node) -> None:
        if self._compute(node):
            return
        static = [_static(v.type) if v is not None else None for v in node.outputs]
        if self._as_declared and all(v is None or s is not None for v, s in zip(node.outputs, static, strict=True)):
            found = static
        else:
            found = self._by_rule(node) or [_static(t) for t in self._infer(node)]
        for value, spec in zip(node.outputs, found, strict=False):
            if value is not None:
                self._specs[value] = spec

    def _by_rule(self, node: Node) -> list[TensorSpec | None] | None:
        """Specs of the outputs where a rule gives their shapes."""
        shapes: list[tuple[int, ...] | None] = []
        constants: list[np.ndarray | None] = []
        for value in node.inputs:
            spec = None if value is None else self.of(value)
            if spec is None and value is not None:
                return None
            shapes.append(None if spec is None else spec.shape)
            constants.append(None if value is None else self.constant(value))
        found = output_shapes(node, shapes, constants)
        if found is None or len(found) != len(node.outputs):
            return None
        if any(value is not None and value.dtype is None for value in node.outputs):
            return None
        pairs = zip(node.outputs, found, strict=True)
        return [None if v is None or v.dtype is None else TensorSpec(v.dtype, shape) for v, shape in pairs]

    def _infer(self, node: Node) -> Sequence[ValueType | None]:
        types: list[ValueType | None] = []
        constants: dict[str, np.ndarray | None] = {}
        for value in node.inputs:
            if value is None:
                types.append(None)
                continue
            spec = self.of(value)
            types.append(
                TensorType(value.type.element, spec.shape)
                if spec and isinstance(value.type, TensorType)
                else value.type
            )
            array = self.constant(value)
            if array is not None and array.size <= SMALL:
                constants[value.name] = array
        try:
            return output_types(node, types, constants)
        except STATUS_ERRORS:
            return [None] * len(
                node.outputs
            )  # shapes that do not fit: the kernel says so when it runs, with the node's name

    def _compute(self, node: Node) -> bool:
        """Evaluate shape arithmetic; True when every output is now known."""
        if node.op_type in ("Shape", "Size") and node.domain == "" and node.inputs[0] is not None:
            spec = self.of(node.inputs[0])
            if spec is None or node.outputs[0] is None:
                return False
            self._learn(node.outputs[0], _shape_or_size(node, spec.shape))
            return True
        if node.op_type in RANDOM or node.subgraphs or not any(v in self.known for v in node.inputs if v is not None):
            return False
        arrays = [None if v is None else self.constant(v) for v in node.inputs]
        if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
            return False
        if sum(a.size for a in arrays if a is not None) > SMALL or not self._is_small(node):
            return False
        results = self._evaluate(node, arrays)
        if results is None:
            return False
        for value, array in zip(node.outputs, results, strict=False):
            if value is not None:
                self._learn(value, array)
        return True

    def _is_small(self, node: Node) -> bool:
        """Whether all outputs are known to be small."""
        specs = self._by_rule(node) or [_static(t) for t in self._infer(node)]
        return all(s is not None and math.prod(s.shape) <= SMALL for s in specs)

    def _learn(self, value: Value, array: np.ndarray) -> None:
        array = np.asarray(array)
        self.known[value] = array
        self._specs[value] = TensorSpec(array.dtype, array.shape, array)


def _alike(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether two specs say the same."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.constant is None or b.constant is None:
        return a.constant is b.constant
    return a.constant is b.constant or a.constant.tobytes() == b.constant.tobytes()


def _shape_or_size(node: Node, shape: tuple[int, ...]) -> np.ndarray:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))], np.int64)


def _static(type_: ValueType | None) -> TensorSpec | None:
    if not isinstance(type_, TensorType) or type_.element == "string":
        return None
    shape = type_.static_shape
    return None if shape is None else TensorSpec(type_.dtype, shape)
