"""What runs here, for tools that list it: kernels, operator schemas, hardware, and whether compiled models fit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from onnxplug.contract.errors import STATUS_ERRORS, Fail, InvalidArgument
from onnxplug.contract.kernels import KernelRegistry
from onnxplug.contract.provider import CONTRACT_VERSION, SessionContext
from onnxplug.contract.records import record
from onnxplug.load import load_model
from onnxplug.plugins import create_instance, registry
from onnxplug.plugins.record import ProviderLookupError
from onnxplug.session.device_enums import OrtCompiledModelCompatibility as Compatibility
from onnxplug.session.ep_devices import OrtEpDevice, OrtHardwareDevice, get_ep_devices
from onnxplug.session.schemadef import OpSchema
from onnxplug.session.selection import op_schemas

COMPATIBILITY = "ep_compatibility_info."
"""Metadata keys of compiled models, followed by the provider's name."""


@record(frozen=True, slots=True)
class KernelDef:
    """A registered kernel: (first, last) schema version and the types that each constraint takes."""

    op_name: str
    domain: str
    provider: str
    version_range: tuple[int, int]
    type_constraints: dict[str, list[str]]


def get_all_opkernel_def() -> list[KernelDef]:
    """The kernels of all providers that can be used here."""
    return [each for name in registry.available_providers() for each in get_registered_ep_kernel_defs(name)]


def get_registered_ep_kernel_defs(ep_name: str) -> list[KernelDef]:
    """The kernels of one provider. Fail when it cannot be used here."""
    try:
        spec = registry.spec(ep_name)
    except ProviderLookupError as error:
        raise Fail(str(error)) from error
    with _instance(spec) as instance:
        found = instance.call("get_kernel_registry") or KernelRegistry()
        return [
            KernelDef(
                each.op_type,
                each.domain,
                ep_name,
                (each.since, each.last),
                {k: sorted(v) for k, v in each.types.items()},
            )
            for each in found
        ]


@contextmanager
def _instance(spec: Any) -> Iterator[Any]:
    """A provider as a session without options has it, closed after use."""
    context = SessionContext(threads=1, config={}, log=logging.getLogger("onnxplug"))
    try:
        instance = create_instance(spec, {}, context)
    except ProviderLookupError as error:
        raise Fail(str(error)) from error
    try:
        yield instance
    finally:
        instance.call("close")


def get_all_operator_schema() -> list[OpSchema]:
    """Schemas of operators: onnx's, every version, and those that the providers bring which can be used here, each once."""
    from onnx import defs

    found = {(s.domain, s.name, s.since_version): s for s in defs.get_all_schemas_with_history()}
    for name in registry.available_providers():
        with _instance(registry.spec(name)) as instance:
            for schema in op_schemas([instance]):
                found.setdefault((schema.domain, schema.name, schema.since_version), schema)
    return list(map(OpSchema, found.values()))


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The devices that providers announce, each once."""
    found: list[OrtHardwareDevice] = []
    for each in get_ep_devices():
        alike = ((d.type, d.vendor, d.device_id) for d in found)
        if (each.device.type, each.device.vendor, each.device.device_id) not in alike:
            found.append(each.device)
    return found


def get_hardware_device_ep_incompatibility_details(ep_name: str, device: OrtHardwareDevice) -> dict[str, Any]:
    """Whether a provider can drive a device: ``reasons_bitmask`` 0 and no notes when it can be used here, else
    MISSING_DEPENDENCY and the reason. InvalidArgument for the name of no provider that is installed, TypeError for none."""
    if not isinstance(ep_name, str):
        raise TypeError(f"The name of a provider is a str, not {type(ep_name).__name__}")
    if ep_name in registry.available_providers():
        return {"reasons_bitmask": 0, "notes": None, "error_code": 0}
    if registry.record(ep_name) is None:
        raise InvalidArgument(f"No valid factory found for execution provider '{ep_name}'.")
    return {"reasons_bitmask": 4, "notes": registry.explain_missing(ep_name), "error_code": 0}


def compatibility_info(provider: str) -> str:
    """What a compiled model says of the provider it was compiled for."""
    return f"{provider};contract={'.'.join(map(str, CONTRACT_VERSION))}"


def get_model_compatibility_for_ep_devices(ep_devices: Sequence[OrtEpDevice], compatibility: str) -> Compatibility:
    """Whether the provider of these devices can use a model that was compiled with this information. TypeError for information
    that is no text, RuntimeError for no devices and for those of several providers."""
    if not isinstance(compatibility, str):
        raise TypeError(f"The information of a compiled model is a str, not {type(compatibility).__name__}")
    names = {each.ep_name for each in ep_devices}
    if len(names) != 1:
        raise RuntimeError(f"The devices must belong to one provider, not {sorted(names)}")
    name = names.pop()
    if compatibility.split(";")[0] != name:
        return Compatibility.EP_NOT_APPLICABLE
    fits = compatibility == compatibility_info(name)
    return Compatibility.EP_SUPPORTED_OPTIMAL if fits else Compatibility.EP_UNSUPPORTED


def get_compatibility_info_from_model(model_path: str, ep_type: str) -> str | None:
    """What a model file says of the provider it was compiled for, None where it says nothing. RuntimeError for a file that
    cannot be read."""
    return _info(model_path, ep_type)


def get_compatibility_info_from_model_bytes(model_data: bytes, ep_type: str) -> str | None:
    """As ``get_compatibility_info_from_model``, of a serialized model."""
    return _info(bytes(model_data), ep_type)


def _info(source: str | bytes, ep_type: str) -> str | None:
    try:
        proto = load_model(source).proto
    except STATUS_ERRORS as error:
        raise RuntimeError(f"The model cannot be read: {error}") from error
    return next((p.value for p in proto.metadata_props if p.key == COMPATIBILITY + ep_type), None)
