"""Another provider to share sessions with: the reference on a simulated device of its own, taking nodes whose names end in ``_b``."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.contract import CONTRACT_VERSION, Claim, Decline, GraphView, KernelLookup, ProviderSpec, SessionContext
from onnxplug.plugins import registry
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider

NAME = "NeighbourExecutionProvider"


class Neighbour(ReferenceProvider):
    """Sits on simulated device 1."""

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        for answer in super().get_capability(graph, kernels):
            if isinstance(answer, Claim) and all(node.name.endswith("_b") for node in answer.nodes):
                yield answer


def _create(options: ReferenceOptions, context: SessionContext) -> Neighbour:
    return Neighbour(ReferenceOptions(device_id=1), context)


def settle_in() -> str:
    """Register the neighbour in this process and return its name; again is harmless. Its kind of device is its own, so that nobody
    who wants memory of simulated device 0 is sent to it."""
    spec = ProviderSpec(
        NAME, CONTRACT_VERSION, _create, device_kind="neighbour", vendor="onnxplug testkit", options=ReferenceOptions
    )
    registry.register_provider(spec, replace=True)
    return NAME
