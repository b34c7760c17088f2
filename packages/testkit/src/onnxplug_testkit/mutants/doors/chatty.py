"""Prints when its check is asked."""

from __future__ import annotations

import dataclasses

from onnxplug.contract import Available, ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC


def check() -> Available:
    """Available, loudly."""
    print("looking for devices ...")
    return Available()


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, check=check)
