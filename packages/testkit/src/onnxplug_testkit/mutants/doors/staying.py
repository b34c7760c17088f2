"""Has a worker that the interpreter waits for."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from onnxplug.contract import ProviderSpec, SessionContext, hookimpl
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.mutants.doors.spec import SPEC, create


def _create(options: ReferenceOptions, context: SessionContext) -> Any:
    threading.Thread(target=threading.Event().wait).start()
    return create(options, context)


@hookimpl
def onnxplug_provider() -> ProviderSpec:
    return dataclasses.replace(SPEC, create=_create)
