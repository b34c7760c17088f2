"""Names of onnxruntime's extension module: the exception classes, options, enumerations, values and functions of the
process.
"""

from onnxplug._lazy import lazy_names
from onnxplug.contract.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)

__getattr__, __dir__, _names = lazy_names(
    globals(),
    {
        "onnxplug.session.adapters": ("AdapterFormat", "LoraAdapter"),
        "onnxplug.session.compiler": ("ModelCompiler", "OrtExternalInitializerInfo"),
        "onnxplug.session.context_data": ("OrtEpContextData", "OrtEpContextDataBuffer"),
        "onnxplug.session.device": ("OrtArenaCfg", "OrtDevice", "OrtMemoryInfo"),
        "onnxplug.session.device_enums": (
            "ArenaExtendStrategy", "OrtAllocatorType", "OrtCompileApiFlags", "OrtCompiledModelCompatibility",
            "OrtDeviceEpIncompatibilityReason", "OrtDeviceMemoryType", "OrtExecutionProviderDevicePolicy",
            "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfoDeviceType", "OrtSparseFormat",
            "kNextPowerOfTwo", "kSameAsRequested",
        ),
        "onnxplug.session.enums": ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel"),
        "onnxplug.session.environment": (
            "copy_tensors", "create_and_register_allocator", "create_and_register_allocator_v2",
            "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers",
            "get_build_info", "get_default_session_options", "get_device", "get_version_string",
            "has_collective_ops", "register_execution_provider_library", "set_global_thread_pool_sizes", "set_seed",
            "unregister_execution_provider_library",
        ),
        "onnxplug.session.ep_devices": (
            "get_ep_devices",
            "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpDevice", "OrtHardwareDevice", "OrtSyncStream",
        ),
        "onnxplug.session.inventory": (
            "get_all_operator_schema", "get_all_opkernel_def", "get_compatibility_info_from_model",
            "get_compatibility_info_from_model_bytes", "get_hardware_device_ep_incompatibility_details",
            "get_hardware_devices", "get_model_compatibility_for_ep_devices", "get_registered_ep_kernel_defs",
        ),
        "onnxplug.session.dlpack": ("is_dlpack_uint8_tensor",),
        "onnxplug.session.extension_binding": ("SessionIOBinding",),
        "onnxplug.session.logging": (
            "set_default_logger_callback", "set_default_logger_severity", "set_default_logger_verbosity",
        ),
        "onnxplug.session.model_io": ("ModelMetadata", "NodeArg"),
        "onnxplug.session.nbits": (
            "quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_matmul_bnb4",
            "quantize_qdq_matmul_2bits", "quantize_qdq_matmul_4bits",
        ),
        "onnxplug.session.options": ("RunOptions", "SessionOptions"),
        "onnxplug.session.ortvalue": ("OrtValue",),
        "onnxplug.session.extension": ("ExtensionSession as InferenceSession",),
        "onnxplug.session.sparse": (
            "SparseBlockSparseView", "SparseCooView", "SparseCsrView", "SparseData as SparseTensor",
        ),
        "onnxplug.session.vector": ("OrtValueVector",),
    },
    submodules=("opkernel", "schemadef"),
)  # fmt: skip
__all__ = [
    *_names, "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
]  # fmt: skip
