"""onnxruntime's enumerations. Members compare and hash as their number without being ``int``, and any number makes a
value.
"""

from __future__ import annotations

import enum
from typing import Any, Self


class NativeEnum(enum.Enum):
    """An enumeration that behaves as those of onnxruntime's extension module do.

    ``member == 99`` and ``int(member)`` hold, ``isinstance(member, int)`` does not, ordering and arithmetic are
    refused, and a number without a member gives a value named ``???``.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{cls.__name__} takes an integer, not {value!r}")
        unnamed = object.__new__(cls)
        unnamed._name_, unnamed._value_ = "???", int(value)
        return unnamed

    def __int__(self) -> int:
        return int(self._value_)

    def __index__(self) -> int:
        return int(self._value_)

    def __eq__(self, other: Any) -> bool:
        return bool(self._value_ == (other._value_ if isinstance(other, NativeEnum) else other))

    def __hash__(self) -> int:
        return hash(self._value_)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self._value_,)


class GraphOptimizationLevel(NativeEnum):
    """How far a model is rewritten before it is placed."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(NativeEnum):
    """Whether independent branches of a graph may run side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NativeEnum):
    """The order in which ready nodes are taken."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


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
