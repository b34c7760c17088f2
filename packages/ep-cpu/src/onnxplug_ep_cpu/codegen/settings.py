"""What users may set about generated code: session config entries ``ep.cpu.*``, and an environment switch."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from onnxplug.contract.logs import Log
from onnxplug.contract.records import record

log = Log("onnxplug.cpu")

PREFIX = "ep.cpu."
SPINNING = "session.intra_op.allow_spinning"


@record(frozen=True, slots=True)
class Settings:
    """``ep.cpu.codegen`` "0": NumPy kernels only (also ``ONNXPLUG_CPU_CODEGEN=0``). ``ep.cpu.target``: a narrower instruction set
    than the machine's widest (avx512, avx2, neon, generic; also ``ONNXPLUG_CPU_TARGET``). ``ep.cpu.winograd`` "0": convolutions by
    direct summation alone, with its smaller error; ``ep.cpu.winograd_memory``: megabytes that filters transformed for Winograd may
    take beyond their own size (default: no limit). ``ep.cpu.tune`` "1": algorithms of layers are measured when their shapes are
    first seen, and the figures kept in the cache. ``session.intra_op.allow_spinning`` other than "1" (onnxruntime's entry, read
    as there): threads without work sleep at once, instead of waiting some 50 ms for the next run."""

    codegen: bool = True
    target: str = ""
    winograd: bool = True
    spinning: bool = True
    winograd_memory: int | None = None
    tune: bool = False


def settings(config: Mapping[str, str]) -> Settings:
    """The settings of a session. Raises ValueError for an entry that means nothing."""
    given = {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}
    codegen = _switch(f"{PREFIX}codegen", given.pop("codegen", os.environ.get("ONNXPLUG_CPU_CODEGEN", "1")))
    target = given.pop("target", os.environ.get("ONNXPLUG_CPU_TARGET", ""))
    winograd = _switch(f"{PREFIX}winograd", given.pop("winograd", "1"))
    memory = _megabytes(f"{PREFIX}winograd_memory", given.pop("winograd_memory", ""))
    tune = _switch(f"{PREFIX}tune", given.pop("tune", "0"))
    if given:
        raise ValueError(
            f"unknown config entry '{PREFIX}{next(iter(given))}'; known are codegen, target, tune, winograd, winograd_memory"
        )
    return Settings(codegen, target, winograd, config.get(SPINNING, "1") == "1", memory, tune)


@functools.cache
def unavailable() -> str | None:
    """Why no code can be generated here, said once in the log, or None."""
    from onnxplug_ep_cpu.codegen.host import host

    try:
        host()
    except (ImportError, OSError) as error:
        log.warning("CPUExecutionProvider runs everything with NumPy: llvmlite cannot be imported (%s)", error)
        return f"llvmlite cannot be imported ({error})"
    return None


def _switch(key: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError(f"config entry '{key}' is '{value}', it must be 0 or 1")
    return value == "1"


def _megabytes(key: str, value: str) -> int | None:
    """Bytes, or None for no limit."""
    if not value:
        return None
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"config entry '{key}' is '{value}', it must be a number of megabytes")
    return int(value) << 20
