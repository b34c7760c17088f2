"""Which nodes make regions around convolutions: two-dimensional Conv with constant weights, and what follows on the same channels-last
tensors."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract import GraphView, NodeView, ValueView, convex_groups
from onnxplug_kernel_text.nodes.chains import element, fusable

FUSED = "convolution"

_ELEMENTS = frozenset({"float", "float16", "bfloat16"})
_RANK = 4
POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})


def conv_groups(graph: GraphView, taken: Callable[[NodeView], bool]) -> list[list[NodeView]]:
    """Groups of such nodes that ``taken`` does not name, each with at least one convolution."""
    groups = convex_groups(graph, lambda node: not taken(node) and takes(node))
    return [group for group in groups if any(node.op_type == "Conv" for node in group)]


def takes(node: NodeView) -> bool:
    """Whether a node may be part of a region."""
    if node.domain or not all(_laid_out(value) for value in node.outputs if value is not None):
        return False
    if node.op_type == "Conv":
        return _laid_out(node.inputs[0]) and all(v is None or _weight(v) for v in node.inputs[1:])
    if node.op_type in POOLS:
        whole = len([v for v in node.outputs if v is not None]) == 1
        return whole and element(node.inputs[0]) in _ELEMENTS and _laid_out(node.inputs[0])
    if _clips(node):
        return _laid_out(node.inputs[0])
    return fusable(node) and all(v is not None and (_laid_out(v) or _weight(v, rank=_RANK)) for v in node.inputs)


def _clips(node: NodeView) -> bool:
    """A Clip whose bounds are constants."""
    bounds = node.inputs[1:]
    return node.op_type == "Clip" and all(
        v is not None and v.constant is not None and v.constant.size == 1 for v in bounds
    )


def _laid_out(value: ValueView | None) -> bool:
    """A tensor of four dimensions that is no constant; of floats, so that regions end where types change."""
    return (
        value is not None
        and value.constant is None
        and element(value) in _ELEMENTS
        and value.shape is not None
        and len(value.shape) == _RANK
    )


def _weight(value: ValueView, rank: int | None = None) -> bool:
    return value.constant is not None and element(value) in _ELEMENTS and (rank is None or value.constant.ndim <= rank)
