"""Options of ``CPUExecutionProvider``."""

from __future__ import annotations

from typing import ClassVar

from onnxplug.contract.records import record


@record(frozen=True)
class CPUOptions:
    """None of its own; keys it does not know are ignored, as onnxruntime's CPU provider does."""

    ignore_unknown: ClassVar[bool] = True
