"""A provider that takes every node offered to it and fails when one of them runs: what the subject did not take ends here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxplug.contract import (
    CONTRACT_VERSION,
    Claim,
    CompiledRegion,
    ExecutionProvider,
    Fail,
    GraphView,
    KernelLookup,
    NoOptions,
    ProviderSpec,
    Region,
    RunContext,
    SessionContext,
)
from onnxplug.plugins import registry

NAME = "TripwireExecutionProvider"


class _Wire(CompiledRegion):
    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        raise Fail(f"tripwire: {self._label} reached the provider behind the one under test")


class Tripwire(ExecutionProvider):
    """Claims each node as a region of its own; control flow stays with the core, which offers its bodies."""

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim]:
        for node in graph.nodes:
            if not node.subgraphs:
                yield Claim([node], fused=f"tripwire_{node.op_type}")

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [_Wire(", ".join(f"{n.op_type} '{n.name}'" for n in region.graph.nodes)) for region in regions]


def _create(options: NoOptions, context: SessionContext) -> ExecutionProvider:
    return Tripwire()


def lay() -> None:
    """Register the tripwire in this process; again is harmless."""
    registry.register_provider(ProviderSpec(NAME, CONTRACT_VERSION, _create, vendor="onnxplug testkit"), replace=True)
