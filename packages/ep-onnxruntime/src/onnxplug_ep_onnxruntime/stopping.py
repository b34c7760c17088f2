"""Runs that are told to stop while onnxruntime computes: a thread asks for them, since onnxruntime can only be told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_INTERVAL = 0.02
"""Seconds between two looks at the runs under way."""
_IDLE = 100
"""Looks without a run after which the thread ends."""


class Watcher:
    """Sets ``terminate`` of the options of runs in ``runs`` as soon as what stands for them says so. Whoever enters a run there and finds
    ``awake`` False calls ``start``."""

    def __init__(self) -> None:
        self.runs: dict[Any, Callable[[], bool]] = {}
        self.awake = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Have a thread look at the runs until there are none for a while."""
        with self._lock:
            if not self.awake:
                self.awake = True
                threading.Thread(target=self._look, name="onnxplug onnxruntime watcher", daemon=True).start()

    def forget(self) -> None:
        """Nothing is under way here: the process is a fork of the one that had it."""
        self.__init__()  # type: ignore[misc]

    def _look(self) -> None:
        idle = 0
        while True:
            time.sleep(_INTERVAL)
            for options, cancelled in list(self.runs.items()):
                if cancelled():
                    options.terminate = True
            idle = 0 if self.runs else idle + 1
            if idle > _IDLE:
                with self._lock:
                    self.awake = bool(self.runs)
                    if not self.awake:
                        return


watcher = Watcher()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=watcher.forget)
