"""The provider of one session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import (
    Allocator,
    ArenaConfig,
    Buffer,
    Claim,
    DataTransfer,
    Decline,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelLookup,
    KernelRegistry,
    SessionContext,
    view_host,
)
from onnxplug_ep_reference import memory
from onnxplug_ep_reference.capability import capability
from onnxplug_ep_reference.device import device
from onnxplug_ep_reference.kernels import registry
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.transfer import SimTransfer


class ReferenceProvider(ExecutionProvider):
    """onnx.reference's operators, on simulated memory or (option ``memory``) on the host's."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        self._log = context.log
        where, arena = device(options.device_id), ArenaConfig(options.mem_limit, options.arena_extend_strategy)
        self.allocator = memory.SimAllocator(where, arena) if options.memory == "simulated" else None
        self._registry = registry(self.allocator, double=options.float64)

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        return capability(graph, kernels)

    def get_kernel_registry(self) -> KernelRegistry:
        return self._registry

    def create_allocators(self) -> Sequence[Allocator]:
        return () if self.allocator is None else (self.allocator,)

    def get_data_transfer(self) -> DataTransfer | None:
        return None if self.allocator is None else SimTransfer()

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        return (view_host if self.allocator is None else memory.view)(buffer, offset, dtype, shape)

    def close(self) -> None:
        """RuntimeError when buffers were not given back; their memory is freed all the same."""
        leaked = self.allocator.close() if self.allocator is not None else ()
        for buffer in leaked:
            self._log.error("leaked: %r", buffer)
        if leaked:
            raise RuntimeError(
                f"{len(leaked)} buffers of {leaked[0].device} ({sum(b.nbytes for b in leaked)} bytes) were never freed"
            )
