"""CuPy as the array namespace of ``onnxplug_kernels``: itself, but for functions that lack what the Array API standard gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Namespace:
    """Attributes are CuPy's unless they are here. Needs no driver until a function is called."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.linalg = SimpleNamespace(det=cupy.linalg.det, inv=cupy.linalg.inv, diagonal=self._diagonal)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

    def argsort(self, x: Any, /, *, axis: int = -1, stable: bool = True) -> Any:
        """Indices that sort ``x``; CuPy always sorts stably."""
        return self._cupy.argsort(x, axis=axis)

    def _diagonal(self, x: Any, /) -> Any:
        return self._cupy.diagonal(x, axis1=-2, axis2=-1)
