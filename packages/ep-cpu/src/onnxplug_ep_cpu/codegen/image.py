"""A finished program: the words that the driver runs, and what they point to."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.entry import Entry

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.kernels.base import Kernel
    from onnxplug_ep_cpu.codegen.trips import Trips

STRETCH = 50_000_000
"""Nanoseconds of estimated work after which a long program looks whether it is still wanted."""
SOLO = 4_000
"""Nanoseconds of estimated work of an operation below which one thread does all of it: to learn what another one did takes a fraction
of that, and what it made lies in its cache."""
SHARED_FROM = 40_000
"""Nanoseconds of estimated work of larger operations from which a program is worth waking other threads for."""

BRIEF = 5_000
"""Nanoseconds of estimated work for which it is not worth letting other threads use the interpreter."""


class Origin(NamedTuple):
    """Where an image's addresses come from: words that hold the address of a kernel, and words that hold one in an array that the image
    keeps, by its number."""

    functions: Sequence[tuple[int, Kernel]]
    placed: Sequence[tuple[int, int]]


def _stretches(works: Sequence[float], threads: int) -> list[tuple[int, int]]:
    """(first call, how many) of each stretch."""
    stretches, first, spent = [], 0, 0.0
    for number, work in enumerate(works):
        spent += work
        if spent > STRETCH * threads:
            stretches.append((first, number + 1 - first))
            first, spent = number + 1, 0.0
    if first < len(works) or not stretches:
        stretches.append((first, len(works) - first))
    return stretches


class Image:
    """A finished program. Read-only: any number of runs may use it at once, each with a workspace of its own."""

    def __init__(
        self,
        words: np.ndarray,
        moves: np.ndarray,
        bases: int,
        kept: Sequence[np.ndarray],
        workspace: int,
        works: np.ndarray,
        threads: int,
        checked: bool,
        marks: Sequence[tuple[int, Sequence[NodeView]]],
        origin: Origin | None = None,
    ) -> None:
        """``words`` and ``moves`` as the driver takes them (see ``driver``); ``bases``: how many there are; ``kept``: arrays that words
        point to; ``works``: nanoseconds of each call on one thread; ``marks``: from which call on calls are of which nodes."""
        each = works.tolist()  # mostly so few that each of NumPy's functions would take longer than all of this
        work, large = sum(each), sum(n for n in each if n >= SOLO)
        self.workspace, self.shared, self._lasts = workspace, threads > 1 and large > SHARED_FROM, work > BRIEF
        self._brief = int(BRIEF // max(work, 1.0)) + 1
        """Trips of it that last longer than that."""
        self.checked = checked
        """Whether a kernel may set the status word."""
        self.words, self.moves, self.kept, self.works, self.threads = words, moves, kept, works, threads
        self.marks, self.origin, self.count = marks, origin, bases
        self._records = [self._record(*stretch) for stretch in _stretches(each, threads)]
        self.records = [record.ctypes.data for record in self._records]
        self.bases: Callable[..., bytes] = struct.Struct(f"{bases}q").pack
        """Makes the third argument of ``launch`` from the ids of the workspace, the inputs and the outputs."""

    def _record(self, first: int, count: int) -> np.ndarray:
        words, moves = self.words, self.moves
        return np.array([words.ctypes.data, len(words), moves.ctypes.data, len(moves), first, count], np.int64)

    def function(self, entry: Entry) -> Callable[..., bool] | None:
        """The program as a function of workspace, inputs and outputs (see ``entry``), where one thread runs all of it at once."""
        if self.shared or len(self._records) > 1:
            return None
        return entry.function(self._records[0], self.count, self._lasts)

    def trips(self, trips: Trips, table: np.ndarray) -> Callable[..., int]:
        """Trip after trip of the program (see ``trips``), where it is one stretch, on one thread."""
        return trips.function(self._records[0], table, self.checked, self._brief)

    def parts(self) -> list[tuple[Sequence[NodeView], np.ndarray]]:
        """The records of stretches that are of the same nodes each, with these."""
        ends = [first for first, _ in self.marks[1:]] + [int(self.words[0])]
        return [
            (nodes, self._record(first, end - first))
            for (first, nodes), end in zip(self.marks, ends, strict=True)
            if end > first
        ]
