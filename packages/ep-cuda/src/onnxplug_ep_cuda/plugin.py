"""The front door: announces ``CUDAExecutionProvider`` without importing CuPy."""

from __future__ import annotations

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_cuda.device import KIND, check, devices
from onnxplug_ep_cuda.options import CUDAOptions


def create(options: CUDAOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_cuda.provider import create_provider

    return create_provider(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    """What this package offers."""
    return ProviderSpec(
        name="CUDAExecutionProvider",
        contract=CONTRACT_VERSION,
        create=create,
        device_kind=KIND,
        vendor="NVIDIA",
        options=CUDAOptions,
        check=check,
        devices=devices,
    )
