"""A creation without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Leave cyclic garbage where it is for as long as this lasts: a creation makes many objects and hardly any garbage, so that the
    collector, which goes by how many are made, would look at all of them dozens of times (a fifteenth of the creation)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
