"""The announcement the doors share, made without importing anything heavy."""

from __future__ import annotations

from typing import Any

from onnxplug.contract import CONTRACT_VERSION, ProviderSpec, SessionContext
from onnxplug_ep_reference.options import ReferenceOptions


def create(options: ReferenceOptions, context: SessionContext) -> Any:
    """The reference."""
    from onnxplug_ep_reference.provider import ReferenceProvider

    return ReferenceProvider(options, context)


SPEC = ProviderSpec("MutantExecutionProvider", CONTRACT_VERSION, create, options=ReferenceOptions)
