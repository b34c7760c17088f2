"""The options of every provider: onnxruntime's keys, with the types and defaults they have there. Only values that are not the default
are handed on, so that a build which lacks a key is asked for it by nobody but its user."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from onnxplug.contract import option

ADDRESS = "address of an object of the program's; 0: none"


@dataclass(frozen=True)
class BridgeOptions:
    """What this package itself is told."""

    graph_optimization_level: str = option(
        "all", "how far onnxruntime changes the nodes it is given", choices=("disabled", "basic", "extended", "all")
    )

    words: ClassVar[tuple[str, str]] = ("0", "1")
    """How the provider writes no and yes."""

    def handed_on(self) -> dict[str, str]:
        """What onnxruntime's provider is told."""
        own = {field.name for field in dataclasses.fields(BridgeOptions)}
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in own}
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        return {
            name: self.words[value] if isinstance(value, bool) else str(value)
            for name, value in given.items()
            if value != defaults[name]
        }


@dataclass(frozen=True)
class OnnxRuntimeOptions(BridgeOptions):
    """onnxruntime's own CPU provider; or, with ``library``, any provider that a plugin library brings."""

    exact: bool = option(
        False,
        "leave to others also what onnxruntime computes less exactly, or otherwise for NaN and overflow, than ONNX says",
    )
    library: str = option("", "path of a library with a plugin provider of onnxruntime's; empty: onnxruntime's CPU")
    ep: str = option("", "name of the provider in that library; empty: the only one that the library brings")
    ep_options: str = option("", 'options of the provider in that library as a JSON object: {"device_type": "CPU"}')


@dataclass(frozen=True)
class PlainOptions(BridgeOptions):
    """A provider that takes no options of its own; session config entries with its prefix (``ep.nnapi.``) are handed on."""


@dataclass(frozen=True)
class AclOptions(BridgeOptions):
    """Arm's Compute Library."""

    enable_fast_math: bool = option(False, "compute float32 products in bfloat16 where the processor can")
    words = ("false", "true")


@dataclass(frozen=True)
class CannOptions(BridgeOptions):
    """Huawei's Ascend NPUs."""

    device_id: int = option(0, "index of the NPU", least=0)
    npu_mem_limit: int | None = option(None, "bytes of its memory that may be taken; empty: no limit", least=1)
    arena_extend_strategy: str = option(
        "kNextPowerOfTwo", "how the arena grows", choices=("kNextPowerOfTwo", "kSameAsRequested")
    )
    enable_cann_graph: bool = option(True, "compile whole graphs; else operator by operator")
    enable_cann_subgraph: bool = option(False, "compile the part of a graph that can be")
    dump_graphs: bool = option(False, "write graphs that are compiled, in ONNX's form")
    dump_om_model: bool = option(True, "keep compiled models on disk")
    precision_mode: str = option("force_fp16", "precision of operators")
    op_select_impl_mode: str = option("high_performance", "implementation of operators: this, or high_precision")
    optypelist_for_implmode: str = option("", "operators that op_select_impl_mode is for, comma separated")


@dataclass(frozen=True)
class CoreMLOptions(BridgeOptions):
    """Apple's Core ML."""

    MLComputeUnits: str = option(
        "ALL", "what may compute", choices=("ALL", "CPUAndNeuralEngine", "CPUAndGPU", "CPUOnly")
    )
    ModelFormat: str = option("NeuralNetwork", "form of its models", choices=("NeuralNetwork", "MLProgram"))
    RequireStaticInputShapes: bool = option(False, "take only nodes whose shapes are fixed")
    EnableOnSubgraphs: bool = option(False, "take nodes in the bodies of If, Loop and Scan")
    SpecializationStrategy: str = option("Default", "what compiling is for", choices=("Default", "FastPrediction"))
    ProfileComputePlan: bool = option(False, "log the hardware that each operator runs on")
    AllowLowPrecisionAccumulationOnGPU: bool = option(False, "add up in float16 on the GPU")
    ModelCacheDirectory: str = option("", "folder of compiled models; empty: they are not kept")


@dataclass(frozen=True)
class DmlOptions(BridgeOptions):
    """DirectML, on Windows."""

    device_id: int = option(0, "index of the adapter", least=0)
    performance_preference: str = option(
        "default", "which adapter where there are several", choices=("default", "high_performance", "minimum_power")
    )
    device_filter: str = option("gpu", "kind of adapter", choices=("gpu", "npu", "any"))
    disable_metacommands: bool = option(False, "use no code of the driver's own for operators")
    words = ("false", "true")


@dataclass(frozen=True)
class DnnlOptions(BridgeOptions):
    """Intel's oneDNN."""

    num_of_threads: int = option(0, "threads; 0: as many as the session has", least=0)


@dataclass(frozen=True)
class MIGraphXOptions(BridgeOptions):
    """AMD's GPUs; ROCMExecutionProvider, which onnxruntime no longer has, was for the same."""

    device_id: int = option(0, "index of the GPU", least=0)
    migraphx_fp16_enable: bool = option(False, "compute in float16")
    migraphx_bf16_enable: bool = option(False, "compute in bfloat16")
    migraphx_fp8_enable: bool = option(False, "compute in float8")
    migraphx_int8_enable: bool = option(False, "compute in int8")
    migraphx_int8_calibration_table_name: str = option("", "file of ranges for int8")
    migraphx_int8_use_native_calibration_table: bool = option(False, "that file is MIGraphX's own")
    migraphx_exhaustive_tune: bool = option(False, "measure kernels when compiling")
    migraphx_mem_limit: int | None = option(None, "bytes of memory that may be taken; empty: no limit", least=1)
    migraphx_arena_extend_strategy: str = option(
        "kNextPowerOfTwo", "how the arena grows", choices=("kNextPowerOfTwo", "kSameAsRequested")
    )
    migraphx_model_cache_dir: str = option("", "folder of compiled models; empty: they are not kept")
    migraphx_external_alloc: int = option(0, ADDRESS)
    migraphx_external_free: int = option(0, ADDRESS)
    migraphx_external_empty_cache: int = option(0, ADDRESS)


@dataclass(frozen=True)
class NvTensorRTRTXOptions(BridgeOptions):
    """NVIDIA's TensorRT for RTX GPUs."""

    device_id: int = option(0, "index of the GPU", least=0)
    user_compute_stream: int = option(0, ADDRESS)
    has_user_compute_stream: bool = option(False, "that there is one (an address)")
    nv_max_workspace_size: int = option(0, "bytes of scratch memory; 0: as the device has", least=0)
    nv_max_shared_mem_size: int = option(0, "bytes of shared memory; 0: as the device has", least=0)
    nv_detailed_build_log: bool = option(False, "log each step of building an engine")
    nv_dump_subgraphs: bool = option(False, "write graphs that are compiled, in ONNX's form")
    nv_op_types_to_exclude: str = option("", "operators that are left to others, comma separated")
    nv_profile_min_shapes: str = option("", "smallest shapes of inputs: input1:1x3x224x224,input2:1x1")
    nv_profile_max_shapes: str = option("", "largest shapes of inputs")
    nv_profile_opt_shapes: str = option("", "shapes of inputs that the engine is made for")
    nv_multi_profile_enable: bool = option(False, "several profiles of shapes")
    nv_runtime_cache_path: str = option("", "folder of code compiled at run time; empty: it is not kept")
    nv_weight_streaming_budget: str = option("", "bytes of weights on the GPU at once; empty: all")
    enable_cuda_graph: bool = option(False, "record runs as a CUDA graph")


@dataclass(frozen=True)
class QnnOptions(BridgeOptions):
    """Qualcomm's processors."""

    backend_type: str = option("", "cpu, gpu, htp or saver; empty: onnxruntime's choice")
    backend_path: str = option("", "the backend's library, in place of backend_type")
    device_id: int = option(0, "index of the device", least=0)
    htp_performance_mode: str = option("default", "burst, balanced, high_performance, power_saver and others")
    htp_graph_finalization_optimization_mode: int = option(0, "effort of compiling, 0 to 3", least=0)
    htp_arch: int = option(0, "version of the HTP; 0: the device's", least=0)
    soc_model: int = option(0, "number of the chip; 0: the device's", least=0)
    vtcm_mb: int = option(0, "megabytes of the HTP's memory; 0: as there is", least=0)
    rpc_control_latency: int = option(0, "microseconds", least=0)
    qnn_context_priority: str = option("normal", "low, normal, normal_high or high")
    enable_htp_fp16_precision: bool = option(True, "compute float32 models in float16")
    enable_htp_shared_memory_allocator: bool = option(False, "share memory with the HTP")
    offload_graph_io_quantization: bool = option(True, "leave Q/DQ at inputs and outputs to another provider")
    op_packages: str = option("", "packages of operators of one's own")
    profiling_level: str = option("off", "off, basic, detailed or optrace")
    profiling_file_path: str = option("", "file for what is profiled")


@dataclass(frozen=True)
class TensorrtOptions(BridgeOptions):
    """NVIDIA's TensorRT."""

    device_id: int = option(0, "index of the GPU", least=0)
    user_compute_stream: int = option(0, ADDRESS)
    has_user_compute_stream: bool = option(False, "that there is one (an address)")
    trt_max_partition_iterations: int = option(1000, "how often a graph is divided anew", least=1)
    trt_min_subgraph_size: int = option(1, "smaller groups of nodes are left to others", least=1)
    trt_max_workspace_size: int = option(0, "bytes of scratch memory; 0: as the device has", least=0)
    trt_fp16_enable: bool = option(False, "compute in float16")
    trt_bf16_enable: bool = option(False, "compute in bfloat16")
    trt_int8_enable: bool = option(False, "compute in int8")
    trt_int8_calibration_table_name: str = option("", "file of ranges for int8")
    trt_int8_use_native_calibration_table: bool = option(False, "that file is TensorRT's own")
    trt_dla_enable: bool = option(False, "use the Deep Learning Accelerator")
    trt_dla_core: int = option(0, "index of the accelerator's core", least=0)
    trt_dump_subgraphs: bool = option(False, "write graphs that are compiled, in ONNX's form")
    trt_engine_cache_enable: bool = option(False, "keep engines on disk")
    trt_engine_cache_path: str = option("", "folder for them; empty: the working directory")
    trt_engine_cache_prefix: str = option("", "what their names begin with")
    trt_engine_hw_compatible: bool = option(False, "engines for all GPUs from Ampere on")
    trt_engine_decryption_enable: bool = option(False, "engines on disk are encrypted")
    trt_engine_decryption_lib_path: str = option("", "library that decrypts them")
    trt_weight_stripped_engine_enable: bool = option(False, "engines without weights")
    trt_timing_cache_enable: bool = option(False, "keep measured times on disk")
    trt_timing_cache_path: str = option("", "folder for them; empty: the working directory")
    trt_force_timing_cache: bool = option(False, "use those of another device too")
    trt_force_sequential_engine_build: bool = option(False, "build one engine after the other")
    trt_context_memory_sharing_enable: bool = option(False, "engines share their scratch memory")
    trt_layer_norm_fp32_fallback: bool = option(False, "compute layer normalization in float32")
    trt_detailed_build_log: bool = option(False, "log each step of building an engine")
    trt_build_heuristics_enable: bool = option(False, "choose kernels by rules, measuring fewer")
    trt_sparsity_enable: bool = option(False, "use sparse weights")
    trt_builder_optimization_level: int = option(3, "effort of building, 0 to 5", least=0)
    trt_auxiliary_streams: int = option(-1, "further streams of an engine; -1: TensorRT's choice", least=-1)
    trt_tactic_sources: str = option("", "libraries to take kernels from: -CUDNN,+CUBLAS")
    trt_preview_features: str = option("", "features to switch on, comma separated")
    trt_extra_plugin_lib_paths: str = option("", "libraries of plugins, separated by semicolons")
    trt_op_types_to_exclude: str = option("", "operators that are left to others, comma separated")
    trt_profile_min_shapes: str = option("", "smallest shapes of inputs: input1:1x3x224x224,input2:1x1")
    trt_profile_max_shapes: str = option("", "largest shapes of inputs")
    trt_profile_opt_shapes: str = option("", "shapes of inputs that the engine is made for")
    trt_cuda_graph_enable: bool = option(False, "record runs as a CUDA graph")
    words = ("False", "True")


@dataclass(frozen=True)
class VitisAIOptions(BridgeOptions):
    """AMD's NPUs and adaptive devices."""

    config_file: str = option("", "file with the compiler's settings")
    cache_dir: str = option("", "folder of compiled models; empty: the compiler's own")
    cache_key: str = option("", "folder of this model in it; empty: by its content")
    target: str = option("", "kind of the NPU's overlay")
    xclbin: str = option("", "file of the NPU's overlay")
    log_level: str = option("", "what the compiler logs: error, warning, info")


@dataclass(frozen=True)
class WebGpuOptions(BridgeOptions):
    """GPUs by WebGPU (Direct3D 12, Vulkan, Metal)."""

    preferredLayout: str = option("NHWC", "order of an image's dimensions inside", choices=("NHWC", "NCHW"))
    enableGraphCapture: bool = option(False, "record runs and replay them")
    dawnBackendType: str = option("", "D3D12 or Vulkan; empty: the system's")
    powerPreference: str = option("", "high-performance or low-power; empty: Dawn's choice")
    storageBufferCacheMode: str = option("", "disabled, lazyRelease, simple or bucket; empty: onnxruntime's choice")
    uniformBufferCacheMode: str = option("", "likewise, of small buffers")
    validationMode: str = option("", "what Dawn checks: disabled, wgpuOnly, basic or full")
    forceCpuNodeNames: str = option("", "nodes that are left to others, by line")


@dataclass(frozen=True)
class XnnpackOptions(BridgeOptions):
    """XNNPACK."""

    intra_op_num_threads: int = option(0, "threads; 0: one", least=0)
