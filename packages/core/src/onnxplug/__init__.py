"""An ONNX runtime whose execution providers are plugins, with onnxruntime's Python API::

    import onnxplug as ort

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"input": array})

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug._lazy import lazy_names

if TYPE_CHECKING:
    from onnxplug import backend as backend
    from onnxplug import capi as capi
    from onnxplug import datasets as datasets
    from onnxplug.plugins.registry import register_provider as register_provider
    from onnxplug.session.adapters import AdapterFormat as AdapterFormat
    from onnxplug.session.adapters import LoraAdapter as LoraAdapter
    from onnxplug.session.compiler import ModelCompiler as ModelCompiler
    from onnxplug.session.compiler import OrtExternalInitializerInfo as OrtExternalInitializerInfo
    from onnxplug.session.context_data import OrtEpContextData as OrtEpContextData
    from onnxplug.session.context_data import OrtEpContextDataBuffer as OrtEpContextDataBuffer
    from onnxplug.session.device import OrtArenaCfg as OrtArenaCfg
    from onnxplug.session.device import OrtDevice as OrtDevice
    from onnxplug.session.device import OrtMemoryInfo as OrtMemoryInfo
    from onnxplug.session.device_enums import OrtAllocatorType as OrtAllocatorType
    from onnxplug.session.device_enums import OrtCompileApiFlags as OrtCompileApiFlags
    from onnxplug.session.device_enums import OrtDeviceMemoryType as OrtDeviceMemoryType
    from onnxplug.session.device_enums import OrtDeviceVendorId as OrtDeviceVendorId
    from onnxplug.session.device_enums import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from onnxplug.session.device_enums import OrtHardwareDeviceType as OrtHardwareDeviceType
    from onnxplug.session.device_enums import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
    from onnxplug.session.device_enums import OrtMemType as OrtMemType
    from onnxplug.session.device_enums import OrtSparseFormat as OrtSparseFormat
    from onnxplug.session.enums import ExecutionMode as ExecutionMode
    from onnxplug.session.enums import ExecutionOrder as ExecutionOrder
    from onnxplug.session.enums import GraphOptimizationLevel as GraphOptimizationLevel
    from onnxplug.session.environment import copy_tensors as copy_tensors
    from onnxplug.session.environment import create_and_register_allocator as create_and_register_allocator
    from onnxplug.session.environment import create_and_register_allocator_v2 as create_and_register_allocator_v2
    from onnxplug.session.environment import disable_telemetry_events as disable_telemetry_events
    from onnxplug.session.environment import enable_telemetry_events as enable_telemetry_events
    from onnxplug.session.environment import get_all_providers as get_all_providers
    from onnxplug.session.environment import get_available_providers as get_available_providers
    from onnxplug.session.environment import get_build_info as get_build_info
    from onnxplug.session.environment import get_device as get_device
    from onnxplug.session.environment import get_version_string as get_version_string
    from onnxplug.session.environment import has_collective_ops as has_collective_ops
    from onnxplug.session.environment import preload_dlls as preload_dlls
    from onnxplug.session.environment import print_debug_info as print_debug_info
    from onnxplug.session.environment import register_execution_provider_library as register_execution_provider_library
    from onnxplug.session.environment import set_global_thread_pool_sizes as set_global_thread_pool_sizes
    from onnxplug.session.environment import set_seed as set_seed
    from onnxplug.session.environment import (
        unregister_execution_provider_library as unregister_execution_provider_library,
    )
    from onnxplug.session.ep_devices import OrtEpAssignedNode as OrtEpAssignedNode
    from onnxplug.session.ep_devices import OrtEpAssignedSubgraph as OrtEpAssignedSubgraph
    from onnxplug.session.ep_devices import OrtEpDevice as OrtEpDevice
    from onnxplug.session.ep_devices import OrtHardwareDevice as OrtHardwareDevice
    from onnxplug.session.ep_devices import OrtSyncStream as OrtSyncStream
    from onnxplug.session.ep_devices import get_ep_devices as get_ep_devices
    from onnxplug.session.extension_binding import SessionIOBinding as SessionIOBinding
    from onnxplug.session.iobinding import IOBinding as IOBinding
    from onnxplug.session.logging import set_default_logger_callback as set_default_logger_callback
    from onnxplug.session.logging import set_default_logger_severity as set_default_logger_severity
    from onnxplug.session.logging import set_default_logger_verbosity as set_default_logger_verbosity
    from onnxplug.session.model_io import ModelMetadata as ModelMetadata
    from onnxplug.session.model_io import NodeArg as NodeArg
    from onnxplug.session.options import RunOptions as RunOptions
    from onnxplug.session.options import SessionOptions as SessionOptions
    from onnxplug.session.ortvalue import OrtValue as OrtValue
    from onnxplug.session.session import InferenceSession as InferenceSession
    from onnxplug.session.sparse import SparseTensor as SparseTensor

__version__ = "0.1.0"
package_name, version, cuda_version = "onnxplug", __version__, ""

__getattr__, __dir__, _names = lazy_names(
    globals(),
    {
        "onnxplug.plugins.registry": ("register_provider",),
        "onnxplug.session.adapters": ("AdapterFormat", "LoraAdapter"),
        "onnxplug.session.compiler": ("ModelCompiler", "OrtExternalInitializerInfo"),
        "onnxplug.session.context_data": ("OrtEpContextData", "OrtEpContextDataBuffer"),
        "onnxplug.session.device": ("OrtArenaCfg", "OrtDevice", "OrtMemoryInfo"),
        "onnxplug.session.device_enums": (
            "OrtAllocatorType", "OrtCompileApiFlags", "OrtDeviceMemoryType", "OrtDeviceVendorId",
            "OrtExecutionProviderDevicePolicy", "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfoDeviceType",
            "OrtSparseFormat",
        ),
        "onnxplug.session.enums": ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel"),
        "onnxplug.session.environment": (
            "copy_tensors", "create_and_register_allocator", "create_and_register_allocator_v2",
            "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers",
            "get_build_info", "get_device", "get_version_string", "has_collective_ops",
            "preload_dlls", "print_debug_info", "register_execution_provider_library", "set_global_thread_pool_sizes",
            "set_seed", "unregister_execution_provider_library",
        ),
        "onnxplug.session.ep_devices": (
            "get_ep_devices",
            "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpDevice", "OrtHardwareDevice", "OrtSyncStream",
        ),
        "onnxplug.session.extension_binding": ("SessionIOBinding",),
        "onnxplug.session.iobinding": ("IOBinding",),
        "onnxplug.session.logging": (
            "set_default_logger_callback", "set_default_logger_severity", "set_default_logger_verbosity",
        ),
        "onnxplug.session.model_io": ("ModelMetadata", "NodeArg"),
        "onnxplug.session.options": ("RunOptions", "SessionOptions"),
        "onnxplug.session.ortvalue": ("OrtValue",),
        "onnxplug.session.session": ("InferenceSession",),
        "onnxplug.session.sparse": ("SparseTensor",),
    },
    submodules=("backend", "capi", "datasets"),
)  # fmt: skip
__all__ = [*_names, "__version__", "cuda_version", "package_name", "version"]
