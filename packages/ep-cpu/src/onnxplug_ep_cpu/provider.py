"""The provider of one session: kernels and host memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onnxplug.contract import (
    Allocator,
    Claim,
    CompiledRegion,
    Decline,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelDef,
    KernelLookup,
    KernelRegistry,
    Region,
    SessionContext,
)
from onnxplug_ep_cpu.codegen.settings import Settings, unavailable
from onnxplug_ep_cpu.codegen.settings import settings as code_settings
from onnxplug_ep_cpu.device import cores
from onnxplug_ep_cpu.memory import HostAllocator
from onnxplug_ep_cpu.options import CPUOptions
from onnxplug_ep_cpu.registry import registry

if TYPE_CHECKING:
    from onnx.defs import OpSchema


class CPUProvider(ExecutionProvider):
    """Claims every node its registry has a kernel for; those that code is generated for as regions."""

    def __init__(self, threads: int, settings: Settings) -> None:
        self._threads, self._settings = threads, settings

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        if self._settings.codegen and unavailable() is None:
            from onnxplug_ep_cpu.codegen.capability import claims
            from onnxplug_ep_cpu.codegen.pool import begin

            for claim in claims(graph, kernels):
                if isinstance(claim, Claim):
                    begin()
                yield claim
        for node in graph.nodes:  # again those of regions, which may be refused
            if isinstance(kernels.kernel_for(node), KernelDef):
                yield Claim([node])

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        from onnxplug_ep_cpu.codegen.region import NativeRegion
        from onnxplug_ep_cpu.codegen.target import host_target
        from onnxplug_ep_cpu.codegen.tuning import growing

        target, settings = host_target(self._settings.target), self._settings
        filters = growing(regions, settings.winograd_memory)
        return [NativeRegion(region, target, self._threads, settings, filters) for region in regions]

    def get_kernel_registry(self) -> KernelRegistry:
        generates = self._settings.codegen and unavailable() is None
        return registry(None if self._threads >= cores() else self._threads, generates)

    def get_op_schemas(self) -> Sequence[OpSchema]:
        from onnxplug_ep_cpu.schemas import op_schemas

        return op_schemas()

    def create_allocators(self) -> Sequence[Allocator]:
        return [HostAllocator()]


def create_provider(options: CPUOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of a session; run hooks exist only where there is a thread limit to keep.

    A process seed restarts the numbers of random operators that have no seed of their own.
    """
    if context.seed is not None:
        from onnxplug_kernels.ops.random import set_seed

        set_seed(context.seed)
    return CPUProvider(context.threads, code_settings(context.config))
