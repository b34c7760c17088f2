"""Devices that providers announce, and which provider took which nodes, in onnxruntime's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from onnxplug.contract.memory import Device
from onnxplug.contract.provider import DeviceInfo, ProviderSpec
from onnxplug.contract.records import record
from onnxplug.session.device import OrtDevice, OrtMemoryInfo
from onnxplug.session.device_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
)
from onnxplug.session.logging import process_logger


@record(frozen=True, slots=True)
class OrtHardwareDevice:
    """A device as its provider describes it. ``vendor_id`` is the PCI number, 0 where the provider gives none."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class OrtEpDevice:
    """A provider together with one device it can drive."""

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str]
    ep_options: Mapping[str, str]
    device: OrtHardwareDevice
    device_kind: str

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """The device's memory, or host memory that it reaches, for
        ``OrtValue.ortvalue_from_shape_and_type(memory_info=...)``.
        """
        device = OrtDevice.make(self.device_kind, self.device.device_id)
        return OrtMemoryInfo.create_v2(
            self.device_kind,
            OrtMemoryInfoDeviceType(device.device_type()),
            device.device_vendor_id(),
            device.device_id(),
            memory_type,
            0,
            OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
        )

    def create_sync_stream(self) -> OrtSyncStream:
        """A queue of work on the device. RuntimeError where the provider has none."""
        from onnxplug.plugins.environment import provider_for_device

        try:
            instance = provider_for_device(self.device_kind, self.device.device_id)
        except LookupError as error:
            raise RuntimeError(f"{self.ep_name}: {error}") from None
        if not instance.supports("create_stream"):
            raise RuntimeError(f"{self.ep_name} has no streams: ep_device does not use memory of a non-CPU device.")
        device = Device(self.device_kind, self.device.device_id)
        return OrtSyncStream(instance.call("create_stream", device=device), instance)


class OrtSyncStream:
    """A provider's queue of work, as its device library has it."""

    __slots__ = ("_owner", "_stream")

    def __init__(self, stream: Any, owner: Any) -> None:
        self._stream, self._owner = stream, owner

    def get_handle(self) -> int:
        """The number by which other libraries know the stream, 0 where it has none."""
        for name in ("ptr", "handle", "int_ptr"):
            value = getattr(self._stream, name, None)
            if isinstance(value, int):
                return value
        return self._stream if isinstance(self._stream, int) else 0


@record(frozen=True, slots=True)
class OrtEpAssignedNode:
    """A node of a placed graph."""

    name: str
    op_type: str
    domain: str


@record(frozen=True, slots=True)
class OrtEpAssignedSubgraph:
    """Nodes that one provider runs."""

    ep_name: str
    nodes: Sequence[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)


def get_ep_devices() -> list[OrtEpDevice]:
    """One entry for each device of each provider that can be used here; a provider that announces no device counts as
    one CPU device.
    """
    from onnxplug.plugins import registry

    found = []
    for spec in map(registry.spec, registry.available_providers()):
        record = registry.record(spec.name)
        version = "" if record is None else record.version
        metadata = {"version": version, "contract": ".".join(map(str, spec.contract))}
        for info in _devices(spec):
            vendor_id = int(OrtDeviceVendorId.__members__.get(info.vendor.upper(), OrtDeviceVendorId.NONE))
            details = {"name": info.name, **info.metadata}
            hardware = OrtHardwareDevice(OrtHardwareDeviceType[info.type], info.vendor, vendor_id, info.id, details)
            found.append(OrtEpDevice(spec.name, spec.vendor, metadata, dict(info.options), hardware, spec.device_kind))
    return found


def _devices(spec: ProviderSpec) -> Sequence[DeviceInfo]:
    try:
        return spec.devices() or [DeviceInfo("CPU")]
    except Exception:
        process_logger().warning("%s cannot list its devices", spec.name, exc_info=True)
        return []
