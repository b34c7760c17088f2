"""The front door: announces the provider without importing pyopencl."""

from __future__ import annotations

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_opencl.device import KIND, check, devices
from onnxplug_ep_opencl.options import OpenCLOptions


def create(options: OpenCLOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_opencl.provider import OpenCLProvider

    return OpenCLProvider(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this package offers."""
    return ProviderSpec(
        name="OpenCLExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        device_kind=KIND,
        vendor="Khronos",
        options=OpenCLOptions,
        check=check,
        devices=devices,
        several_devices=True,
    )
