"""What onnxruntime's CPU provider computes otherwise than ONNX's specification says, or not at all: such nodes are left to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxplug.contract import NodeView

Rule = Callable[[NodeView], str | None]


def deviation(node: NodeView) -> str | None:
    """What onnxruntime makes of a node that ONNX does not, None where they agree."""
    rule = _RULES.get((node.domain, node.op_type))
    return None if rule is None else rule(node)


def _without_zero_points(node: NodeView) -> str | None:
    """onnxruntime 1.31 looks for an operand that is not there, by an assertion."""
    given = len(node.inputs) > 4 and all(value is not None for value in node.inputs)
    return None if given else "onnxruntime ends the process where a zero point is left out"


_RULES: Mapping[tuple[str, str], Rule] = {
    ("com.microsoft", "QLinearLeakyRelu"): _without_zero_points,
    ("com.microsoft", "QLinearSigmoid"): _without_zero_points,
}
