"""A creation without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_imported = False
"""Whether a session has been created, with which most modules are imported."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Leave cyclic garbage where it is for as long as this lasts: a creation makes many objects and hardly any garbage, so that the
    collector, which goes by how many are made, would look at all of them dozens of times (a fifteenth of the creation).

    What the process's first creation made is mostly modules and classes, which stay: it counts as old at once, without being looked
    at when the collector is back.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _keep()
        gc.enable()


def _keep() -> None:
    global _imported
    if not _imported and not gc.get_freeze_count():  # else the program has frozen objects, which would be thawed
        gc.freeze()
        gc.unfreeze()
    _imported = True
