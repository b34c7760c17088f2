"""The front door: announces the provider without importing onnx."""

from __future__ import annotations

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_reference.device import KIND, check, devices
from onnxplug_ep_reference.options import ReferenceOptions


def create(options: ReferenceOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_reference.provider import ReferenceProvider

    return ReferenceProvider(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this package offers."""
    return ProviderSpec(
        name="ReferenceExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        device_kind=KIND,
        vendor="onnxplug",
        options=ReferenceOptions,
        check=check,
        devices=devices,
        several_devices=True,
    )
