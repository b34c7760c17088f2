"""Which nodes that take strings at regular steps have generated code (``codegen.strided``): those whose constants say all the steps. The
catalogue's kernels serve the others, which refuse what is not allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.objects import MOST_RANK
from onnxplug_ep_cpu.codegen.strided import Split, Strided

Numbers = tuple[tuple[int, ...], ...]
_MANY = 1 << 31
"""More than any axis of strings has, and so few that a product with a number of strings fits in 64 bits."""


def described(node: NodeView) -> Strided | Split | None:
    """The function for a node whose first operand is strings; None where there is none."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None or len(shape) > MOST_RANK:
        return None
    if node.op_type == "Split":
        return _split(node, len(shape))
    numbers = LAYOUTS[node.op_type](node, len(shape))
    return None if numbers is None else Strided(node.op_type, len(shape), numbers, len(node.inputs))


def _ints(node: NodeView, number: int, otherwise: Sequence[int] = ()) -> tuple[int, ...] | None:
    """The integers of a constant operand, ``otherwise`` where it is omitted; None of one that a run gives."""
    value = node.inputs[number] if number < len(node.inputs) else None
    if value is None:
        return tuple(otherwise)
    constant = value.constant
    return None if constant is None or constant.ndim != 1 else tuple(constant.tolist())


def _slices(node: NodeView, rank: int) -> Numbers | None:
    starts, ends = (_ints(node, number, node.attributes.get(name, ())) for number, name in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        return None
    axes = _ints(node, 3, node.attributes.get("axes", range(len(starts))))
    steps = _ints(node, 4, (1,) * len(starts))
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    places = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(places)) < len(places) or not set(places) <= set(range(rank)):
        return None
    if not all(0 < step < _MANY for step in steps):
        return None
    numbers = [(0, _MANY, 1)] * rank
    for at, bounds in zip(places, zip(starts, ends, steps, strict=True), strict=True):
        numbers[at] = bounds
    return tuple(numbers)


def _repeats(node: NodeView, rank: int) -> Numbers | None:
    repeats = _ints(node, 1) if node.since_version > 1 else None
    fits = repeats is not None and len(repeats) == rank and all(0 <= times < _MANY for times in repeats)
    return (repeats,) if repeats is not None and fits else None


def _extents(node: NodeView, rank: int) -> Numbers | None:
    shape = _ints(node, 1)
    fits = shape is not None and len(shape) <= MOST_RANK and all(0 <= size < _MANY for size in shape)
    return (shape,) if shape is not None and fits else None


def _order(node: NodeView, rank: int) -> Numbers | None:
    order = tuple(node.attributes.get("perm", range(rank)[::-1]))
    return (order,) if sorted(order) == list(range(rank)) else None


LAYOUTS: Mapping[str, Callable[[NodeView, int], Numbers | None]] = {
    "Expand": _extents,
    "Slice": _slices,
    "Tile": _repeats,
    "Transpose": _order,
}
"""Operator -> the numbers of a node with strings of so many dimensions, for ``Strided``."""


def _split(node: NodeView, rank: int) -> Split | None:
    axis, count = int(node.attributes.get("axis", 0)), len(node.outputs)
    lengths = _ints(node, 1, node.attributes.get("split", ()))
    parts = node.attributes.get("num_outputs")
    if lengths is None or not -rank <= axis < rank or parts not in (None, count):
        return None
    if lengths and (len(lengths) != count or not all(0 <= length < _MANY for length in lengths)):
        return None
    return Split(axis % rank, rank, lengths, count, parts is not None, len(node.inputs))
