"""What the provider claims: groups that it fuses, and nodes it has a kernel for; but for shape computation, which stays on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, KernelLookup, NodeView, prefer_host
from onnxplug_ep_opencl.fuse.groups import FUSED, groups
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.registry import refusals

_ON_DEVICE = frozenset({"Shape", "Size"})
"""Their results are host values, but what they ask about is not to be copied to the host for it."""


def capability(graph: GraphView, kernels: KernelLookup, target: Target) -> Iterator[Claim | Decline]:
    """A claim or a reason for each node of ``graph``."""
    hosted = {id(node) for node in prefer_host(graph) if node.op_type not in _ON_DEVICE}
    refuse = _refusals()

    def takes(node: NodeView) -> bool:
        refused = refuse[node.op_type](node) if node.op_type in refuse else None
        known = isinstance(kernels.kernel_for(node), KernelDef)
        return known and refused is None and id(node) not in hosted and kernels.owner(node) is None

    for group in groups(graph, takes, target):
        yield Claim(group, fused=FUSED)
    for node in graph.nodes:  # again those of groups, which may be refused
        found = kernels.kernel_for(node)
        if not isinstance(found, KernelDef):
            yield Decline(node, found.reason)
        elif id(node) in hosted:
            yield Decline(node, "shape computation stays on the host")
        elif (reason := refuse[node.op_type](node) if node.op_type in refuse else None) is not None:
            yield Decline(node, reason)
        else:
            yield Claim([node])


@functools.cache
def _refusals() -> Mapping[str, Callable[[NodeView], str | None]]:
    return dict(refusals())
