"""Measurements in processes of their own: what one of them breaks, or hangs in, costs no other.

A child measures items in order and writes a line of JSON for each. Where it dies or an item outlasts its time, the result of the item under
way says so, and another child goes on behind it.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Told = Callable[[Sequence[Row]], None]
"""Is given the rows that there are, whenever there are more."""
LOST = 75
"""Exit status of a child whose device failed: nothing that comes after in that process would be right."""
NOT_RUN = "not run: the time was up"
_TAIL = 2000
_POLL = 0.05
_WATCH = 0.5
_START = 60.0
"""Seconds more for the first item of a child, which loads libraries and data."""
_WHERE = signal.SIGUSR1
"""Makes a child say where each of its threads is."""
_SAYS = 0.5
"""Seconds it is given for that."""


def _nobody(rows: Sequence[Row]) -> None:
    """Nobody wants to know."""


def side_by_side(
    command: Sequence[str],
    items: Sequence[str],
    seconds: float,
    deadline: float | None = None,
    jobs: int = 1,
    told: Told = _nobody,
) -> list[Row]:
    """``measured`` with that many children at a time; rows in the order of the items."""
    shares = [items[n::jobs] for n in range(jobs)]
    rows: dict[str, Row] = {}
    lock = threading.Lock()

    def tell(some: Sequence[Row]) -> None:
        with lock:
            rows.update((row["item"], row) for row in some)
            told([rows[item] for item in items if item in rows])

    with ThreadPoolExecutor(jobs) as pool:
        for share in pool.map(lambda share: measured(command, share, seconds, deadline, told=tell), shares):
            rows.update((row["item"], row) for row in share)
    return [rows[item] for item in items]


def measured(
    command: Sequence[str],
    items: Sequence[str],
    seconds: float,
    deadline: float | None = None,
    poll: float = _POLL,
    told: Told = _nobody,
) -> list[Row]:
    """A row for each item. ``command`` starts a child that calls ``serve``; two paths follow it: of the items, and of the rows to be
    written. ``seconds``: for one item; ``deadline``: by ``time.monotonic``, nothing is begun behind it."""
    rows: list[Row] = []
    while len(rows) < len(items):
        left = list(items[len(rows) :])
        if deadline is not None and time.monotonic() >= deadline:
            return rows + [{"item": item, "error": NOT_RUN} for item in left]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "rows"
            given = [*command, *_given(left, Path(folder)), str(report)]
            why = _child(given, report, seconds, deadline, poll, functools.partial(behind, told, tuple(rows)))
            rows += (found := read(report))
        if len(found) < len(left) and (why is not None or not found):
            rows.append({"item": left[len(found)], "error": why or "ended without a result"})
    return rows


def serve(measure: Callable[[str], Row], given: Path, report: Path) -> int:
    """The child's part: measure the items of a file; its exit status. It ends when its parent does, which may be killed."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    log = os.fdopen(os.dup(2), "w")  # that of pytest, which takes the other for itself, is not its parent's
    faulthandler.enable(log)
    faulthandler.register(_WHERE, log)
    with report.open("a") as file:
        for item in json.loads(given.read_text()):
            try:
                row = measure(item)
            except Exception as error:  # whatever goes wrong is a result
                row = {"error": f"{type(error).__name__}: {error}"[:_TAIL], "trace": traceback.format_exc()[-_TAIL:]}
            file.write(json.dumps({"item": item, **row}) + "\n")
            file.flush()
            if "error" in row and device_lost():
                return LOST
    return 0


def read(report: Path) -> list[Row]:
    """The rows a child wrote, without a last one that is cut off."""
    if not report.exists():
        return []
    return [json.loads(line) for line in report.read_text().splitlines(keepends=True) if line.endswith("\n")]


def device_lost() -> bool:
    """Whether CUDA has failed in this process, which it then does to the end."""
    if "cupy" not in sys.modules:
        return False
    from cupy.cuda import runtime

    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError:
        return True
    return False


def behind(told: Told, before: Sequence[Row], rows: Sequence[Row]) -> None:
    """Tell of rows that come behind others."""
    told([*before, *rows])


def _follow(parent: int) -> None:
    """End this process, and what it started, when another one is its parent."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(LOST)


def _given(items: Sequence[str], folder: Path) -> list[str]:
    path = folder / "items"
    path.write_text(json.dumps(items))
    return [str(path)]


def _child(
    command: Sequence[str],
    report: Path,
    seconds: float,
    deadline: float | None,
    poll: float,
    told: Told,
) -> str | None:
    """Run a child to its end, telling its rows; why its last item has none, None where all is well or the device was lost behind one."""
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        why, size, since = None, 0, time.monotonic()
        while child.poll() is None and why is None:
            now, written = time.monotonic(), report.stat().st_size if report.exists() else 0
            if written != size:
                size, since = written, now
                told(read(report))
            if now - since > seconds + (0 if written else _START):
                why = f"took more than {seconds:g} s"
            elif deadline is not None and now > deadline:
                why = NOT_RUN
            else:
                time.sleep(poll)
        if why is not None:
            os.kill(child.pid, _WHERE)
            time.sleep(_SAYS)
            os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
        log.seek(0)
        text = log.read()
    print(text, end="", flush=True)
    if why is None and status not in (0, LOST):
        why = f"the process ended with status {status}"
    return why if why in (None, NOT_RUN) else f"{why}: {text[-_TAIL:]}"
