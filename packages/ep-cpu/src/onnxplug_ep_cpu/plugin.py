"""The front door: announces ``CPUExecutionProvider``. Kernels are imported when a session is created."""

from __future__ import annotations

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_cpu.device import check, devices, vendor
from onnxplug_ep_cpu.options import CPUOptions


def create(options: CPUOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_cpu.provider import create_provider

    return create_provider(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this package offers."""
    return ProviderSpec(
        name="CPUExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        device_kind="cpu",
        vendor=vendor(),
        options=CPUOptions,
        check=check,
        devices=devices,
    )
