"""What the provider claims: convolutions with what follows them, written-out attention, float products between quantized tensors or by
weights of few bits, and chains of element-wise operators as regions, and every node its registry has a kernel for, but those that only
compute shapes."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, KernelLookup, NodeView, prefer_host
from onnxplug_ep_cuda.codegen.chains import FUSED, chains
from onnxplug_ep_cuda.conv import groups
from onnxplug_ep_cuda.refusals import refusal
from onnxplug_ep_cuda.registry import HOST_RESULTS
from onnxplug_kernel_text.nodes import pattern, qdq, weights

ON_HOST = "computes a shape: a few numbers that the host needs are not sent to the GPU and back"


def capability(graph: GraphView, kernels: KernelLookup, *, cudnn: bool) -> Iterator[Claim | Decline]:
    """A claim or a reason for each node of ``graph``. ``cudnn``: convolutions are regions of cuDNN's."""
    shapes = {id(node) for node in prefer_host(graph) if node.op_type not in HOST_RESULTS}

    def elsewhere(node: NodeView) -> bool:
        return id(node) in shapes or kernels.owner(node) is not None

    convolutions = groups.conv_groups(graph, elsewhere) if cudnn else []
    for group in convolutions:
        yield Claim(group, fused=groups.FUSED)
    inside = {id(node) for group in convolutions for node in group}
    attentions = [p.nodes for p in pattern.patterns(graph, lambda node: id(node) in inside or elsewhere(node))]
    for nodes in attentions:
        yield Claim(nodes, fused=pattern.FUSED)
    inside |= {id(node) for nodes in attentions for node in nodes}
    quantized = [p.nodes for p in qdq.patterns(graph, lambda node: id(node) in inside or elsewhere(node))]
    for nodes in quantized:
        yield Claim(nodes, fused=qdq.FUSED)
    inside |= {id(node) for nodes in quantized for node in nodes}
    packed = [p.nodes for p in weights.patterns(graph, lambda node: id(node) in inside or elsewhere(node))]
    for nodes in packed:
        yield Claim(nodes, fused=weights.FUSED)
    inside |= {id(node) for nodes in packed for node in nodes}
    for group in chains(graph, lambda node: id(node) in inside or elsewhere(node)):
        yield Claim(group, fused=FUSED)
    for node in graph.nodes:  # again those of regions, which may be refused
        kernel = kernels.kernel_for(node)
        if not isinstance(kernel, KernelDef):
            yield Decline(node, kernel.reason)
        elif id(node) in shapes:
            yield Decline(node, ON_HOST)
        elif (reason := refusal(node)) is not None:
            yield Decline(node, reason)
        else:
            yield Claim([node])
