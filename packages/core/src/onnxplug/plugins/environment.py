"""Providers outside any session: OrtValues may live on a device before a session exists."""

from __future__ import annotations

import dataclasses
import logging

from onnxplug.contract.provider import SessionContext
from onnxplug.plugins import registry
from onnxplug.plugins.instance import ProviderInstance, create_instance


def provider_for_device(kind: str, device_id: int) -> ProviderInstance:
    """A fresh instance of the first usable provider of a device kind, for the device of this index (its option
    ``device_id``, where it has one). LookupError when there is none."""
    specs = [registry.spec(name) for name in registry.available_providers()]
    spec = next((s for s in specs if s.device_kind == kind), None)
    if spec is None:
        kinds = ", ".join(sorted({s.device_kind for s in specs})) or "none"
        raise LookupError(f"no usable provider drives a device of kind '{kind}' (there are: {kinds})")
    indexed = any(field.name == "device_id" for field in dataclasses.fields(spec.options))
    context = SessionContext(threads=1, config={}, log=logging.getLogger("onnxplug"))
    return create_instance(spec, {"device_id": str(device_id)} if indexed else {}, context)
