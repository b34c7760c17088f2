"""Who is tried after providers that could not be used, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onnxplug.session.provider_args import TENSORRT, names_among
from onnxplug.session.selection import CPU, Available

if TYPE_CHECKING:
    from onnxplug.contract.errors import EPFail
    from onnxplug.contract.logs import Logger

CUDA = "CUDAExecutionProvider"


def fallback_for(providers: Any) -> list[str]:
    """CUDA after the TensorRT that can be used here, where both were asked for, else the CPU."""
    names = names_among(providers)
    if CUDA in names and any(name in names for name in TENSORRT):
        here = Available()
        if next((name for name in TENSORRT if name in here), None) in names:
            return [CUDA, CPU]
    return [CPU]


def create_on_fallback(create: Callable[[list[str], None], None], error: Exception, providers: Any) -> None:
    """Have a session made without the providers that gave ``error``, which is the cause of what fails then."""
    rest = fallback_for(providers)
    print("*************** EP Error ***************")
    print(f"EP Error {error} when using {providers}")
    print(f"Falling back to {rest} and retrying.")
    print("****************************************")
    try:
        create(rest, None)
    except Exception as again:
        raise again from error


def announce_failed_run(error: EPFail, providers: list[str], rest: list[str], log: Logger) -> None:
    """Say that a run is repeated on ``rest``: as onnxruntime does, and in the log, which names the provider."""
    print(f"EP Error: {error} using {providers}")
    print(f"Falling back to {rest} and retrying.")
    failed = getattr(error, "provider", None)
    log.warning("%s failed at run time, the session goes on without it: %s", failed, error.text)
