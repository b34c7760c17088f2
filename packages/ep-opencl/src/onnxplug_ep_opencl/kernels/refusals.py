"""Reasons to decline a node of an operator in ``table`` beyond what its versions and types say; None where the node is taken."""

from __future__ import annotations

from typing import Any

from onnxplug.contract import NodeView

LARGEST_ARITY = 16
"""Operands of one kernel: devices need not take more than 1 kB of arguments."""


def many_operands(node: NodeView) -> str | None:
    """More operands than a kernel takes."""
    if len(node.inputs) > LARGEST_ARITY:
        return f"{len(node.inputs)} operands; a kernel takes {LARGEST_ARITY}"
    return None


def other_rank(node: NodeView) -> str | None:
    """Images of other than two dimensions."""
    value = node.inputs[0]
    if value is None or value.shape is None or len(value.shape) != 4:
        return "only tensors of four dimensions"
    return None


def trains(node: NodeView) -> str | None:
    """Modes of training of BatchNormalization and Dropout."""
    if node.op_type == "BatchNormalization" and (node.attributes.get("training_mode", 0) or len(_made(node)) > 1):
        return "batch statistics are for training"
    if node.op_type == "BatchNormalization" and node.since_version < 9 and not node.attributes.get("spatial", 1):
        return "statistics of single activations (spatial=0)"
    if node.op_type == "Dropout" and node.since_version >= 12 and len(node.inputs) > 2 and node.inputs[2] is not None:
        training = node.inputs[2].constant
        if training is None or training.any():
            return "dropping at random is for training"
    if node.since_version < 7 and not node.attributes.get("is_test", 0):
        return "training mode (is_test=0)"
    return None


def _made(node: NodeView) -> list[Any]:
    return [value for value in node.outputs if value is not None]


def other_scale(node: NodeView) -> str | None:
    """Scales and biases of LayerNormalization and the like that would have to be broadcast."""
    if node.attributes.get("stash_type", 1) != 1:
        return "statistics in float32 only (stash_type=1)"
    x, scale = node.inputs[0], node.inputs[1]
    if x is None or scale is None or x.shape is None or scale.shape is None:
        return "the ranks of input and scale must be known"
    axis = node.attributes.get("axis", -1) % max(len(x.shape), 1)
    for value in node.inputs[1:]:
        if value is not None and not _spans(tuple(value.shape or ()), tuple(x.shape[axis:])):
            return "scale and bias must have the shape that is normalised"
    return None


def _spans(own: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Whether an operand has the shape of what it scales. Where it has more than 1 along a dimension that is not known, that dimension
    can only be the same; two dimensions that are not known may differ."""
    return len(own) == len(whole) and all(
        (o is not None and o == w) or (isinstance(o, int) and o > 1 and not isinstance(w, int))
        for o, w in zip(own, whole, strict=True)
    )


def other_mode(node: NodeView) -> str | None:
    """Modes of Pad that have no kernel."""
    mode = node.attributes.get("mode", "constant")
    return None if mode in ("constant", "edge", "reflect", "wrap") else f"mode {mode}"


def other_power(node: NodeView) -> str | None:
    """GlobalLpPool of a norm that no reduction is."""
    power = node.attributes.get("p", 2)
    return None if power in (1, 2) else f"the norm of p={power}"
