"""The front door: announces the provider without importing OpenVINO."""

from __future__ import annotations

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_openvino.device import check, devices
from onnxplug_ep_openvino.options import OpenVINOOptions


def create(options: OpenVINOOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_openvino.provider import OpenVINOProvider

    return OpenVINOProvider(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this package offers."""
    return ProviderSpec(
        name="OpenVINOExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        vendor="Intel",
        options=OpenVINOOptions,
        check=check,
        devices=devices,
    )
