"""Memory of large results, used again once the caller has dropped them.

Fresh memory of many megabytes comes from the system page by page, each filled with zeros when it is first written to, which takes
longer than most results take to compute.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from sys import maxsize
from typing import Any

import numpy as np

from onnxplug.contract.memory import HOST
from onnxplug.plan.steps import Slot

LARGE = 1 << 20
"""Bytes from which on a result's memory is kept."""
_LINE = 64
_STEPS = 8
"""Sizes between a power of two and the next: results that grow by a row in each run share memory."""


Empty = Callable[[tuple[int, ...], np.dtype], np.ndarray]
Made = tuple[int, Empty, tuple[int, ...], np.dtype]
"""A number, and how an array is made for it."""


class _Block:
    """Memory that is lent, and how NumPy is told of it."""

    __slots__ = ("array", "interface", "nbytes")

    def __init__(self, nbytes: int) -> None:
        whole = np.empty(nbytes + _LINE, np.uint8)
        start = -whole.ctypes.data % _LINE
        self.array, self.nbytes = whole[start : start + nbytes], nbytes
        self.interface: dict[str, Any] = self.array.__array_interface__


class _Loan:
    """Memory as the owner of the arrays that show it: it goes back when the last of them is gone."""

    __slots__ = ("__array_interface__", "_block", "_lender")

    def __init__(self, lender: Lender, block: _Block) -> None:
        self._lender, self._block, self.__array_interface__ = lender, block, block.interface

    def __del__(self) -> None:
        self._lender.take_back(self._block)


class Lender:
    """Gives memory to large results, and keeps as much of what comes back as one run takes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._returned: deque[_Block] = deque()
        self._free: list[_Block] = []  # the latest last
        self._held = self._kept = 0

    def serves(self, made: Sequence[Made]) -> list[Made]:
        """How a run is to allocate these arrays: the large ones here, so that memory for all of them is kept from now on."""
        sizes = [0 if dtype.hasobject else math.prod(shape) * dtype.itemsize for _, _, shape, dtype in made]
        self._kept = max(self._kept, sum(room(size) for size in sizes if size >= LARGE))
        return [
            (each[0], partial(self._lend, room(size)), *each[2:]) if size >= LARGE else each
            for each, size in zip(made, sizes, strict=True)
        ]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised array, row-major, on a cache line's boundary."""
        return self._lend(room(math.prod(shape) * dtype.itemsize), shape, dtype)

    def _lend(self, nbytes: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.ndarray(shape, dtype, np.asarray(_Loan(self, self._block(nbytes))))

    def take_back(self, block: _Block) -> None:
        """Called wherever the last reference to an array goes, also in the middle of another call of the same thread."""
        self._returned.append(block)
        if self._lock.acquire(blocking=False):  # whoever has it looks after what came back
            try:
                self._settle()
            finally:
                self._lock.release()

    def clear(self) -> None:
        """Give the system what nobody uses."""
        with self._lock:
            self._returned.clear()
            self._free.clear()
            self._held = 0

    def close(self) -> None:
        """``clear``, and keep nothing that comes back later."""
        self._kept = 0
        self.clear()

    def _block(self, nbytes: int) -> _Block:
        with self._lock:
            self._settle()
            free = self._free
            for at in range(len(free) - 1, -1, -1):
                if free[at].nbytes == nbytes:
                    self._held -= nbytes
                    return free.pop(at)
        return _Block(nbytes)

    def _settle(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free.append(block)
            self._held += block.nbytes
        while self._held > self._kept:
            self._held -= self._free.pop(0).nbytes


def makes_of(fresh: Sequence[Slot], lender: Lender | None) -> list[Made]:
    """How a run makes the arrays of its fresh results in host memory, by slot. MemoryError for one that none can hold."""
    made: list[Made] = [
        (s.number, np.empty, s.spec.shape, s.spec.dtype)
        for s in fresh if s.root is None and s.device == HOST and s.spec
    ]  # fmt: skip
    for number, _, shape, dtype in made:
        if math.prod(max(n, 1) for n in shape) * dtype.itemsize > maxsize:  # as NumPy counts, an empty one too
            value = next(s.value for s in fresh if s.number == number)
            raise MemoryError(
                f"{'a result' if value is None else repr(value.name)} of shape {list(shape)} has no room in memory"
            )
    return made if lender is None else lender.serves(made)


def shows_loan(view: np.ndarray, root: np.ndarray) -> bool:
    """Whether an array was made of lent memory, ``root``, for itself."""
    return isinstance(root.base, _Loan) and root.nbytes == room(view.nbytes)


def room(nbytes: int) -> int:
    """The size of the block that is lent for so many bytes, at most an eighth more: arrays of similar sizes take the same blocks."""
    step = 1 << max(0, nbytes.bit_length() - _STEPS.bit_length())
    return -(-nbytes // step) * step
