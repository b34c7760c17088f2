"""Where onnxruntime's CPU provider computes something else than ONNX's specification says: such nodes are left to others."""

from __future__ import annotations

from onnxplug.contract import NodeView


def deviation(node: NodeView) -> str | None:
    """What onnxruntime makes of a node that ONNX does not, None where they agree."""
    return None
