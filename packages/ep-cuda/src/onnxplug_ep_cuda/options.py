"""Options of ``CUDAExecutionProvider``: names, defaults and meaning of onnxruntime's CUDA provider."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from onnxplug.contract import option

UNLIMITED = 2**64 - 1
"""onnxruntime's SIZE_MAX: no limit."""


@dataclass(frozen=True)
class CUDAOptions:
    """What a session may say to this provider."""

    device_id: int = option(0, "index of the GPU among those CUDA_VISIBLE_DEVICES leaves", least=0)
    gpu_mem_limit: int = option(
        UNLIMITED, "bytes of device memory a session takes; libraries' own (context, cuBLAS, cuDNN code) not counted"
    )
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = option(
        "kNextPowerOfTwo",
        "how the arena grows: doubling, or by what is asked for",
        choices=("kNextPowerOfTwo", "kSameAsRequested"),
    )
    cudnn_conv_algo_search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = option(
        "EXHAUSTIVE",
        "how cuDNN's plan of a convolution is found: every plan timed (kept on disk), cuDNN's first choice, or its fallback",
        choices=("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    )
    cudnn_conv_use_max_workspace: bool = option(
        True, "0: plans of cuDNN that want more than 32 MB of scratch are left out"
    )
    cudnn_conv1d_pad_to_nc1d: bool = option(
        False, "accepted; convolutions along one axis are always padded to [N, C, 1, D]", idle=True
    )
    do_copy_in_default_stream: bool = option(True, "0: copies to the device run beside computation, ordered by events")
    has_user_compute_stream: bool = option(False, "implied by user_compute_stream, without which it says nothing")
    user_compute_stream: int = option(0, "address of a cudaStream_t of the application, on which everything runs")
    gpu_external_alloc: int = option(0, "address of void *alloc(size_t), in place of cudaMalloc")
    gpu_external_free: int = option(0, "address of void free(void *), with gpu_external_alloc")
    gpu_external_empty_cache: int = option(0, "address of void empty_cache(), called when the session closes")
    enable_cuda_graph: bool = option(
        False, "record a run's device work once and replay it: static shapes, whole graph on the GPU"
    )
    enable_cudnn: bool = option(True, "0: convolutions are columns and cuBLAS, node by node")
    use_tf32: bool = option(
        True, "products and convolutions of float32 may round their factors to TF32 (10 bits of mantissa)"
    )
    prefer_nhwc: bool = option(
        False, "accepted; regions of convolutions are NHWC inside, everything else row-major NCHW", idle=True
    )
    fuse_conv_bias: bool = option(False, "accepted; bias, residual and activation are always fused", idle=True)
    sdpa_kernel: int = option(
        0,
        "kernels that attention may use, as a sum: 8 is cuDNN's, any other the generated one; 0: cuDNN's where it has one",
        least=0,
    )
    use_ep_level_unified_stream: bool = option(False, "accepted; a session has one stream for all threads", idle=True)
    tunable_op_enable: bool = option(False, "accepted; there are no tunable operators", idle=True)
    tunable_op_tuning_enable: bool = option(False, "accepted; see tunable_op_enable", idle=True)
    tunable_op_max_tuning_duration_ms: int = option(0, "accepted; see tunable_op_enable", idle=True)
    enable_skip_layer_norm_strict_mode: bool = option(False, "accepted and ignored, as onnxruntime does", idle=True)

    def __post_init__(self) -> None:
        for name in ("gpu_mem_limit", "user_compute_stream", *_EXTERNAL):
            if not 0 <= getattr(self, name) <= UNLIMITED:
                raise RuntimeError(
                    f'Failed to parse provider option "{name}": {getattr(self, name)} is not in [0, 2**64)'
                )
        if bool(self.gpu_external_alloc) != bool(self.gpu_external_free):
            raise RuntimeError("gpu_external_alloc and gpu_external_free are given together or not at all")
        if self.user_compute_stream:
            object.__setattr__(self, "has_user_compute_stream", True)

    @property
    def limit(self) -> int | None:
        """``gpu_mem_limit`` as the arena takes it: None for no limit."""
        return None if self.gpu_mem_limit >= UNLIMITED else self.gpu_mem_limit

    @property
    def cudnn_attention(self) -> bool:
        """Whether attention may be cuDNN's."""
        return self.sdpa_kernel == 0 or bool(self.sdpa_kernel & _CUDNN_SDPA)

    def without_effect(self) -> list[str]:
        """Names of options that were set and change nothing here: the session's log says so."""
        idle = [field for field in fields(self) if field.metadata["idle"]]
        return [field.name for field in idle if getattr(self, field.name) != field.default]


_CUDNN_SDPA = 8
"""onnxruntime's AttentionBackend.CUDNN_FLASH_ATTENTION."""
_EXTERNAL = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
