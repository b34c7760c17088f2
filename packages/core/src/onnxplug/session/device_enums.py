"""onnxruntime's enumerations of memory, devices and compilations, which a plain session has no use for."""

from __future__ import annotations

import enum

from onnxplug.session.enums import NativeEnum


class OrtAllocatorType(NativeEnum):
    """Whether memory comes from a device directly or through an arena."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(NativeEnum):
    """What memory a provider wants for a value: its own, or host memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class ArenaExtendStrategy(NativeEnum):
    """How an arena grows."""

    kNextPowerOfTwo = 0
    kSameAsRequested = 1


kNextPowerOfTwo, kSameAsRequested = ArenaExtendStrategy.kNextPowerOfTwo, ArenaExtendStrategy.kSameAsRequested


class OrtDeviceMemoryType(NativeEnum):
    """A device's own memory, or memory that the host reaches as well."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(NativeEnum):
    """Kinds of devices of an ``OrtMemoryInfo``."""

    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtHardwareDeviceType(NativeEnum):
    """Kinds of hardware devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(NativeEnum):
    """What automatic provider selection prefers."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtSparseFormat(NativeEnum):
    """Storage formats of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtCompileApiFlags(NativeEnum):
    """What a ``ModelCompiler`` refuses to do."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(NativeEnum):
    """Whether a provider can use what was compiled for it."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(NativeEnum):
    """Why a provider cannot use a device; the numbers are bits."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -2147483648


class OrtDeviceVendorId(enum.IntEnum):
    """PCI vendor numbers."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
