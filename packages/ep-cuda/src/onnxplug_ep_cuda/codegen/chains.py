"""Which nodes make chains."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract import GraphView, NodeView, convex_groups
from onnxplug_kernel_text.nodes.chains import fusable, quantizes

FUSED = "elementwise"


def chains(graph: GraphView, taken: Callable[[NodeView], bool]) -> list[list[NodeView]]:
    """Groups of at least two nodes whose kernels may be one, of those that ``taken`` does not name."""
    groups = convex_groups(graph, lambda node: not taken(node) and (fusable(node) or quantizes(node)))
    return [group for group in groups if len(group) > 1]
