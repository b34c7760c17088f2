"""Sets an environment variable when it is imported."""

from __future__ import annotations

import os

from onnxplug.contract import ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC

os.environ["MUTANT_CACHE"] = "/nowhere"


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return SPEC
