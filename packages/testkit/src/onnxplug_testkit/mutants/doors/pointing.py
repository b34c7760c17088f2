"""Exports where in the process a region is."""

from __future__ import annotations

import dataclasses
from typing import Any

from onnxplug.contract import CompiledRegion, ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.mutants.doors.spec import SPEC

_made: list[CompiledRegion] = []


def _create(options: ReferenceOptions, context: SessionContext) -> Any:
    from onnxplug_testkit.mutants.compiling import Compiling, Walk

    class Placed(Walk):
        def export(self) -> bytes | None:
            _made.append(self)
            return str(len(_made) - 1).encode()

    class Pointing(Compiling):
        compiled = Placed

        def load_region(self, blob: bytes) -> CompiledRegion:
            return _made[int(blob)]

    return Pointing(ReferenceOptions(memory="host"), context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, create=_create)
