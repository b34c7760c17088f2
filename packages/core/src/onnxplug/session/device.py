"""``OrtDevice``, ``OrtMemoryInfo`` and ``OrtArenaCfg``: where values live, in onnxruntime's words, and how that maps to
device kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from onnxplug.contract.memory import Device
from onnxplug.session.device_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from onnxplug.session.settings import as_int, as_text

_CPU, _GPU, _FPGA, _NPU, _DML = range(5)
# onnxruntime's device names: name -> (device type, vendor)
_NAMES: dict[str, tuple[int, OrtDeviceVendorId]] = {
    "cpu": (_CPU, OrtDeviceVendorId.NONE),
    "cuda": (_GPU, OrtDeviceVendorId.NVIDIA),
    "gpu": (_GPU, OrtDeviceVendorId.NONE),
    "webgpu": (_GPU, OrtDeviceVendorId.NONE),
    "dml": (_GPU, OrtDeviceVendorId.MICROSOFT),
    "cann": (_NPU, OrtDeviceVendorId.HUAWEI),
    "npu": (_NPU, OrtDeviceVendorId.NONE),
}
# memory names of OrtMemoryInfo: name -> (device type, vendor, memory type)
_MEMORY_NAMES: dict[str, tuple[int, int, OrtDeviceMemoryType]] = {
    "Cpu": (_CPU, OrtDeviceVendorId.NONE, OrtDeviceMemoryType.DEFAULT),
    "Cuda": (_GPU, OrtDeviceVendorId.NVIDIA, OrtDeviceMemoryType.DEFAULT),
    "CudaPinned": (_GPU, OrtDeviceVendorId.NVIDIA, OrtDeviceMemoryType.HOST_ACCESSIBLE),
    "Hip": (_GPU, OrtDeviceVendorId.AMD, OrtDeviceMemoryType.DEFAULT),
    "HipPinned": (_GPU, OrtDeviceVendorId.AMD, OrtDeviceMemoryType.HOST_ACCESSIBLE),
    "OpenVINO_GPU": (_GPU, OrtDeviceVendorId.INTEL, OrtDeviceMemoryType.DEFAULT),
    "DML": (_GPU, OrtDeviceVendorId.MICROSOFT, OrtDeviceMemoryType.DEFAULT),
    "WebGPU_Buf": (_GPU, OrtDeviceVendorId.NONE, OrtDeviceMemoryType.DEFAULT),
}


def device_kinds() -> set[str]:
    """Device kinds of the providers that can be used here."""
    from onnxplug.plugins import registry

    return {registry.spec(name).device_kind for name in registry.available_providers()}


def get_ort_device_type(device_type: str) -> int:
    """The number of a device name; devices of other providers count as accelerators (1). Exception for an unknown
    name.
    """
    if device_type in _NAMES:
        return _NAMES[device_type][0]
    if device_type not in device_kinds():
        raise Exception("Unsupported device type: " + device_type)
    return _GPU


def get_vendor_id_for_device_type(device_type: str) -> OrtDeviceVendorId | None:
    """The vendor that a device name implies, None where it implies none."""
    known = _NAMES.get(device_type)
    return known[1] if known is not None and device_type in ("cuda", "dml", "cann", "webgpu") else None


class OrtDevice:
    """A device: type number, vendor, memory type and index. ``OrtDevice(type, memory, index)`` or
    ``OrtDevice(type, memory, vendor, index)``; by name with ``OrtDevice.make``."""

    __slots__ = ("_id", "_kind", "_memory", "_type", "_vendor")

    def __init__(self, device_type: int, mem_type: int = 0, *vendor_and_id: int) -> None:
        if isinstance(device_type, OrtDevice) or not 1 <= len(vendor_and_id) <= 2:
            raise ValueError("OrtDevice takes (device type, memory type[, vendor], device id); see OrtDevice.make")
        if not -(2**15) <= as_int(vendor_and_id[-1]) < 2**15:
            raise TypeError(f"OrtDevice: expected a device id of 16 bits, got {vendor_and_id[-1]!r}")
        self._type: int = as_int(device_type)
        self._memory: int = as_int(mem_type)
        self._id: int = as_int(vendor_and_id[-1])
        self._vendor: int = as_int(vendor_and_id[0]) if len(vendor_and_id) == 2 else int(OrtDeviceVendorId.NONE)
        self._kind = _kind(self._type, self._vendor)

    @classmethod
    def make(cls, ort_device_name: str, device_id: int, vendor_id: int = -1) -> Self:
        """The device of this name: onnxruntime's (cpu, cuda, gpu, dml, cann, npu, webgpu) or the device kind of an
        installed provider. ``vendor_id`` tells apart the vendors of "gpu" and "npu". Exception for an unknown name.
        """
        type_ = get_ort_device_type(as_text(ort_device_name))
        known = _NAMES.get(ort_device_name)
        vendor = as_int(vendor_id) if vendor_id >= 0 else (known[1] if known else OrtDeviceVendorId.NONE)
        device = cls(type_, 0, vendor, device_id)
        if ort_device_name not in ("gpu", "npu"):
            device._kind = ort_device_name
        return device

    @property
    def kind(self) -> str:
        """The device kind by which providers offer memory."""
        return self._kind

    def device_id(self) -> int:
        """The device's index."""
        return self._id

    def device_type(self) -> int:
        """0 CPU, 1 GPU, 2 FPGA, 3 NPU."""
        return self._type

    def device_vendor_id(self) -> int:
        """PCI vendor number, 0 for none."""
        return self._vendor

    vendor_id = device_vendor_id

    def device_mem_type(self) -> int:
        """0 default memory, 5 memory the host reaches as well."""
        return self._memory

    mem_type = device_mem_type

    def _get_c_device(self) -> Self:
        return self

    @staticmethod
    def cpu() -> int:
        """Type number of the CPU."""
        return _CPU

    @staticmethod
    def gpu() -> int:
        """Type number of a GPU."""
        return _GPU

    cuda = webgpu = gpu

    @staticmethod
    def fpga() -> int:
        """Type number of an FPGA."""
        return _FPGA

    @staticmethod
    def npu() -> int:
        """Type number of an NPU."""
        return _NPU

    cann = npu

    @staticmethod
    def dml() -> int:
        """Type number of DirectML devices."""
        return _DML

    @staticmethod
    def default_memory() -> int:
        """Number of the default memory type."""
        return int(OrtDeviceMemoryType.DEFAULT)


class OrtMemoryInfo:
    """A kind of memory of a device. RuntimeError for a name that onnxruntime does not know (``create_v2`` takes
    any).
    """

    __slots__ = ("_allocator", "_device", "_mem_type", "_name")

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if not isinstance(allocator_type, OrtAllocatorType) or not isinstance(mem_type, OrtMemType):
            raise TypeError("OrtMemoryInfo takes (name, OrtAllocatorType, device id, OrtMemType)")
        if as_text(name) not in _MEMORY_NAMES:
            raise RuntimeError("Specified device is not supported. Try CreateMemoryInfo_V2.")
        type_, vendor, memory = _MEMORY_NAMES[name]
        as_int(device_id)
        self._name, self._allocator, self._mem_type = name, allocator_type, mem_type
        self._device = OrtDevice(type_, memory.value, vendor, 0 if type_ == _CPU else device_id)

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
        *,
        kind: str | None = None,
    ) -> Self:
        """Memory of any name on a device that is described in full, ``kind`` among it where the numbers do not tell.
        ``alignment`` is the provider's own business here.
        """
        if not isinstance(device_type, OrtMemoryInfoDeviceType) or not isinstance(mem_type, OrtDeviceMemoryType):
            raise TypeError(
                "create_v2(): incompatible function arguments: expected (str, OrtMemoryInfoDeviceType, int, int, "
                "OrtDeviceMemoryType, int, OrtAllocatorType)"
            )
        info = cls.__new__(cls)
        info._name, info._allocator, info._mem_type = as_text(name), allocator_type, OrtMemType.DEFAULT
        info._device = OrtDevice(int(device_type), int(mem_type), vendor_id, device_id)
        info._device._kind = kind or info._device._kind
        return info

    @property
    def name(self) -> str:
        """Name of the memory, "Cpu" for host memory."""
        return self._name

    @property
    def device_id(self) -> int:
        """The device's index."""
        return self._device.device_id()

    @property
    def mem_type(self) -> OrtMemType:
        """What a provider uses it for."""
        return self._mem_type

    @property
    def allocator_type(self) -> OrtAllocatorType:
        """With or without an arena."""
        return self._allocator

    @property
    def device_mem_type(self) -> OrtDeviceMemoryType:
        """The device's own memory, or one the host reaches."""
        return OrtDeviceMemoryType(self._device.device_mem_type())

    @property
    def device_vendor_id(self) -> int:
        """PCI vendor number."""
        return self._device.device_vendor_id()


def memory_info(device: Device) -> OrtMemoryInfo:
    """The memory of one of the core's memory spaces, taken through an arena."""
    type_, vendor = _NAMES.get(device.kind, (_GPU, OrtDeviceVendorId.NONE))
    names = {"cpu": "Cpu", "cuda": "CudaPinned" if device.memory == "pinned" else "Cuda"}
    return OrtMemoryInfo.create_v2(
        names.get(device.kind, device.kind),
        OrtMemoryInfoDeviceType(type_),
        vendor,
        device.id,
        OrtDeviceMemoryType.HOST_ACCESSIBLE if device.memory == "pinned" else OrtDeviceMemoryType.DEFAULT,
        0,
        OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        kind=device.kind,
    )


class OrtArenaCfg:
    """Limits and growth of an arena: ``OrtArenaCfg(max_mem, strategy, initial_chunk, max_dead)`` or from a dictionary
    of the attribute names; -1 (of ``max_mem`` 0) is the default. RuntimeError for an unknown key.
    """

    _FIELDS = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
    )  # fmt: skip
    __slots__ = _FIELDS

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], Mapping):
            given = dict(args[0])
        elif len(args) == 4:
            given = dict(zip(self._FIELDS, args, strict=False))
        else:
            raise TypeError("OrtArenaCfg takes a dictionary, or (max_mem, strategy, initial_chunk, max_dead)")
        for key in given:
            if key not in self._FIELDS:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {key}")
        for field in self._FIELDS:
            value = given.get(field, 0 if field == "max_mem" else -1)
            if not hasattr(value, "__index__"):
                raise RuntimeError(f"OrtArenaCfg option {field} is not an integer: {value!r}")
            setattr(self, field, int(value))


def _kind(type_: int, vendor: int) -> str:
    if type_ == _GPU and vendor == OrtDeviceVendorId.NONE:
        return "cuda"
    for name, numbers in _NAMES.items():
        if numbers == (type_, vendor):
            return name
    return {_GPU: "gpu", _FPGA: "fpga", _NPU: "npu", _DML: "dml"}.get(type_, "cpu")
