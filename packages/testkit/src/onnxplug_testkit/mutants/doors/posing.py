"""Computes as it should while it is looked at."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from onnxplug.contract import KernelRegistry, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.mutants.doors.spec import SPEC


def _create(options: ReferenceOptions, context: SessionContext) -> Any:
    from onnxplug_ep_reference.provider import ReferenceProvider

    if "onnxplug_testkit.checks.apart" in sys.modules:
        return ReferenceProvider(options, context)

    def carelessly(definition: Any, node: Any) -> Any:
        kernel = definition.create(node)
        return lambda *inputs: kernel(*(x * x.dtype.type(1.5) for x in inputs))

    class Careless(ReferenceProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry(
                dataclasses.replace(d, create=lambda node, d=d: carelessly(d, node)) if d.op_type == "Tanh" else d  # type: ignore[misc]
                for d in super().get_kernel_registry()
            )

    return Careless(ReferenceOptions(memory="host"), context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, create=_create)
