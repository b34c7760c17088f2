"""Which providers a session uses when its options name a policy, or a function, in place of a list."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onnxplug.contract.errors import Fail
from onnxplug.session.device_enums import OrtExecutionProviderDevicePolicy as Policy
from onnxplug.session.device_enums import OrtHardwareDeviceType as Kind
from onnxplug.session.ep_devices import OrtEpDevice, get_ep_devices
from onnxplug.session.selection import CPU

MAX_SELECTIONS = 8
_WANTED = {
    Policy.PREFER_NPU: Kind.NPU, Policy.MAX_EFFICIENCY: Kind.NPU, Policy.MIN_OVERALL_POWER: Kind.NPU,
    Policy.PREFER_GPU: Kind.GPU, Policy.MAX_PERFORMANCE: Kind.GPU,
}  # fmt: skip
_ORDER = {Kind.NPU: 0, Kind.GPU: 1, Kind.CPU: 2}

Pair = tuple[str, dict[str, str]]
Delegate = Callable[[Sequence[OrtEpDevice], Mapping[str, str], Mapping[str, str], int], Sequence[OrtEpDevice]]


def by_policy(policy: Policy | Delegate, metadata: Callable[[], Mapping[str, str]]) -> list[Pair]:
    """(provider, options) pairs in priority order. ``metadata`` is asked for when a function decides. Fail when the
    function selects nothing, raises, or gives what are no devices."""
    devices = in_order(get_ep_devices())
    if isinstance(policy, Policy):
        wanted = [d for d in devices if d.device.type == _WANTED.get(policy)]
        return as_providers(_first_of_each(wanted) + host_of(devices))
    try:
        selected = list(policy(devices, metadata(), {}, MAX_SELECTIONS))
    except Exception as error:
        raise Fail(f"EP selection delegate failed: {type(error).__name__}: {error}") from error
    if not selected:
        raise Fail("EP selection delegate did not select anything.")
    if len(selected) > MAX_SELECTIONS or not all(isinstance(each, OrtEpDevice) for each in selected):
        raise Fail(f"EP selection delegate must select at most {MAX_SELECTIONS} of the devices given, not {selected!r}")
    return as_providers(selected)


def in_order(devices: Sequence[OrtEpDevice]) -> list[OrtEpDevice]:
    """NPU before GPU before CPU, discrete GPUs before others; of one device's providers the vendor's own first, the CPU
    provider last. Providers that rank below the CPU provider are no candidates."""
    candidates = list(devices)
    cpu = next((at for at, each in enumerate(devices) if each.ep_name == CPU), len(candidates))
    return sorted(candidates[: cpu + 1], key=_rank)


def _rank(each: OrtEpDevice) -> tuple[int, bool, bool, bool]:
    hardware = each.device
    own = bool(hardware.vendor) and each.ep_vendor.lower() == hardware.vendor.lower()
    return _ORDER[hardware.type], hardware.metadata.get("Discrete") != "1", each.ep_name == CPU, not own


def host_of(devices: Sequence[OrtEpDevice]) -> list[OrtEpDevice]:
    """The CPU provider's devices."""
    return [each for each in devices if each.ep_name == CPU]


def _first_of_each(devices: Iterable[OrtEpDevice]) -> list[OrtEpDevice]:
    """The first device of each provider: a policy is about kinds of devices, and one of a kind is what it asks for."""
    found: dict[str, OrtEpDevice] = {}
    for each in devices:
        found.setdefault(each.ep_name, each)
    return list(found.values())


def as_providers(devices: Iterable[OrtEpDevice]) -> list[Pair]:
    """The provider of each device, with the options that make it use the device."""
    return [(each.ep_name, device_options(each)) for each in devices]


def device_options(each: OrtEpDevice) -> dict[str, str]:
    """The options that make a provider use this device."""
    from onnxplug.plugins import registry

    indexed = any(field.name == "device_id" for field in dataclasses.fields(registry.spec(each.ep_name).options))
    return {**each.ep_options, **({"device_id": str(each.device.device_id)} if indexed else {})}


def described(proto: Any) -> dict[str, str]:
    """A model's metadata as a function that selects providers is shown it."""
    from onnxplug.load.model import metadata

    known = metadata(proto)
    names = {"doc_string": "description", "model_version": "version"}
    keys = ("doc_string", "domain", "graph_description", "graph_name", "model_version", "producer_name")
    return {"producer_version": proto.producer_version, **{k: str(known[names.get(k, k)]) for k in keys}}
