"""NumPy's warnings switched off while a graph runs: that a result is infinite is no user's business.

``np.errstate`` composes its state anew each time, which takes as long as a small kernel. NumPy keeps the state in a context
variable, so that it is enough to set one that was composed once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

import numpy as np


def _switches() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    context = Context()
    context.run(np.seterr, all="ignore")
    changed = list(context.items())
    if len(changed) != 1:  # a NumPy that keeps its state elsewhere
        return lambda: np.seterr(all="ignore"), lambda before: np.seterr(**before)
    ((variable, state),) = changed
    return lambda: variable.set(state), variable.reset


hush, restore = _switches()
"""No warnings in this thread from ``hush`` until ``restore`` is given what it returned."""


class Quiet:
    """The same between ``with``, once at a time."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = hush()

    def __exit__(self, *exception: object) -> None:
        restore(self._token)
