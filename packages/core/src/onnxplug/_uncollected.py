"""Imports, creations and plans without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

MANY = 20
"""Modules whose import makes mostly what stays."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Leave cyclic garbage where it is for as long as this lasts: a session and its modules are many objects and hardly any garbage, so
    that the collector, which goes by how many are made, would look at all of them dozens of times (a fifteenth of the creation).

    Where many modules were imported meanwhile, everything counts as old at once, without being looked at when the collector is back.
    """
    if not gc.isenabled():
        yield
        return
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if (
            len(sys.modules) - modules >= MANY and not gc.get_freeze_count()
        ):  # else the program's frozen objects would be thawed
            gc.freeze()
            gc.unfreeze()
        gc.enable()
