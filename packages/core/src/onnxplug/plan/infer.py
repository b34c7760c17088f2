"""Specs of a node's outputs from those of its inputs: declared, by rule, by inference, or the arrays themselves where only
shapes decide them.

Models repeat themselves, layer by layer and run by run, so what followed for one node is kept for all that are like it: same
operator and attributes, operands of equal specs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract.fits import fits
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.types import TensorType, ValueType
from onnxplug.graph.ir import Node
from onnxplug.graph.schemas import RANDOM, Evaluate
from onnxplug.graph.value import KEPT, Value
from onnxplug.plan.general import Found, General, Types, static_spec

SMALL = 4096
"""Elements; larger results are computed by the run, the contents of larger constants never decide a shape."""
TINY = 64
"""Elements; larger constants that are no integers decide no shape either."""
MAX_KEPT = 8192
UNDECIDED = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results are as long as the data says."""
NOT_LARGER = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity",
        "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum",
        "Reshape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators whose outputs have no more elements than all operands together, or than the product of their sizes."""

Ask = Callable[[Node, Types, Mapping[str, np.ndarray]], Found]
"""The general inference."""


class Inference:
    """What follows for nodes, and what has followed before; ``identity`` is the graph's, where later processes are to know it. For one
    thread at a time."""

    def __init__(self, identity: str = "") -> None:
        self._general = General(identity)
        self.keep = self._general.keep
        self._kinds: dict[Any, Any] = {}
        """Of nodes, and each kind itself."""
        self._kept: dict[Any, Found] = {}
        self._exact: dict[Any, tuple[Found, Found]] = {}
        """By the identity of operands, which are held."""
        self._specs: dict[Any, TensorSpec] = {}

    def same(self, spec: TensorSpec | None) -> TensorSpec | None:
        """The one object for a spec that says this."""
        if spec is None or spec.dtype == object:
            return spec
        if len(self._specs) >= MAX_KEPT:
            self._specs.clear()
        content = None if spec.constant is None else spec.constant.tobytes()
        return self._specs.setdefault((spec.dtype, spec.shape, content), spec)

    def operand(self, constant: TensorSpec) -> TensorSpec | None:
        """What decides shapes of a constant: without its contents where it is large."""
        large = constant.constant is not None and constant.constant.size > SMALL
        return self.same(TensorSpec(constant.dtype, constant.shape) if large else constant)

    def kind(self, node: Node) -> Any:
        """What makes two nodes alike, one object for equal kinds; False where that cannot be told."""
        kind = self._kinds.get(node)
        if kind is None:
            kind = self._kinds[node] = _kind(node)
            if kind:
                kind = self._kinds[node] = self._kinds.setdefault(kind, kind)
        return kind

    def outputs(self, node: Node, operands: Found, as_declared: bool, evaluate: Evaluate) -> Found:
        """Specs of a node's outputs (None: not known, or no dense tensor). ``as_declared``: static types hold. ``evaluate``
        is the session's, always the same; it is not held, since sessions hold this."""
        kind = self.kind(node)
        exact = (id(kind), as_declared, *map(id, operands)) if kind else None
        held = self._exact.get(exact)
        if held is not None:
            return held[1]
        key = self._key(kind, node, operands, as_declared) if kind else None
        found = None if key is None else self._kept.get(key)
        if found is None:
            ask = partial(self._general.outputs, kind)
            found = [self.same(spec) for spec in _follow(node, operands, as_declared, evaluate, ask)]
        if key is not None:
            if len(self._kept) >= MAX_KEPT or len(self._exact) >= MAX_KEPT:
                self._kept.clear()
                self._exact.clear()
            self._kept[key] = found
            self._exact[exact] = operands, found
        return found

    def anew(self, node: Node, operands: Found, as_declared: bool, evaluate: Evaluate) -> Found:
        """As ``outputs``, without a look at what was found before, so that sizes of the operands may be followed."""
        return _follow(node, operands, as_declared, evaluate, partial(self._general.outputs, self.kind(node)))

    @staticmethod
    def _key(kind: Any, node: Node, operands: Found, as_declared: bool) -> Any:
        """What the outputs' specs depend on; None where that is more than can be told."""
        given: list[Any] = []
        decided = any(s is not None and s.constant is not None and not kind[0][i] for i, s in enumerate(operands))
        for value, spec in zip(node.inputs, operands, strict=True):
            if value is None:
                given.append(None)
            elif spec is None or spec.dtype == object:
                return None
            elif spec.constant is None:
                given.append((spec.dtype, spec.shape))
            elif spec.constant.size > (SMALL if decided or spec.dtype.kind in "iu" else TINY):
                given.append((spec.dtype, spec.shape, True))
            else:
                given.append((spec.dtype, spec.shape, spec.constant.tobytes()))
        return kind, as_declared, *given


def of_constant(value: Value) -> TensorSpec | None:
    """The spec of a constant; without the array where that may be let go: it is too large to decide a shape. Such a one that nobody
    has read is not read for it, as whoever computes with it may not need it as it lies, or have it already."""
    told = None if value.is_read else static_spec(value.type)
    if told is not None and told.nbytes > KEPT:
        return told
    if value.was_released:
        assert value.shape is not None and value.dtype is not None
        return TensorSpec(value.dtype, tuple(d for d in value.shape if isinstance(d, int)))
    array = value.constant
    if array is None or array.dtype == object:
        return None
    return TensorSpec(array.dtype, array.shape, None if array.nbytes > KEPT else array)


def _follow(node: Node, operands: Found, as_declared: bool, evaluate: Evaluate, ask: Ask) -> Found:
    arrays = [_array(value, spec) for value, spec in zip(node.inputs, operands, strict=True)]
    computed = _compute(node, operands, arrays, evaluate, ask)
    if computed is not None:
        return computed
    if not fits(node, [None if spec is None else spec.shape for spec in operands]):
        return [None] * len(node.outputs)  # the kernel says so, with the node's name
    static = [static_spec(v.type) if v is not None else None for v in node.outputs]
    settled = all(v is None or (s is not None and not v.is_noted) for v, s in zip(node.outputs, static, strict=True))
    if as_declared and settled and _as_known(node, operands):
        return static
    return _inferred(node, operands, arrays, ask)


def _as_known(node: Node, operands: Found) -> bool:
    """Whether what was inferred at load from the types of a node's operands holds for these: it takes for granted that dimensions
    it does not know will fit those it knows."""
    given = [(v, s) for v, s in zip(node.inputs, operands, strict=True) if v is not None and not v.is_constant]
    if any(spec is None for _, spec in given):
        return True
    known = [(static_spec(value.type), spec) for value, spec in given]
    return all(noted is not None and spec is not None and noted.shape == spec.shape for noted, spec in known)


def _compute(
    node: Node, operands: Found, arrays: Sequence[np.ndarray | None], evaluate: Evaluate, ask: Ask
) -> Found | None:
    """Evaluate shape arithmetic; None where the outputs do not follow from shapes alone."""
    if node.op_type in ("Shape", "Size") and node.domain == "" and node.inputs[0] is not None:
        return None if operands[0] is None else [_known(_shape_or_size(node, operands[0].shape))]
    if node.op_type in RANDOM or node.subgraphs:
        return None
    if not any(a is not None and not v.is_constant for v, a in zip(node.inputs, arrays, strict=True) if v is not None):
        return None
    if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
        return None
    sizes = [a.size for a in arrays if a is not None]
    if sum(sizes) > SMALL:
        return None
    if not _is_bounded(node, arrays) and not all(
        s is not None and math.prod(s.shape) <= SMALL for s in _inferred(node, operands, arrays, ask)
    ):
        return None
    results = evaluate(node, arrays)
    if results is None:
        return None
    made = [None if v is None else _known(r) for v, r in zip(node.outputs, results, strict=False)]
    return [*made, *[None] * (len(node.outputs) - len(made))]


def _is_bounded(node: Node, arrays: Sequence[np.ndarray | None]) -> bool:
    """Whether the outputs are small whatever the operands contain."""
    if node.domain != "":
        return False
    if node.op_type == "NonZero":  # as many columns as there are elements that are not zero, and a row for each axis
        return all(a is None or a.size * a.ndim <= SMALL for a in arrays)
    return node.op_type in NOT_LARGER and math.prod(1 if a is None else a.size for a in arrays) <= SMALL


def _inferred(node: Node, operands: Found, arrays: Sequence[np.ndarray | None], ask: Ask) -> Found:
    """Specs of the outputs by rule, else by the general inference."""
    nothing: Found = [None] * len(node.outputs)
    made = [v.type for v in node.outputs if v is not None]
    if node.op_type in UNDECIDED or not any(t is None or isinstance(t, TensorType) for t in made):
        return nothing
    found = _by_rule(node, operands, arrays)
    if found is not None:
        return found
    from onnxplug.graph.type_rules import loosened

    types: Types = []
    constants: dict[str, np.ndarray] = {}
    for value, spec, array in zip(node.inputs, operands, arrays, strict=True):
        if value is None:
            types.append(None)
            continue
        declared = value.type
        if spec is not None and isinstance(declared, TensorType):
            types.append(TensorType(declared.element, spec.shape))
        else:
            types.append(loosened(declared) if value.is_noted else declared)
        if array is not None and array.size <= SMALL:
            constants[value.name] = array
    news = any(
        v is not None and (t != v.type or (v.name in constants and not v.is_constant))
        for v, t in zip(node.inputs, types, strict=True)
    )
    if not news and all(v is None or static_spec(v.type) is None for v in node.outputs):
        return nothing  # what did not follow when the model was loaded
    return ask(node, types, constants)


def _by_rule(node: Node, operands: Found, arrays: Sequence[np.ndarray | None]) -> Found | None:
    """Specs of the outputs where a rule gives their shapes."""
    from onnxplug.plan.layers import output_shapes  # and its rules, which a model of fixed shapes does not ask for

    shapes: list[tuple[int, ...] | None] = []
    for spec, value in zip(operands, node.inputs, strict=True):
        if spec is None and value is not None:
            return None
        shapes.append(None if spec is None else spec.shape)
    found = output_shapes(node, shapes, arrays)
    if found is None or len(found) != len(node.outputs):
        return None
    made: list[TensorSpec | None] = []
    for value, shape in zip(node.outputs, found, strict=True):
        dtype = None if value is None else value.dtype
        if value is not None and dtype is None:
            return None
        made.append(None if dtype is None else TensorSpec(dtype, shape))
    return made


def _array(value: Value | None, spec: TensorSpec | None) -> np.ndarray | None:
    """What is known of the contents of an operand."""
    if value is None:
        return None
    return spec.constant if spec is not None else value.constant


def _known(result: Any) -> TensorSpec:
    array = np.asarray(result)
    return TensorSpec(array.dtype, array.shape, array)


def _shape_or_size(node: Node, shape: tuple[int, ...]) -> np.ndarray:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end", len(shape))], np.int64)


def _kind(node: Node) -> Any:
    """What makes two nodes alike; False where that cannot be told."""
    if node.subgraphs or node.op_type in RANDOM:
        return False
    constants = tuple(v is not None and v.is_constant for v in node.inputs)
    outputs = tuple(None if v is None else (v.dtype, _plain_type(v.type)) for v in node.outputs)
    return constants, node.op_type, node.domain, node.overload, node.since_version, node.signature, outputs


def _plain_type(type_: ValueType | None) -> Any:
    return type_.static_shape if isinstance(type_, TensorType) else str(type_)
