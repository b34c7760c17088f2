"""onnxruntime's errors as onnxplug's, of the same class and with the provider's name."""

from __future__ import annotations

import re

from onnxplug.contract.errors import STATUS_ERRORS, Fail, RuntimeException

_CLASSES = {each.__name__: each for each in STATUS_ERRORS}
_OF_NODE = "Non-zero status code returned while running"
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


def text_of(error: BaseException) -> str:
    """What an error of onnxruntime says, in one line."""
    return " ".join(_PREFIX.sub("", str(error)).split())


def translated(error: Exception, provider: str) -> Exception:
    """The error as a run or a creation raises it; where onnxruntime's class is none of ours, Fail for a node's and RuntimeException."""
    if isinstance(error, STATUS_ERRORS):
        return error
    made = _CLASSES.get(type(error).__name__, Fail if _OF_NODE in str(error) else RuntimeException)
    return made(f"{text_of(error)} (provider {provider})")
