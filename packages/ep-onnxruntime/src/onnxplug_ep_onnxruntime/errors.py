"""onnxruntime's errors as onnxplug's, of the same class and with the provider's name."""

from __future__ import annotations

import re

from onnxplug.contract.errors import STATUS_ERRORS, RuntimeException

_CLASSES = {each.__name__: each for each in STATUS_ERRORS}
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def text_of(error: BaseException) -> str:
    """What an error of onnxruntime says, in one line."""
    return " ".join(_PREFIX.sub("", str(error)).split())


def translated(error: Exception, provider: str) -> Exception:
    """The error as a run or a creation raises it; its class is RuntimeException where onnxruntime's is none of ours."""
    if isinstance(error, STATUS_ERRORS):
        return error
    made = _CLASSES.get(type(error).__name__, RuntimeException)
    return made(f"{text_of(error)} (provider {provider})")
