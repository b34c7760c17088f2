"""Types of what Slices give, where data decide where they begin and end: they keep the sizes of the axes they do not cut.

onnx's inference says nothing of these sizes. What sessions tell of a model is what it says; passes and plans know more.
"""

from __future__ import annotations

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Node

PLACES_FROM = 10
"""Version of Slice from which places are operands."""


def axes_of(node: Node) -> list[int] | None:
    """The axes that a Slice cuts; None where that is not known, or it has them as attributes."""
    if node.op_type != "Slice" or node.domain or node.since_version < PLACES_FROM:
        return None
    source, start, axes = node.inputs[0], node.inputs[1], node.inputs[3] if len(node.inputs) > 3 else None
    if source is None or source.shape is None or start is None:
        return None
    rank = len(source.shape)
    if axes is not None:
        found = None if axes.constant is None else axes.constant.reshape(-1).tolist()
    else:
        known = isinstance(start.type, TensorType) and start.type.static_shape
        found = list(range(known[0])) if known else None
    if found is None or not all(-rank <= axis < rank for axis in found):
        return None
    return [axis % rank for axis in found]


def cut_type(node: Node) -> TensorType | None:
    """What a Slice gives, as far as it follows from its axes; None where nothing does."""
    source, axes = node.inputs[0], axes_of(node)
    if axes is None or source is None or not isinstance(source.type, TensorType) or source.type.shape is None:
        return None
    sizes = (n if d not in axes and isinstance(n, int) else None for d, n in enumerate(source.type.shape))
    return TensorType(source.type.element, tuple(sizes))
