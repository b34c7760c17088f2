"""The provider of one session: put together of streams, memory, kernels and recordings."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import runtime

from onnxplug.contract import (
    Allocator,
    ArenaConfig,
    Buffer,
    Claim,
    CompiledRegion,
    DataTransfer,
    Decline,
    Device,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelLookup,
    KernelRegistry,
    Region,
    SessionContext,
)
from onnxplug_ep_cuda import memory
from onnxplug_ep_cuda.blas import Blas, workspace_size
from onnxplug_ep_cuda.capability import capability
from onnxplug_ep_cuda.codegen.bound import attend
from onnxplug_ep_cuda.codegen.pattern_region import attention_region, quantized_region, weights_region
from onnxplug_ep_cuda.codegen.region import Chain
from onnxplug_ep_cuda.conv.groups import FUSED as CONVOLUTION
from onnxplug_ep_cuda.device import device, missing_cudnn
from onnxplug_ep_cuda.faults import Faults
from onnxplug_ep_cuda.fourier import Transforms
from onnxplug_ep_cuda.namespace import Namespace
from onnxplug_ep_cuda.options import CUDAOptions
from onnxplug_ep_cuda.queue import Queue
from onnxplug_ep_cuda.recording import Recordings
from onnxplug_ep_cuda.registry import registry
from onnxplug_ep_cuda.transfer import CUDATransfer
from onnxplug_kernel_text.nodes.pattern import FUSED as ATTENTION
from onnxplug_kernel_text.nodes.qdq import FUSED as QUANTIZED
from onnxplug_kernel_text.nodes.weights import FUSED as WEIGHTS

if TYPE_CHECKING:
    from onnxplug_ep_cuda.dnn.session import DnnSession


class CUDAProvider(ExecutionProvider):
    """Kernels of ``onnxplug_kernels`` over CuPy, generated kernels and cuBLAS on one stream of one GPU."""

    def __init__(self, options: CUDAOptions, context: SessionContext) -> None:
        self.options, self._log = options, context.log
        where = device(options.device_id, runtime.getDeviceCount())
        self.queue = Queue(
            where.id, options.user_compute_stream or None, copy_beside=not options.do_copy_in_default_stream
        )
        source = _source(options, self.queue)
        config = ArenaConfig(options.limit, options.arena_extend_strategy)
        self.allocator = memory.CUDAAllocator(where, source, config, self.queue.settle)
        self.queue.blas = self._blas = Blas(
            self.queue.compute.ptr, source, workspace_size(runtime.getDeviceProperties(where.id)["major"])
        )
        self.queue.faults = self._faults = Faults(alone=options.enable_cuda_graph)
        self.queue.scratch = self._scratch = memory.Scratch(self.allocator)
        self._transfer = CUDATransfer(self.queue)
        self._recordings = Recordings(self.queue, self._scratch)
        self._missing = missing_cudnn() if options.enable_cudnn else None
        self._dnn = self._with_cudnn() if options.enable_cudnn and self._missing is None else None
        generated = functools.partial(attend, faults=self._faults)
        self._attend = generated if self._dnn is None or not options.cudnn_attention else self._dnn.attend
        scratch = self._scratch
        self._transforms = Transforms(cupy, lambda: cupy.cuda.using_allocator(scratch.lasting), self._recordings.hold)
        self._namespace = Namespace(cupy, self._recordings, self._transforms, self._faults)
        self._registry = registry(
            self._namespace, self.queue, tf32=options.use_tf32, attend=self._attend, faults=self._faults
        )
        # Serial: work that another thread queued on the stream would be recorded too.
        self.concurrent_run = not options.enable_cuda_graph
        if not options.enable_cuda_graph:
            self.begin_capture = None  # type: ignore[assignment]

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        if self._missing is not None and any(node.op_type == "Conv" for node in graph.nodes):
            self._log.warning("Convolutions run as columns and matrix products: %s", self._missing)
            self._missing = None  # said once
        return capability(graph, kernels, cudnn=self._dnn is not None)

    def get_kernel_registry(self) -> KernelRegistry:
        return self._registry

    def create_allocators(self) -> Sequence[Allocator]:
        return (self.allocator,)

    def get_data_transfer(self) -> DataTransfer:
        return self._transfer

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        return memory.view(buffer, offset, dtype, shape)

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [self._compiled(region) for region in regions]

    def create_stream(self, device: Device) -> Any:
        return self.queue.compute

    def on_run_start(self, options: Any) -> None:
        self.queue.enter()
        if self.queue.device_id in memory.lent:
            self.queue.follow()

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        try:
            if error is not None:
                self.queue.forget()
        finally:
            self.queue.leave()

    def sync(self) -> None:
        self.queue.wait()
        self._faults.check()

    def is_graph_captured(self, graph_id: int) -> bool:
        return self._recordings.has(graph_id)

    def begin_capture(self, graph_id: int) -> None:
        self._recordings.begin(graph_id)

    def end_capture(self, graph_id: int) -> None:
        self._recordings.end(graph_id)

    def replay_graph(self, graph_id: int) -> None:
        self._recordings.replay(graph_id)

    def release_graph(self, graph_id: int) -> None:
        self._recordings.release(graph_id)

    def close(self) -> None:
        with (
            ExitStack() as steps
        ):  # the last one first, each of them whatever becomes of the others: a device may be lost
            steps.callback(self.allocator.close)
            steps.callback(self._scratch.close)
            steps.callback(self._faults.close)
            steps.callback(self._recordings.close)
            steps.callback(self._transforms.close)
            steps.callback(self._close_blas)
            if self._dnn is not None:
                steps.callback(self._dnn.close)
            self.queue.wait()  # plans and recordings go while nothing runs

    def _close_blas(self) -> None:
        with self.queue.inside():
            self._blas.close()

    def _with_cudnn(self) -> DnnSession:
        from onnxplug_ep_cuda.dnn.session import DnnSession

        return DnnSession(self.options, self.queue)

    def _compiled(self, region: Region) -> CompiledRegion:
        if region.name.startswith(ATTENTION):
            return attention_region(region, self.queue, self._attend)
        if region.name.startswith(QUANTIZED):
            return quantized_region(region, self.queue)
        if region.name.startswith(WEIGHTS):
            return weights_region(region, self.queue)
        if not region.name.startswith(CONVOLUTION):
            return Chain(region, self.queue)
        from onnxplug_ep_cuda.conv.region import ConvRegion

        assert self._dnn is not None
        return ConvRegion(region, self.queue, self._dnn, self._namespace)


def _source(options: CUDAOptions, queue: Queue) -> memory.Source:
    if options.gpu_external_alloc:
        return memory.ExternalSource(
            options.gpu_external_alloc, options.gpu_external_free, options.gpu_external_empty_cache, queue
        )
    return memory.DriverSource(options.device_id)


def create_provider(options: CUDAOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of a session. RuntimeError for a device that is not there."""
    for name in options.without_effect():
        context.log.warning("Provider option %s has no effect in CUDAExecutionProvider", name)
    return CUDAProvider(options, context)
