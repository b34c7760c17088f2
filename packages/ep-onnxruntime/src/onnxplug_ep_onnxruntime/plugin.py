"""The front door: announces the providers without importing onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_onnxruntime.catalogue import ALL, Bridged
from onnxplug_ep_onnxruntime.device import check, devices
from onnxplug_ep_onnxruntime.options import BridgeOptions


def create(bridged: Bridged, options: BridgeOptions, context: SessionContext) -> ExecutionProvider:
    """The provider of one session."""
    from onnxplug_ep_onnxruntime.provider import BridgeProvider

    return BridgeProvider(bridged, options, context)


def spec(bridged: Bridged) -> ProviderSpec:
    """What is announced of one provider."""
    return ProviderSpec(
        name=bridged.name,
        contract=CONTRACT_VERSION,
        create=partial(create, bridged),
        vendor=bridged.vendor,
        options=bridged.options,
        check=partial(check, bridged),
        devices=partial(devices, bridged),
    )


@hookimpl
def onnxplug_provider() -> Sequence[ProviderSpec]:
    """What this package offers."""
    return [spec(bridged) for bridged in ALL]
