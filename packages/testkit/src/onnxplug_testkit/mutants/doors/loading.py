"""Loads a shared library when it is imported."""

from __future__ import annotations

import _ctypes
import ctypes

from onnxplug.contract import ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC

LIBRARY = ctypes.CDLL(_ctypes.__file__)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return SPEC
