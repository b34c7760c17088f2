"""What the provider claims: written-out attention, float products between quantized tensors and groups that it fuses, and nodes it has a
kernel for; but for shape computation, which stays on the host, and nodes whose weights the device has no room for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

from onnxplug.contract import Claim, Decline, GraphView, Inline, KernelDef, KernelLookup, NodeView, prefer_host
from onnxplug_ep_opencl.fuse.groups import groups
from onnxplug_ep_opencl.kernels.attention import one_type
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.registry import refusals
from onnxplug_ep_opencl.room import without_room
from onnxplug_kernel_text.nodes import pattern, qdq
from onnxplug_kernel_text.nodes.chains import element

_ON_DEVICE = frozenset({"Shape", "Size"})
"""Their results are host values, but what they ask about is not to be copied to the host for it."""

_WRITTEN_OUT = frozenset(
    {"AffineGrid", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "SwiGLU"}
)
"""Functions of ONNX that have no kernel, and whose operators have."""

_SQUEEZED = "AffineGrid of a batch that may be one: the operators that ONNX makes of it lose that dimension"


def capability(
    graph: GraphView, kernels: KernelLookup, target: Target, memory: int
) -> Iterator[Claim | Decline | Inline]:
    """A claim or a reason for each node of ``graph``. ``memory``: bytes that the session may take."""
    hosted = {id(node) for node in prefer_host(graph) if node.op_type not in _ON_DEVICE}
    refuse = _refusals()

    def refusal(node: NodeView) -> str | None:
        says = refuse.get((node.domain, node.op_type))
        return None if says is None else says(node)

    def runs(node: NodeView) -> bool:
        known = isinstance(kernels.kernel_for(node), KernelDef)
        return known and refusal(node) is None and id(node) not in hosted and kernels.owner(node) is None

    left = without_room(graph.nodes, runs, memory)

    def takes(node: NodeView) -> bool:
        return id(node) not in left and runs(node)

    attentions = [p.nodes for p in pattern.patterns(graph, lambda node: not takes(node))]
    for nodes in attentions:
        yield Claim(nodes, fused=pattern.FUSED)
    inside = {id(node) for nodes in attentions for node in nodes}
    products = [p.nodes for p in qdq.patterns(graph, lambda node: id(node) in inside or not takes(node))]
    for nodes in products:
        yield Claim(nodes, fused=qdq.FUSED)
    inside |= {id(node) for nodes in products for node in nodes}
    for kind, group in groups(graph, lambda node: id(node) not in inside and takes(node), target):
        yield Claim(group, fused=kind)
    for node in graph.nodes:  # again those of groups, which may be refused
        found = kernels.kernel_for(node)
        reason = refusal(node) if isinstance(found, KernelDef) else found.reason
        if id(node) in hosted and isinstance(found, KernelDef):
            yield Decline(node, "shape computation stays on the host")
        elif id(node) in left:
            yield Decline(node, left[id(node)])
        elif reason is None:
            yield Claim([node])
        elif not isinstance(found, KernelDef) and _written_out(node):
            yield Decline(node, _SQUEEZED) if _squeezed(node) else Inline(node)
        else:
            yield Decline(node, reason)


def _written_out(node: NodeView) -> bool:
    """Whether the operators that a function is made of have kernels; in 16 bits these would round at every step."""
    whole = node.op_type in _WRITTEN_OUT or (node.op_type == "Attention" and one_type(node))
    return whole and not node.domain and element(node.inputs[0]) in ("float", "double")


def _squeezed(node: NodeView) -> bool:
    """Whether a node is an AffineGrid over two dimensions of which ONNX's function squeezes the batch too."""
    if node.op_type != "AffineGrid":
        return False
    (batch, *_), (extents, *_) = ((None,) if v is None or not v.shape else v.shape for v in node.inputs[:2])
    return extents != 5 and (not isinstance(batch, int) or batch == 1)


@functools.cache
def _refusals() -> Mapping[tuple[str, str], Callable[[NodeView], str | None]]:
    return dict(refusals())
