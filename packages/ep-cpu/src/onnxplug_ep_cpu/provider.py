"""The provider of one session: native regions, kernels and host memory."""

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
    NodeView,
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

    from onnxplug.contract.logs import Logger
    from onnxplug_ep_cpu.codegen.claimed import Claimed


class CPUProvider(ExecutionProvider):
    """Claims the nodes for which code can be generated, as regions, and every node that its registry has a kernel for."""

    def __init__(self, threads: int, settings: Settings, log: Logger) -> None:
        self._threads, self._settings, self._log = threads, settings, log

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        if not self._settings.codegen or unavailable() is not None:
            yield from (Claim([node]) for node in _with_kernels(graph, kernels))
            return
        regions, single = self._places(graph, kernels)
        nodes = graph.nodes
        yield from (Claim([nodes[at] for at in places], "native") for places in regions)
        # Those of regions too: one that cannot be compiled is run by kernels.
        yield from (Claim([nodes[at]]) for at in single)

    def _places(self, graph: GraphView, kernels: KernelLookup) -> Claimed:
        """Positions of the nodes of each region, and of those that have a kernel."""
        from onnxplug_ep_cpu.codegen.claimed import ClaimShelf

        alone = all(kernels.owner(node) is None for node in graph.nodes)
        shelf = ClaimShelf.of(graph, self._threads, self._settings) if alone else None
        found = None if shelf is None else shelf.get()
        if found is None or found[0]:  # begun before that is known: finding out takes as long as compiling the driver
            from onnxplug_ep_cpu.codegen.pool import begin

            begin(loops=graph.parent is not None)
        if found is None:
            from onnxplug_ep_cpu.codegen.capability import claims

            at = {id(node): number for number, node in enumerate(graph.nodes)}
            regions = [[at[id(node)] for node in claim.nodes] for claim in claims(graph, kernels)]
            found = regions, [at[id(node)] for node in _with_kernels(graph, kernels)]
            if shelf is not None:
                shelf.put(found)
        return found

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        from onnxplug_ep_cpu.codegen.region import NativeRegion
        from onnxplug_ep_cpu.codegen.target import host_target

        target, settings, filters = host_target(self._settings.target), self._settings, None
        if settings.winograd_memory is not None:
            from onnxplug_ep_cpu.codegen.tuning import growing

            filters = growing(regions, settings.winograd_memory)

        def compiled(region: Region) -> CompiledRegion:
            if any(node.op_type == "Tokenizer" for node in region.graph.nodes):
                from onnxplug_ep_cpu.codegen.documents import DocumentRegion

                return DocumentRegion(region)
            made = NativeRegion(region, target, self._threads, settings, self._log, filters)
            made.foresee()
            return made

        return list(map(compiled, regions))

    def get_kernel_registry(self) -> KernelRegistry:
        generates = self._settings.codegen and unavailable() is None
        return registry(None if self._threads >= cores() else self._threads, generates)

    def get_op_schemas(self) -> Sequence[OpSchema]:
        from onnxplug_ep_cpu.schemas import op_schemas

        return op_schemas()

    def create_allocators(self) -> Sequence[Allocator]:
        return [HostAllocator()]


def _with_kernels(graph: GraphView, kernels: KernelLookup) -> Iterable[NodeView]:
    return (node for node in graph.nodes if isinstance(kernels.kernel_for(node), KernelDef))


def create_provider(options: CPUOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of a session. A process seed (``set_seed``) restarts the numbers of random operators that have no seed of their own."""
    if context.seed is not None:
        from onnxplug_kernels.ops.random import set_seed

        set_seed(context.seed)
    return CPUProvider(context.threads, code_settings(context.config), context.log)
