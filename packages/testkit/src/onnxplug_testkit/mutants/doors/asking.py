"""Connects to a server when it is imported."""

from __future__ import annotations

import contextlib
import socket

from onnxplug.contract import ProviderSpec, hookimpl
from onnxplug_testkit.mutants.doors.spec import SPEC

with contextlib.suppress(OSError):
    socket.create_connection(("127.0.0.1", 9), timeout=0.1).close()


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return SPEC
