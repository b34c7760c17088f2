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
    CompiledRegion,
    DataTransfer,
    Decline,
    Device,
    DeviceWork,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelLookup,
    KernelRegistry,
    Region,
    SessionContext,
)
from onnxplug.contract.cache import user_cache
from onnxplug_ep_opencl import memory
from onnxplug_ep_opencl.capability import capability
from onnxplug_ep_opencl.device import select
from onnxplug_ep_opencl.faults import Faults
from onnxplug_ep_opencl.fuse.attention import AttentionRegion
from onnxplug_ep_opencl.fuse.fused import FusedRegion, JoinedRegion
from onnxplug_ep_opencl.fuse.groups import FUSED, JOINED
from onnxplug_ep_opencl.fuse.quantized import QuantizedRegion
from onnxplug_ep_opencl.fuse.region import DeviceRegion
from onnxplug_ep_opencl.kernels.call import Session
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.machine import Machine, machine
from onnxplug_ep_opencl.options import OpenCLOptions
from onnxplug_ep_opencl.queue import Queue
from onnxplug_ep_opencl.registry import registry
from onnxplug_ep_opencl.transfer import ClTransfer
from onnxplug_ep_opencl.tuning import LIMIT, MeasuringTuner
from onnxplug_kernel_text.nodes.pattern import FUSED as ATTENTION
from onnxplug_kernel_text.nodes.qdq import FUSED as QUANTIZED


class OpenCLProvider(ExecutionProvider):
    """One device, one queue in order: copies and kernels of a session follow one another, and nobody waits but for results."""

    def __init__(self, options: OpenCLOptions, context: SessionContext) -> None:
        self._log = context.log
        where, device = select(options)
        cache = options.cache_folder()
        self.machine = machine(device)
        compiling = self.machine.options(options.fast_math)
        self.machine.try_compiler(compiling, cache)
        self.queue = Queue(self.machine, options.profiling, compiling, cache)
        self.allocator = memory.ClAllocator(
            self.machine, where, ArenaConfig(options.device_mem_limit, options.arena_extend_strategy)
        )
        self._transfer = ClTransfer(self.queue, where)
        self._memory = options.device_mem_limit or self.machine.memory
        target = _target(self.machine, options)
        self._faults = Faults(self.allocator, self._transfer)
        tuner = None
        if options.tuning:
            tuner = MeasuringTuner(self.queue, self.allocator, self._transfer, user_cache("opencl", ".tiles", LIMIT))
        self._session = Session(target, self.queue, self.allocator, self._transfer, self._faults, tuner)
        self._registry = registry(self._session)

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        return capability(graph, kernels, self._session.target, self._memory)

    def get_kernel_registry(self) -> KernelRegistry:
        return self._registry

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        made: dict[str, type[DeviceRegion]] = {
            ATTENTION: AttentionRegion,
            QUANTIZED: QuantizedRegion,
            JOINED: JoinedRegion,
            FUSED: FusedRegion,
        }
        return [
            next(kind for name, kind in made.items() if region.name.startswith(name))(region, self._session)
            for region in regions
        ]

    def create_allocators(self) -> Sequence[Allocator]:
        return [self.allocator]

    def get_data_transfer(self) -> DataTransfer:
        return self._transfer

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> memory.ClTensor:
        return memory.view(buffer, offset, dtype, shape)

    def create_stream(self, device: Device) -> Any:
        return self.queue

    def sync(self) -> None:
        self.queue.finish()
        self._faults.check()

    def device_work(self) -> Sequence[DeviceWork]:
        return self.queue.timed()

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        """What kernels of a run that failed told is not the next one's."""
        if error is not None:
            self._faults.clear()

    def close(self) -> None:
        """RuntimeError when buffers were not given back; their memory is freed all the same."""
        self.queue.finish()
        leaked = self.allocator.close()
        if leaked:
            raise RuntimeError(
                f"{len(leaked)} buffers of {leaked[0].device} ({sum(b.nbytes for b in leaked)} bytes) were never freed"
            )


def _target(made: Machine, options: OpenCLOptions) -> Target:
    registers = made.is_processor if options.kernel_shape == "auto" else options.kernel_shape == "register"
    return Target(
        made.is_processor, registers, made.has_double, made.largest_group, made.units, made.local_memory, made.vector
    )
