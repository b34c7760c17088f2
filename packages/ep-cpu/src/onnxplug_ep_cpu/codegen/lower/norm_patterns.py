"""Normalisations that exporters write out: x or x - mean(x), divided by the root of the mean of its squares plus epsilon."""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.lines import source
from onnxplug_ep_cpu.codegen.lower.norm import normalized
from onnxplug_ep_cpu.codegen.lower.reduce import reduced_axes
from onnxplug_ep_cpu.codegen.lower.support import number, rank, typed


@record(frozen=True, slots=True)
class _Norm:
    """What the nodes compute: ``x`` normalised along ``axes``."""

    x: ValueView
    axes: list[int]
    epsilon: float
    centred: bool
    nodes: tuple[NodeView, ...]


@fuse.pattern("Div")
@fuse.pattern("Mul")
def normalization(node: NodeView, nodes: fuse.Nodes) -> fuse.Group | None:
    """The node that divides by the root, or multiplies by its reciprocal, with what leads to it."""
    found = _by_root(node, nodes)
    if found is None or typed(found.x) is not None:
        return None
    (y,) = node.outputs
    norm = found

    def lower(b: Lowering) -> bool:
        assert y is not None
        shape = b.shape(y)
        if shape != b.shape(norm.x):
            return False
        b.pend(y, normalized(b, shape, norm.axes, source(b, norm.x), (), norm.epsilon, norm.centred))
        return True

    return fuse.Group((*norm.nodes, node), lower)


def _by_root(node: NodeView, nodes: fuse.Nodes) -> _Norm | None:
    """The divisor is Sqrt(...), or the factor its Reciprocal or 1 / Sqrt(...)."""
    if node.op_type == "Div":
        return _rooted(node.inputs[0], nodes.maker(node.inputs[1], "Sqrt"), (), nodes)
    for top, factor in (node.inputs, tuple(node.inputs)[::-1]):
        inverse = nodes.maker(factor, "Reciprocal", "Div")
        if inverse is None or (inverse.op_type == "Div" and number(inverse.inputs[0]) != 1.0):
            continue
        found = _rooted(top, nodes.maker(inverse.inputs[-1], "Sqrt"), (inverse,), nodes)
        if found is not None:
            return found
    return None


def _rooted(
    top: ValueView | None, root: NodeView | None, last: tuple[NodeView, ...], nodes: fuse.Nodes
) -> _Norm | None:
    """``root`` of mean(top * top) + epsilon."""
    shifted = None if root is None else nodes.maker(root.inputs[0], "Add")
    if root is None or shifted is None or top is None:
        return None
    for square, added in (shifted.inputs, tuple(shifted.inputs)[::-1]):
        epsilon, mean = number(added), nodes.maker(square, "ReduceMean")
        axes = None if mean is None else _kept_axes(mean)
        if mean is None or axes is None or epsilon is None:
            continue
        power = nodes.maker(mean.inputs[0], "Pow", "Mul")
        if power is None or not _squares(power, top):
            continue
        rest = (power, mean, shifted, root, *last)
        return _centred(top, axes, epsilon, rest, nodes) or _Norm(top, axes, epsilon, False, rest)
    return None


def _centred(
    top: ValueView, axes: list[int], epsilon: float, rest: tuple[NodeView, ...], nodes: fuse.Nodes
) -> _Norm | None:
    """``top`` is x - mean(x) over the same axes, read by the square and the quotient only."""
    found = fuse.readers_of(top)
    readers = {id(reader) for reader in found}
    difference = nodes.maker(top, "Sub", readers=len(found))
    if difference is None or len(readers) != 2:
        return None
    x, middle = difference.inputs
    mean = nodes.maker(middle, "ReduceMean")
    if mean is None or x is None or mean.inputs[0] is not x or _kept_axes(mean) != axes:
        return None
    return _Norm(x, axes, epsilon, True, (mean, difference, *rest))


def _kept_axes(node: NodeView) -> list[int] | None:
    """The axes of a reduction that keeps them."""
    dims = rank(node.inputs[0])
    return reduced_axes(node, dims) if dims > 0 and node.attributes.get("keepdims", 1) else None


def _squares(node: NodeView, value: ValueView) -> bool:
    first, second = node.inputs
    return first is value and (second is value if node.op_type == "Mul" else number(second) == 2.0)
