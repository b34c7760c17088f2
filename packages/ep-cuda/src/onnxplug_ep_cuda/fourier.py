"""Fourier transforms by cuFFT, with plans that are the session's.

CuPy keeps the plans it makes for as long as a thread lives, with scratch memory out of whichever allocator was current: of a session that
may be closed by then, or whose stream works with the same memory at the same time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

KEPT = 32
"""Plans of a session."""
_KINDS = {"fft": ("C2C", "Z2Z"), "ifft": ("C2C", "Z2Z"), "rfft": ("R2C", "D2Z"), "irfft": ("C2R", "Z2D")}
"""cuFFT's names of a transform of 32-bit and of 64-bit numbers."""


class Transforms:
    """``xp.fft`` along one axis. ``lasting()``: memory taken inside is not a recording's; ``hold(plan)``: what is queued now uses it."""

    def __init__(
        self,
        cupy: Any,
        lasting: Callable[[], AbstractContextManager[Any]] = nullcontext,
        hold: Callable[[Any], None] = lambda plan: None,
    ) -> None:
        self._cupy, self._lasting, self._hold = cupy, lasting, hold
        self._plans: OrderedDict[tuple[int, str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def fft(self, x: Any, /, *, n: int, axis: int) -> Any:
        """Of complex numbers."""
        return self._transformed("fft", x, n, axis)

    def ifft(self, x: Any, /, *, n: int, axis: int) -> Any:
        """Its inverse."""
        return self._transformed("ifft", x, n, axis)

    def rfft(self, x: Any, /, *, n: int, axis: int) -> Any:
        """Of real numbers, the half that tells all."""
        return self._transformed("rfft", x, n, axis)

    def irfft(self, x: Any, /, *, n: int, axis: int) -> Any:
        """Its inverse."""
        return self._transformed("irfft", x, n, axis)

    def close(self) -> None:
        """Give the plans back."""
        with self._lock:
            self._plans.clear()

    def _transformed(self, name: str, x: Any, n: int, axis: int) -> Any:
        function = getattr(self._cupy.fft, name)
        if x.size == 0:
            return function(x, n=n, axis=axis)
        kind = _KINDS[name][x.dtype.itemsize == (8 if name == "rfft" else 16)]
        with self._lock:  # a plan is one thread's at a time; on the device the session's stream keeps the order
            plan = self._plan((n, kind, x.size // x.shape[axis]))
            with plan:
                return function(x, n=n, axis=axis)

    def _plan(self, key: tuple[int, str, int]) -> Any:
        found = self._plans.pop(key, None)
        if found is None:
            cufft, (n, kind, batch) = self._cupy.cuda.cufft, key
            with self._lasting():
                found = cufft.Plan1d(n, getattr(cufft, f"CUFFT_{kind}"), batch)
        self._plans[key] = found
        while len(self._plans) > KEPT:
            self._plans.popitem(last=False)
        self._hold(found)
        return found
