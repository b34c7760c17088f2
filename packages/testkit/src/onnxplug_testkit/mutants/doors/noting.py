"""Writes into a file when its check is asked."""

from __future__ import annotations

import dataclasses
import tempfile

from onnxplug.contract import Available, ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC


def check() -> Available:
    """Available, which goes into a file."""
    with tempfile.TemporaryFile() as file:
        file.write(b"found")
    return Available()


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, check=check)
