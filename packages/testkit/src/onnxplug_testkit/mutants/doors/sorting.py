"""Takes nodes by the hashes of their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from onnxplug.contract import Claim, Decline, GraphView, Inline, KernelLookup, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.mutants.doors.spec import SPEC


def _create(options: ReferenceOptions, context: SessionContext) -> Any:
    from onnxplug_ep_reference.provider import ReferenceProvider

    class Sorting(ReferenceProvider):
        def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
            names = {node.name for node in graph.nodes}
            first = next(iter(names)) if len(names) > 1 else None
            for answer in super().get_capability(graph, kernels):
                if isinstance(answer, Claim) and answer.nodes[0].name == first:
                    yield Decline(answer.nodes[0], "there is no more room")
                else:
                    yield answer

    return Sorting(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, create=_create)
