"""Errors that only a kernel sees, as an index beyond a tensor. Kernels leave numbers in page-locked memory of the host, which the device
writes to where it lies: so nothing is copied or waited for, and nothing of it is in a recording. The host looks there when a run has
waited for its results."""

from __future__ import annotations

import threading

import numpy as np

from onnxplug_kernel_text.nodes.faults import Watched

_PAGE = 1024
"""Words of a block of such memory."""


class _Words:
    """A word for each number that a kernel may leave."""

    def __init__(self) -> None:
        self.pages: list[tuple[np.ndarray, int]] = []

    def address(self, number: int) -> int:
        page, place = divmod(number, _PAGE)
        while len(self.pages) <= page:
            self.pages.append(_page())
        return self.pages[page][1] + place * 4

    def first(self) -> int:
        """The number of the node that came first among those that left one, 0 where none did."""
        for words, _ in self.pages:
            if words.any():
                return int(words[np.flatnonzero(words)[0]])
        return 0

    def clear(self) -> None:
        for words, _ in self.pages:
            words[...] = 0


def _page() -> tuple[np.ndarray, int]:
    """Zeros that the device may write to, and their address, which is the same for both."""
    import cupy

    memory = cupy.cuda.PinnedMemory(_PAGE * 4, cupy.cuda.runtime.hostAllocMapped)
    block = cupy.cuda.PinnedMemoryPointer(memory, 0)
    words = np.frombuffer(block, np.int32, _PAGE)
    words[...] = 0
    return words, int(block.ptr)


class Faults(Watched):
    """The errors that a session's nodes met. While a thread is inside (``with``) its kernels leave numbers in words of its own, so that a
    run ends with its errors and no other's. ``alone``: runs come one after another and share the words, which recordings write to whoever
    replays them. What a run told that nobody waited for is told by a later one."""

    def __init__(self, *, alone: bool = False) -> None:
        super().__init__()
        self._alone = _Words() if alone else None
        self._idle: list[_Words] = []
        self._lending = threading.Lock()
        self._local = threading.local()

    def __enter__(self) -> Faults:
        with self._lending:
            words = self._alone or (self._idle.pop() if self._idle else _Words())
        self._lent().append(words)
        return self

    def __exit__(self, *_: object) -> None:
        words = self._lent().pop()
        if words is not self._alone:
            with self._lending:
                self._idle.append(words)

    def address(self, number: int) -> int:
        """Where this thread's kernels leave a number."""
        return self._lent()[-1].address(number)

    @property
    def asked(self) -> bool:
        """Whether a kernel may have told something."""
        return bool(self._lent() and self._lent()[-1].pages)

    def check(self) -> None:
        """The error of the first node that met one, once the kernels of this thread are done."""
        number = self._lent()[-1].first() if self._lent() else 0
        if number:
            self.forget()
            raise self.error(number)

    def forget(self) -> None:
        """Nothing was told."""
        self._lent()[-1].clear()

    def close(self) -> None:
        """Give the memory back, once nothing is queued that writes to it."""
        self._alone = None
        self._idle.clear()

    def _lent(self) -> list[_Words]:
        found: list[_Words] | None = getattr(self._local, "words", None)
        if found is None:
            found = self._local.words = []
        return found
