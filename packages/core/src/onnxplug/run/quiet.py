"""NumPy's warnings switched off while a graph runs: that a result is infinite is no user's business.

``np.errstate`` composes its state anew each time, which takes as long as a small kernel. NumPy keeps the state in a context
variable, so that it is enough to set one that was composed once.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token
from typing import Any

import numpy as np


def _composed() -> tuple[ContextVar[Any], Any]:
    context = Context()
    context.run(np.seterr, all="ignore")
    ((variable, state),) = context.items()
    return variable, state


_VARIABLE, _QUIET = _composed()


def hush() -> Token[Any]:
    """No warnings in this thread until ``restore`` is given the token."""
    return _VARIABLE.set(_QUIET)


restore = _VARIABLE.reset


class Quiet:
    """The same between ``with``, once at a time."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = hush()

    def __exit__(self, *exception: object) -> None:
        restore(self._token)
