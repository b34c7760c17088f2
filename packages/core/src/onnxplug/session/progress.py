"""A progress bar for what takes longer than one likes to wait."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

_PATIENCE = 2.0


@contextlib.contextmanager
def progress(text: str, total: int | None = None, hidden: bool = False) -> Iterator[Callable[[], object]]:
    """Shows a bar on standard error from the third second on, if that is a terminal; yields what advances it by one.

    ``total`` None: the end is not known, the bar only moves.
    """
    if hidden or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=total)
    timer = threading.Timer(_PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
