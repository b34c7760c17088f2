"""All that an execution provider's author imports.

A provider package has a light module with ``onnxplug_provider()`` (a ``ProviderSpec``) named by an entry point of group
``onnxplug.providers``, and an ``ExecutionProvider`` that the spec's ``create`` makes for each session. Module ``hooks``
documents every hook.
"""

from onnxplug.contract.arena import Arena
from onnxplug.contract.claims import (
    Claim,
    CompiledRegion,
    Decline,
    DeviceWork,
    Inline,
    Region,
    RunContext,
    TripOperand,
    Watch,
)
from onnxplug.contract.errors import EPFail, Fail, RuntimeException
from onnxplug.contract.fits import fits
from onnxplug.contract.graph import GraphView, NodeView, ValueView
from onnxplug.contract.grouping import convex_groups, prefer_host
from onnxplug.contract.hooks import hookimpl
from onnxplug.contract.kernels import (
    Into,
    Kernel,
    KernelDef,
    KernelLookup,
    KernelRegistry,
    Mismatch,
    TensorSpec,
    kernel,
    type_strings,
)
from onnxplug.contract.memory import HOST, Allocator, AllocatorStats, ArenaConfig, Buffer, DataTransfer, Device
from onnxplug.contract.options import NoOptions, dump_options, option, parse_options
from onnxplug.contract.provider import (
    CONTRACT_VERSION,
    Available,
    DeviceInfo,
    ExecutionProvider,
    ProviderSpec,
    SessionContext,
    Unavailable,
    view_host,
)
from onnxplug.contract.storage import Storage, assign_offsets
from onnxplug.contract.types import (
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    element_of,
    numpy_dtype,
)
from onnxplug.contract.versions import schema_versions

__all__ = [
    "CONTRACT_VERSION", "HOST", "Allocator", "AllocatorStats", "Arena", "ArenaConfig", "Available", "Buffer",
    "Claim", "CompiledRegion", "DataTransfer", "Decline", "Device", "DeviceInfo", "DeviceWork", "EPFail", "ExecutionProvider",
    "Fail", "GraphView", "Inline", "Into", "Kernel", "KernelDef", "KernelLookup", "KernelRegistry", "MapType",
    "Mismatch", "NoOptions", "NodeView", "OptionalType", "ProviderSpec", "Region", "RunContext",
    "RuntimeException", "SequenceType", "SessionContext", "SparseTensorType", "Storage", "TensorSpec", "TensorType", "TripOperand",
    "Unavailable", "ValueType", "ValueView", "Watch", "assign_offsets", "convex_groups", "dump_options", "element_of",
    "fits", "hookimpl", "kernel", "numpy_dtype", "option", "parse_options", "prefer_host", "schema_versions", "type_strings", "view_host",
]  # fmt: skip
