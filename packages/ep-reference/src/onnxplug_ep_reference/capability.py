"""What the provider claims: every node its registry has a kernel for, but those onnx.reference is known to compute wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, KernelLookup
from onnxplug_ep_reference.kernels.limits import refusal


def capability(graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
    """A claim or a reason for each node of ``graph``."""
    for node in graph.nodes:
        found = kernels.kernel_for(node)
        reason = refusal(node) or (None if isinstance(found, KernelDef) else found.reason)
        yield Claim([node]) if reason is None else Decline(node, reason)
