"""A region for given shapes as data: buffers, kernel calls in order, and the image the driver runs.

Addresses in a call's arguments are relative to a base: the run's workspace (base 0), an input or output of the region, or
absolute for constants and tables, which live as long as the program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxplug.contract import Storage, assign_offsets
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.driver import COUNTER_WORDS, HEAD_WORDS, ROW_WORDS, STATUS
from onnxplug_ep_cpu.codegen.kernels.base import Kernel

ALIGNMENT = 64
GRABS = 6
"""Into how many parts per thread an operation's items are split: more balance better, fewer cost less."""
FINEST = 40
"""Into how many per thread at most where grabs become smaller towards the end."""
STRETCH = 50_000_000
"""Nanoseconds of estimated work after which a long program looks whether it is still wanted."""
SHARED_FROM = 40_000
"""Nanoseconds of estimated work from which a program is worth waking other threads for."""

NEVER = (1 << 31) - 1
"""A divisor that leaves nothing: grabs are even."""


def grab_of(items: int, threads: int) -> int:
    """How many consecutive items a thread takes at once."""
    return max(1, items // (threads * GRABS))


def shrinking_grab(items: int, threads: int) -> tuple[int, int]:
    """(least, divisor) of a grab that is a part of the items left: threads end within one small grab of each other."""
    return max(1, items // (threads * FINEST)), 2 * threads


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of a program: ``kind`` is "scratch", "input", "output" (with their number), "constant" (with its array) or
    "status" (the word of the image)."""

    kind: str
    nbytes: int
    number: int = 0
    array: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """An address: bytes into a buffer."""

    buffer: Buffer
    offset: int = 0


STATUS_WORD = Buffer("status", 8)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """``kernel`` over ``items``; ``work`` is the estimated time of all of them on one thread, in nanoseconds. ``even``: every
    grab but the last is of ``grab_of`` items, for kernels that keep something per grab."""

    kernel: Kernel
    args: Sequence[int | Ref]
    items: int
    work: float
    even: bool = True


def _grab_word(call: Call, threads: int) -> int:
    """Least grab and divisor as the driver reads them."""
    if call.even:
        return grab_of(call.items, threads) | NEVER << 32
    least, divisor = shrinking_grab(call.items, threads)
    return least | divisor << 32


@dataclass(slots=True)
class Program:
    """Calls in execution order."""

    calls: list[Call] = field(default_factory=list)

    def call(
        self, kernel: Kernel, args: Sequence[int | Ref], items: int, work: float, even: bool = True
    ) -> None:
        """Append a call; one without items is left out."""
        if items > 0:
            self.calls.append(Call(kernel, args, items, work, even))

    def finish(self, compiler: Compiler, inputs: int, outputs: int, threads: int) -> Image:
        """Lay out the scratch memory, resolve the kernels, write the image."""
        addresses = compiler.addresses(call.kernel for call in self.calls)
        count = len(self.calls)
        args_at = HEAD_WORDS + ROW_WORDS * count
        words_used = args_at + sum(len(call.args) for call in self.calls)
        counters = -(-8 * words_used // ALIGNMENT) * ALIGNMENT
        head = counters + 8 * COUNTER_WORDS * count
        offsets, scratch = self._lay_out()
        words = np.zeros(words_used, np.int64)
        moves: list[tuple[int, int]] = [(1, 0), (2, 0)]
        words[:HEAD_WORDS] = count, 8 * HEAD_WORDS, counters, 0
        at = args_at
        kept: list[np.ndarray] = []
        for number, call in enumerate(self.calls):
            row = HEAD_WORDS + ROW_WORDS * number
            words[row : row + ROW_WORDS] = (
                addresses[call.kernel],
                8 * at,
                call.items,
                _grab_word(call, threads),
            )
            moves.append((row + 1, 0))
            for arg in call.args:
                if isinstance(arg, Ref):
                    base, value = self._resolve(arg, offsets, head, inputs, kept)
                    words[at] = value
                    if base is not None:
                        moves.append((at, base))
                else:
                    words[at] = arg
                at += 1
        shared = threads > 1 and sum(call.work for call in self.calls) > SHARED_FROM
        stretches = self._stretches(threads)
        image = Image(words, np.array(moves, np.int64), kept, head + scratch, 1 + inputs + outputs, shared, stretches)
        image.checked = any(
            isinstance(arg, Ref) and arg.buffer is STATUS_WORD for call in self.calls for arg in call.args
        )
        return image

    def _stretches(self, threads: int) -> list[tuple[int, int]]:
        """(first call, how many) of each stretch."""
        stretches, first, work = [], 0, 0.0
        for number, call in enumerate(self.calls):
            work += call.work / threads
            if work > STRETCH:
                stretches.append((first, number + 1 - first))
                first, work = number + 1, 0.0
        if first < len(self.calls) or not stretches:
            stretches.append((first, len(self.calls) - first))
        return stretches

    def _lay_out(self) -> tuple[dict[Buffer, int], int]:
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for number, call in enumerate(self.calls):
            for arg in call.args:
                if isinstance(arg, Ref) and arg.buffer.kind == "scratch":
                    first.setdefault(arg.buffer, number)
                    last[arg.buffer] = number
        storages = {buffer: Storage(buffer.nbytes, first[buffer], last[buffer]) for buffer in first}
        total = assign_offsets(list(storages.values()), ALIGNMENT)
        return {buffer: storage.offset for buffer, storage in storages.items()}, total

    @staticmethod
    def _resolve(
        ref: Ref, offsets: dict[Buffer, int], head: int, inputs: int, kept: list[np.ndarray]
    ) -> tuple[int | None, int]:
        buffer = ref.buffer
        if buffer.kind == "scratch":
            return 0, head + offsets[buffer] + ref.offset
        if buffer.kind == "status":
            return 0, 8 * STATUS
        if buffer.kind == "input":
            return 1 + buffer.number, ref.offset
        if buffer.kind == "output":
            return 1 + inputs + buffer.number, ref.offset
        assert buffer.array is not None
        kept.append(buffer.array)
        return None, buffer.array.ctypes.data + ref.offset


class Image:
    """A finished program. Read-only: any number of runs may use it at once, each with a workspace of its own."""

    def __init__(
        self,
        words: np.ndarray,
        moves: np.ndarray,
        kept: list[np.ndarray],
        workspace: int,
        bases: int,
        shared: bool,
        stretches: list[tuple[int, int]],
    ) -> None:
        self.workspace, self.shared = workspace, shared
        self.checked = False
        """Whether a kernel may set the status word."""
        self._kept = (words, moves, kept)
        same = words.ctypes.data, len(words), moves.ctypes.data, len(moves)
        self._records = [np.array([*same, *stretch], np.int64) for stretch in stretches]
        self.records = [record.ctypes.data for record in self._records]
        self.bases: Any = ctypes.c_int64 * bases
        """Makes the third argument of ``launch`` from the ids of the workspace, the inputs and the outputs."""
