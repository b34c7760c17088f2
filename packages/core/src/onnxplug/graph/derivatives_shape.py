"""Derivatives of operators that move elements, and of reductions."""

from __future__ import annotations

from onnxplug.graph.calculus import Adjoints, Underivable, Writer, given, numbers, operand, result, rule
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(t: Writer, node: Node, dy: Value) -> Adjoints:
    """In the input's shape."""
    return [t.reshape(dy, given(node))]


@rule("Expand")
def expand(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Summed over the copies."""
    return [t.collect(dy, given(node))]


@rule("Transpose")
def transpose(t: Writer, node: Node, dy: Value) -> Adjoints:
    """By the inverse permutation."""
    perm = node.attributes.get("perm") or list(reversed(range(t.rank(dy))))
    return [t("Transpose", dy, perm=[perm.index(i) for i in range(len(perm))])]


@rule("Concat")
def concat(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Split where inputs were joined."""
    axis = node.attributes.get("axis", 1)
    sizes = [t("Gather", t.shape(v), t.ints(axis)) for v in node.inputs if v is not None]
    split = t("Concat", *sizes, axis=0)
    return t.many("Split", [dy, split], len(node.inputs), axis=axis)


@rule(
    "Slice",
    "Gather",
    "GatherElements",
    "GatherND",
    "Tile",
    "DepthToSpace",
    "SpaceToDepth",
    "ReverseSequence",
    "Compress",
)
@rule("Split", many=True)
def select(t: Writer, node: Node, outputs: Value | list[Value | None]) -> Adjoints:
    """The operator itself tells which elements went where, when it is given their numbers; adjoints are added up there."""
    adjoints = outputs if isinstance(outputs, list) else [outputs]
    x = given(node)
    size = t("Size", x)
    places = t("Reshape", t("Range", t.scalar(0), size, t.scalar(1)), t.shape(x), allowzero=1)
    copies = t.again(node, [places, *node.inputs[1:]])
    pairs = [(p, g) for p, g in zip(copies, adjoints, strict=True) if g is not None]
    flat = [[t("Reshape", v, t.ints(-1)) for v in pair] for pair in pairs]
    index, update = (side[0] if len(side) == 1 else t("Concat", *side, axis=0) for side in zip(*flat, strict=True))
    zeros = t("Expand", t.number(0, update), t("Reshape", size, t.ints(1)))
    return [t.reshape(t("ScatterElements", zeros, index, update, axis=0, reduction="add"), x)]


@rule("ScatterElements")
def scatter(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Updates get what lies at their places; what they replaced gets nothing."""
    kind, axis, index = node.attributes.get("reduction", "none"), node.attributes.get("axis", 0), given(node, 1)
    if kind not in ("none", "add"):
        raise Underivable(f"its reduction is {kind}")
    taken = t("GatherElements", dy, index, axis=axis)
    kept = dy if kind == "add" else t("ScatterElements", dy, index, t.full(given(node, 2), 0), axis=axis)
    return [kept, None, taken]


@rule("Trilu")
def trilu(t: Writer, node: Node, dy: Value) -> Adjoints:
    """The same triangle."""
    return [t("Trilu", dy, operand(node, 1), upper=node.attributes.get("upper", 1))]


@rule("Pad")
def pad(t: Writer, node: Node, dy: Value) -> Adjoints:
    """The part that was not added."""
    pads, x = numbers(node, "pads", 1), given(node)
    if node.attributes.get("mode", "constant") != "constant" or operand(node, 3) is not None or pads is None:
        raise Underivable("only padding of all axes with a constant has a rule")
    if operand(node, 2) in t.active:
        raise Underivable("there is no rule for the derivative by the value that pads")
    rank = len(pads) // 2
    starts = t.ints(*(max(p, 0) for p in pads[:rank]))
    inner = t(
        "Slice",
        dy,
        starts,
        t("Add", starts, t("Add", t.shape(x), t.ints(*(min(a, 0) + min(b, 0) for a, b in _pairs(pads))))),
    )
    return [t("Pad", inner, t.ints(*(max(-p, 0) for p in pads))) if min(pads, default=0) < 0 else inner]


def _pairs(pads: list[int]) -> list[tuple[int, int]]:
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


@rule("CumSum")
def cumsum(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Summed from the other end."""
    reverse, exclusive = 1 - node.attributes.get("reverse", 0), node.attributes.get("exclusive", 0)
    return [t("CumSum", dy, given(node, 1), reverse=reverse, exclusive=exclusive)]


@rule("ReduceSum")
def reduce_sum(t: Writer, node: Node, dy: Value) -> Adjoints:
    """The same for each element that was summed."""
    return [t.expand(_restored(t, node, dy), given(node))]


@rule("ReduceMean")
def reduce_mean(t: Writer, node: Node, dy: Value) -> Adjoints:
    """An equal share for each element."""
    x = given(node)
    return [t.expand(_restored(t, node, _shared(t, dy, x)), x)]


@rule("GlobalAveragePool")
def global_average_pool(t: Writer, node: Node, dy: Value) -> Adjoints:
    """An equal share for each element of a channel."""
    return [t.expand(_shared(t, dy, given(node)), given(node))]


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Elements that tie share alike."""
    x, y = given(node), _restored(t, node, result(node))
    ties = t.cast(t("Equal", x, y), dy)
    share = t("Div", _restored(t, node, dy), t.collect(ties, y))
    return [t("Mul", share, ties)]


@rule("Softmax")
def softmax(t: Writer, node: Node, dy: Value) -> Adjoints:
    """y * (dy - sum(dy * y))."""
    y = result(node)
    total = t("ReduceSum", t("Mul", dy, y), _softmax_axes(t, node))
    return [t("Mul", y, t("Sub", dy, total))]


@rule("LogSoftmax")
def log_softmax(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy - exp(y) * sum(dy)."""
    total = t("ReduceSum", dy, _softmax_axes(t, node))
    return [t("Sub", dy, t("Mul", t("Exp", result(node)), total))]


def _softmax_axes(t: Writer, node: Node) -> Value:
    """Before version 13 all axes from ``axis`` on are one."""
    axis = node.attributes.get("axis", -1 if node.since_version >= 13 else 1)
    if node.since_version >= 13:
        return t.ints(axis)
    rank = t.rank(result(node))
    return t.ints(*range(axis % rank, rank))


def _restored(t: Writer, node: Node, value: Value) -> Value:
    """A reduction's result, or its adjoint, with the reduced axes put back in with size 1."""
    if node.attributes.get("keepdims", 1):
        return value
    if "axes" in node.attributes:
        return t("Unsqueeze", value, t.ints(*node.attributes["axes"]))
    axes = operand(node, 1)
    empty = axes is None or (axes.constant is not None and axes.constant.size == 0)
    if empty or axes is None:  # over all axes, or over none: the result broadcasts as it is
        return value
    return t("Unsqueeze", value, axes)


def _shared(t: Writer, dy: Value, x: Value) -> Value:
    """An adjoint divided by how many elements of x each element stands for."""
    return t("Div", t("Mul", dy, t.cast(t("Size", dy), dy)), t.cast(t("Size", x), dy))
