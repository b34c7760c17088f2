"""The provider of one session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Decline,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelLookup,
    KernelRegistry,
    Region,
    SessionContext,
)
from onnxplug_ep_onnxruntime.capability import Capability
from onnxplug_ep_onnxruntime.catalogue import Bridged
from onnxplug_ep_onnxruntime.errors import translated
from onnxplug_ep_onnxruntime.options import BridgeOptions
from onnxplug_ep_onnxruntime.region import SessionRegion
from onnxplug_ep_onnxruntime.registry import registry
from onnxplug_ep_onnxruntime.sessions import Maker


class BridgeProvider(ExecutionProvider):
    """One of onnxruntime's providers. Regions are sessions of onnxruntime's that read and write host memory."""

    def __init__(self, bridged: Bridged, options: BridgeOptions, context: SessionContext) -> None:
        self.concurrent_run = bridged.concurrent
        self._name = bridged.name
        self._maker = Maker(bridged, options, context)
        self._capability = Capability(self._maker, bridged.short)
        self._registry = registry(self._maker.exact) if self._maker.is_cpu else None

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        return self._capability.answers(graph, kernels)

    def get_kernel_registry(self) -> KernelRegistry | None:
        return self._registry

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        try:
            return [self._compiled(region) for region in regions]
        finally:
            self._capability.forget()

    def close(self) -> None:
        self._capability.forget()

    def _compiled(self, region: Region) -> CompiledRegion:
        try:
            session, packed = self._capability.session(region.graph)
        except Exception as error:
            raise translated(error, self._name) from error
        return SessionRegion(region, session, self._maker.module, self._name, packed)
