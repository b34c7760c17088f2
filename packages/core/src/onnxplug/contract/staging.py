"""Page-locked host memory through which copies to the device go, so that the host need not wait for them.

`Staging` is imported from `onnxplug.contract.staging`. A block is taken again when the device has read it; where blocks come from, and how
to tell that, is the provider's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from onnxplug.contract.logs import Log

log = Log("onnxplug.staging")
SMALLEST = 64 << 10
LARGEST = 16 << 20
"""Larger copies are worth waiting for: they go straight from the caller's memory."""


class Staging:
    """A pool of blocks. ``make(nbytes)`` gives a block, or raises ``refused``: systems limit such memory; ``done(mark)`` tells whether the
    device has passed a mark."""

    def __init__(
        self,
        make: Callable[[int], Any],
        done: Callable[[Any], bool],
        budget: int = 64 << 20,
        refused: type[Exception] = MemoryError,
    ) -> None:
        self._make, self._done, self._budget, self._refused = make, done, budget, refused
        self._busy: deque[tuple[int, Any, Any]] = deque()
        self._idle: dict[int, list[Any]] = {}
        self._made = 0
        self._lock = threading.Lock()

    @staticmethod
    def size_class(nbytes: int) -> int | None:
        """Bytes of the block that takes a copy: a power of two; None where the copy is too large to stage."""
        if nbytes > LARGEST:
            return None
        return max(SMALLEST, 1 << max(nbytes - 1, 0).bit_length())

    def take(self, nbytes: int) -> tuple[int, Any] | None:
        """Size and block for a copy; None where it is too large, or all blocks are in use and the budget is spent."""
        size = self.size_class(nbytes)
        if size is None:
            return None
        with self._lock:
            self._collect()
            if idle := self._idle.get(size):
                return size, idle.pop()
            if self._made + size > self._budget:
                return None
            self._made += size
        try:
            return size, self._make(size)
        except self._refused as error:
            log.warning("no more page-locked memory for copies to the device, which wait from now on: %s", error)
            with self._lock:
                self._made -= size
                self._budget = self._made
            return None

    def give(self, size: int, block: Any, mark: Any) -> None:
        """A block back, to be used when the device has passed ``mark``."""
        with self._lock:
            self._busy.append((size, block, mark))

    def _collect(self) -> None:
        while self._busy and self._done(self._busy[0][2]):
            size, block, _ = self._busy.popleft()
            self._idle.setdefault(size, []).append(block)
