"""What the provider claims: the largest groups of nodes that OpenVINO computes as ONNX says. The others get a reason."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, KernelLookup, NodeView, TensorType, convex_groups
from onnxplug_ep_openvino.deviations import deviation


def capability(graph: GraphView, kernels: KernelLookup, exact: bool) -> Iterator[Claim | Decline]:
    """Claims of groups, and a reason for each node that is in none."""
    refused = {node.name: why for node in graph.nodes if (why := _refusal(node, kernels, exact)) is not None}

    def free(node: NodeView) -> bool:
        return node.name not in refused and kernels.owner(node) is None

    for group in convex_groups(graph, free):
        yield Claim(group, fused="openvino")
    for node in graph.nodes:
        if node.name in refused:
            yield Decline(node, refused[node.name])


def _refusal(node: NodeView, kernels: KernelLookup, exact: bool) -> str | None:
    if (reason := deviation(node, exact)) is not None:
        return reason
    found = kernels.kernel_for(node)
    if not isinstance(found, KernelDef):
        return found.reason
    for value in (*node.inputs, *node.outputs):
        if value is not None and (not isinstance(value.type, TensorType) or value.shape is None):
            return f"the rank of {value.name} is not known"
        if value is not None and value.shape is not None and 0 in value.shape:
            return f"{value.name} has no elements"
    return None
