"""Element-wise nodes that may share kernels, and how they do: nodes of one output shape are a stage, which becomes one kernel that reads
and writes each tensor once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxplug.contract import NodeView, Storage, TensorType, ValueView, assign_offsets
from onnxplug_kernel_text.expression import OPERATORS, statements, with_defaults
from onnxplug_kernel_text.types import OF_ELEMENT, SIZES, literal

_LEFT = frozenset({"Identity", "BitShift", "Mean", "Shrink", "DequantizeLinear", "QuantizeLinear"})
"""Operators with text that chains leave out: a mere name, attributes of unusual types, and what ``quantizes`` tells of."""
_NUMBERS = frozenset({"int8", "uint8", "int16", "uint16"})
_BROADCASTING = 7
"""From this version of Add and its like on, operands are broadcast as in NumPy."""
_HALVES = frozenset({"float16", "bfloat16"})
_FLOATS = _HALVES | {"float", "double"}


@dataclass
class Stage:
    """Nodes of one output shape, and the values that the kernel must write, with their types."""

    shape: tuple[int, ...]
    nodes: list[NodeView] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """Statements of a stage, which tensors they read and which variables hold what leaves it, both by the tensor's name."""

    read: Mapping[str, str]
    lines: Sequence[str]
    results: Mapping[str, str]


def fusable(node: NodeView) -> bool:
    """Whether a node may be part of a chain."""
    if node.domain or node.op_type not in OPERATORS or node.op_type in _LEFT:
        return False
    if "axis" in node.attributes or "consumed_inputs" in node.attributes or "broadcast" in node.attributes:
        return False
    if len(node.inputs) > 1 and node.since_version < _BROADCASTING:
        return False
    values = (*node.inputs, *node.outputs)
    if any(value is None or element(value) not in OF_ELEMENT for value in values):
        return False
    if node.op_type == "Pow" and element(node.inputs[0]) not in _FLOATS:
        return False  # devices have powers of floats only
    # Within a kernel halves are held as float32, so a conversion to them would not round.
    return node.op_type not in ("Cast", "CastLike") or element(node.outputs[0]) not in _HALVES


def quantizes(node: NodeView) -> bool:
    """Whether a node is a DequantizeLinear or QuantizeLinear that may be part of a chain too: of small integers and float32, with a
    constant scale and zero point for all elements."""
    if node.domain or node.op_type not in ("DequantizeLinear", "QuantizeLinear"):
        return False
    x, *parameters = node.inputs
    numbers, floats = (x, node.outputs[0]) if node.op_type == "DequantizeLinear" else (node.outputs[0], x)
    whole = all(v is not None and v.constant is not None and v.constant.size == 1 for v in parameters)
    spread = all(v is not None and (v.constant is None or v.constant.ndim == 0) for v in parameters) or (
        x is not None and x.shape is not None and len(x.shape) > 0
    )
    typed = element(numbers) in _NUMBERS and element(floats) == element(node.inputs[1]) == "float"
    plain = not node.attributes.get("block_size", 0) and node.attributes.get("precision", 1) in (0, 1)
    return whole and spread and typed and plain


def type_of(value: ValueView | None) -> str:
    """The type in kernel text of a tensor that ``fusable`` has seen."""
    return OF_ELEMENT[str(element(value))]


def element(value: ValueView | None) -> str | None:
    """ONNX's name of a tensor's elements, None for other values and unknown types."""
    return value.type.element if value is not None and isinstance(value.type, TensorType) else None


def output_shapes(nodes: Sequence[NodeView], given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all values of a chain for those of its inputs and constants. ValueError where operands do not fit, with the node."""
    shapes = dict(given)
    for node in nodes:
        names = [value.name for value in node.inputs if value is not None]
        if node.op_type == "CastLike":
            names = names[:1]
        try:
            shape = np.broadcast_shapes(*(shapes[name] for name in names))
        except ValueError as error:
            error.node = node  # type: ignore[attr-defined]
            raise
        # The slope is broadcast to the input, never the other way round.
        shapes[made(node)] = shapes[names[0]] if node.op_type == "PRelu" else shape
    return shapes


def stages(
    nodes: Sequence[NodeView],
    shapes: Mapping[str, tuple[int, ...]],
    outputs: Collection[str],
    longest: int,
    head: tuple[str, str] | None = None,
) -> list[Stage]:
    """Nodes sorted into stages of at most ``longest`` such that what a node reads is made in its own stage or an earlier one. ``head``:
    name and type of a value that the first stage begins with, made by something else."""
    found: list[Stage] = []
    home: dict[str, int] = {}
    types: dict[str, str] = {}
    if head is not None:
        found.append(Stage(shapes[head[0]]))
        home[head[0]], types[head[0]] = 0, head[1]
    for node in nodes:
        name, reads = made(node), [value.name for value in node.inputs if value is not None]
        shape = shapes[name]
        earliest = max((home.get(read, 0) for read in reads), default=0)
        at = next(
            (n for n in range(earliest, len(found)) if found[n].shape == shape and len(found[n].nodes) < longest),
            len(found),
        )
        if at == len(found):
            found.append(Stage(shape))
        found[at].nodes.append(node)
        home[name], types[name] = at, type_of(node.outputs[0])
        for read in reads:
            if home.get(read, at) != at:
                found[home[read]].leaves[read] = types[read]
    for name in outputs:
        found[home[name]].leaves[name] = types[name]
    return found


def scratch(
    staged: Sequence[Stage], shapes: Mapping[str, tuple[int, ...]], inner: Sequence[Mapping[str, str]], alignment: int
) -> tuple[dict[str, int], int]:
    """Offsets in scratch memory of the values with their types that each stage leaves ``inner``, and the bytes of it."""
    storages: dict[str, Storage] = {}
    for number, (stage, left) in enumerate(zip(staged, inner, strict=True)):
        for name, type_ in left.items():
            storages[name] = Storage(math.prod(shapes[name]) * SIZES[type_], number, number)
        for value in (value for node in stage.nodes for value in node.inputs):
            if value is not None and value.name in storages:
                storages[value.name].last = number
    total = assign_offsets(list(storages.values()), alignment)
    return {name: storage.offset for name, storage in storages.items()}, total


def text(
    stage: Stage,
    literals: Mapping[str, float],
    letter: str = "x",
    first: int = 0,
    given: Mapping[str, str] | None = None,
) -> Text:
    """The statements of a stage. Its operands are called ``letter`` and a number from ``first`` on; ``literals`` are constants of one
    element, ``given`` variables that hold values already."""
    known = dict(given or {})
    read: dict[str, str] = {}
    lines: list[str] = []
    for number, node in enumerate(stage.nodes):
        values, types = [], []
        for value in node.inputs[:1] if node.op_type == "CastLike" else node.inputs:
            assert value is not None
            type_ = type_of(value)
            if value.name in literals:
                known[value.name] = literal(literals[value.name], type_)
            elif value.name not in known:
                known[value.name] = f"{letter}{first + len(read)}"
                read[value.name] = type_
            values.append(known[value.name])
            types.append(type_)
        if node.op_type == "Clip":
            values += [""] * (3 - len(values))
        attributes = with_defaults(node.op_type, node.since_version, node.attributes)
        lines += statements(f"t{number}", node.op_type, values, types, type_of(node.outputs[0]), attributes)
        known[made(node)] = f"t{number}"
    return Text(read, lines, {name: known[name] for name in stage.leaves})


def made(node: NodeView) -> str:
    """The name of what an element-wise node gives."""
    output = node.outputs[0]
    assert output is not None
    return output.name
