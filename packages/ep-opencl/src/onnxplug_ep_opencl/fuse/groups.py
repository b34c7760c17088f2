"""Which nodes are fused: groups of element-wise operators, each with at most one product before it whose result only the group reads."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract import GraphView, NodeView, convex_groups
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.window import is_product
from onnxplug_kernel_text.nodes.chains import fusable, quantizes

FUSED = "opencl"
HEADS = frozenset({"Conv", "MatMul", "Gemm"})


def groups(graph: GraphView, takes: Callable[[NodeView], bool], target: Target) -> list[list[NodeView]]:
    """Groups of at least two nodes, in the graph's order, of those that the provider ``takes``."""

    def leads(node: NodeView) -> bool:
        made = node.op_type in HEADS and not node.domain and takes(node)
        return made and (node.op_type != "Conv" or is_product(node, target))

    heads = {id(node): node for node in graph.nodes if leads(node)}
    leaving = {value.name for value in graph.outputs}
    made: list[list[NodeView]] = []
    for group in convex_groups(graph, lambda node: (fusable(node) or quantizes(node)) and takes(node)):
        inside = {id(node) for node in group}
        head = next((h for node in group for h in _before(node, heads, inside, leaving)), None)
        if head is not None:
            # All that the head reads comes before it, and all that reads it is in the group: the group stays convex.
            del heads[id(head)]
            made.append([head, *group])
        elif len(group) > 1:
            made.append(group)
    return made


def _before(node: NodeView, heads: dict[int, NodeView], inside: set[int], leaving: set[str]) -> list[NodeView]:
    """Heads whose result the node reads and nothing outside the group does."""
    found = []
    for value in node.inputs:
        head = None if value is None or value.producer is None else heads.get(id(value.producer))
        if head is None or value is None or value.name in leaving:
            continue
        result = node.outputs[0]
        same = (
            result is not None
            and value.shape is not None
            and value.shape == result.shape
            and value.dtype == result.dtype
        )
        if same and all(id(consumer) in inside for consumer in value.consumers):
            found.append(head)
    return found
