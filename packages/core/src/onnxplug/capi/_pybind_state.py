"""The names of ``onnxruntime_pybind11_state``."""

from typing import Any

from onnxplug.capi import onnxruntime_pybind11_state as _state

__all__ = list(_state.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_state, name)


def __dir__() -> list[str]:
    return __all__
