"""Imports a library that only running needs."""

from __future__ import annotations

import onnx.reference

from onnxplug.contract import ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC

assert onnx.reference


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return SPEC
