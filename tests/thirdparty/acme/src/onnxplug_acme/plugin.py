"""The front door."""

from __future__ import annotations

from onnxplug.contract import (
    CONTRACT_VERSION,
    DeviceInfo,
    ExecutionProvider,
    NoOptions,
    ProviderSpec,
    SessionContext,
    hookimpl,
)


def create(options: NoOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_acme.provider import AcmeProvider

    return AcmeProvider()


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this distribution offers."""
    return ProviderSpec(
        name="AcmeExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        device_kind="acme",
        vendor="Acme",
        devices=lambda: [DeviceInfo("NPU", 0, "Acme", "Anvil 1")],
    )
