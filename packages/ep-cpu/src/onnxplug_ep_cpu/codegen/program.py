"""A region for given shapes as data: buffers, kernel calls in order, and the image the driver runs.

Addresses in a call's arguments are relative to a base: the run's workspace (base 0), an input or output of the region, or
absolute for constants and tables, which live as long as the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, Storage, TensorSpec, assign_offsets
from onnxplug.contract.records import record
from onnxplug.contract.sizes import Size, greatest, number_of
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.driver import COUNTER_WORDS, HEAD_WORDS, ROW_WORDS, STATUS
from onnxplug_ep_cpu.codegen.image import SOLO, Image, Origin
from onnxplug_ep_cpu.codegen.kernels.base import Kernel
from onnxplug_ep_cpu.codegen.recipes import Recipe

ALIGNMENT = 64
GRABS = 6
"""Into how many parts per thread an operation's items are split: more balance better, fewer cost less."""
FINEST = 40
"""Into how many per thread at most where grabs become smaller towards the end."""
ROOMY = 1 << 18
"""Bytes of a workspace from which on buffers are laid out closer as they shrink."""
NEVER = (1 << 31) - 1
"""A divisor that leaves nothing: grabs are even."""


def grab_of(items: int, threads: int) -> int:
    """How many consecutive items a thread takes at once."""
    return greatest(1, items // (threads * GRABS))


def shrinking_grab(items: int, threads: int) -> tuple[int, int]:
    """(least, divisor) of a grab that is a part of the items left: threads end within one small grab of each other."""
    return greatest(1, items // (threads * FINEST)), 2 * threads


@record(slots=True, eq=False)
class Buffer:
    """Memory of a program: ``kind`` is "scratch", "input", "output" (with their number), "constant" (with its array) or
    "status" (the word of the image)."""

    kind: str
    nbytes: int
    number: int = 0
    array: np.ndarray | None = None
    known: str = ""
    """The value whose array a constant is, where another bind of the program may have another array."""
    recipe: Recipe | None = None
    """What makes the array of a constant, where it depends on sizes that are followed."""

    def filled(self, specs: Mapping[str, TensorSpec], values: Sequence[Any] | None) -> np.ndarray:
        """The array of such a constant for the specs of a bind and the values of a tape."""
        made = specs[self.known].constant if self.recipe is None else self.recipe.made(values)
        return np.ascontiguousarray(made)


@record(frozen=True, slots=True)
class Ref:
    """An address: bytes into a buffer."""

    buffer: Buffer
    offset: int = 0


STATUS_WORD = Buffer("status", 8)


@record(frozen=True, slots=True, eq=False)
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
        return grab_of(call.items, threads) + (NEVER << 32)
    least, divisor = shrinking_grab(call.items, threads)
    return least + (divisor << 32)


def _let_alone(grabs: np.ndarray, works: np.ndarray) -> None:
    """Have one thread do small operations, with all that follow each other: how many do from each on is its grab, with no divisor."""
    large = np.flatnonzero(works >= SOLO)
    small = np.flatnonzero(works < SOLO)
    following = np.append(large, len(works))[np.searchsorted(large, small)]
    grabs[small] = following - small


@record(slots=True)
class Program:
    """Calls in execution order."""

    calls: list[Call] = field(default_factory=list)
    marks: list[tuple[int, tuple[NodeView, ...]]] = field(default_factory=list)
    """From which call on calls are of which nodes."""
    begin: Callable[[Kernel], object] | None = None
    """Told of each kernel that is called, whose code can be made while the program is written."""

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """Whose calls come next."""
        return self.marks[-1][1] if self.marks else ()

    def turn_to(self, nodes: tuple[NodeView, ...]) -> None:
        """Calls from here on are of these nodes."""
        self.marks.append((len(self.calls), nodes))

    def call(self, kernel: Kernel, args: Sequence[int | Ref], items: int, work: float, even: bool = True) -> None:
        """Append a call; one without items is left out."""
        if items > 0:
            if self.begin is not None:
                self.begin(kernel)
            self.calls.append(Call(kernel, args, items, work, even))

    def repeat(self, calls: range) -> None:
        """Append calls of the program once more."""
        self.calls += [self.calls[at] for at in calls]

    def finish(self, compiler: Compiler, inputs: int, outputs: int, threads: int) -> Image:
        """The image of a program all of whose sizes are plain numbers."""
        return Form(self, compiler, inputs, outputs, threads).image({})


class Form:
    """An image but for what sizes decide: kernels, words and relocations are settled, scratch memory is not laid out yet. Sizes
    that a tape follows (see ``contract.sizes``) are filled in by ``image``, as often as wanted."""

    def __init__(self, program: Program, compiler: Compiler, inputs: int, outputs: int, threads: int) -> None:
        calls = program.calls
        addresses = compiler.addresses(call.kernel for call in calls)
        self._inputs, self.threads, self.bases = inputs, threads, 1 + inputs + outputs
        at = HEAD_WORDS + ROW_WORDS * len(calls)
        self._counters = -(-8 * (at + sum(len(call.args) for call in calls)) // ALIGNMENT) * ALIGNMENT
        self._head = self._counters + 8 * COUNTER_WORDS * len(calls)
        self._relocations = [(1, 0), (2, 0)]
        self._kept: list[np.ndarray] = []
        self._placed: list[tuple[int, int]] = []
        """Words that hold an address in an array that is kept, by its number."""
        self.functions: list[tuple[int, Kernel]] = []
        """Words that hold the address of a kernel."""
        self._filled: dict[Buffer, list[int]] = {}
        """Words to which the address of an array that shapes decide is added."""
        self._lying: list[tuple[int, int]] = []
        """Words to which the offset of a scratch buffer is added, by its number."""
        self._scratch: dict[Buffer, int] = {}
        self._spans: list[list[int]] = []
        """First and last call that uses each scratch buffer."""
        self.checked = False
        words: list[Any] = [len(calls), 8 * HEAD_WORDS, self._counters, 0]
        for call in calls:
            self._relocations.append((len(words) + 1, 0))
            self.functions.append((len(words), call.kernel))
            words += addresses[call.kernel], 8 * at, call.items, _grab_word(call, threads)
            at += len(call.args)
        for number, call in enumerate(calls):
            for arg in call.args:
                words.append(self._resolve(arg, len(words), number) if isinstance(arg, Ref) else arg)
        self._words = Numbers(words, np.int64)
        self._nbytes = Numbers([buffer.nbytes for buffer in self._scratch], np.int64)
        self._works = Numbers([call.work for call in calls], np.float64)
        self._sizes = np.full(len(self._scratch), -1)
        self._layout: tuple[np.ndarray, int] = (np.zeros(0, np.int64), 0)
        """Of scratch buffers of these sizes."""
        self.moves = np.array(self._relocations, np.int64)
        self._lies = np.array(self._lying, np.int64).reshape(-1, 2).T
        self.marks = program.marks

    def image(self, specs: Mapping[str, TensorSpec], values: Sequence[Any] | None = None) -> Image:
        """The image for the values of a tape (default: those it was recorded with) and the arrays that ``specs`` have."""
        offsets, scratch = self._lay_out(self._nbytes.of(values))
        words, kept, placed = self._words.of(values), self._kept, self._placed
        at, number = self._lies
        words[at] += offsets[number]
        if self._filled:
            kept, placed = [*kept], [*placed]
            for buffer, held in self._filled.items():
                array = buffer.filled(specs, values)
                address = array.ctypes.data
                for word in held:
                    words[word] += address
                placed += [(word, len(kept)) for word in held]
                kept.append(array)
        works = self._works.of(values)
        if self.threads > 1:
            rows = words[HEAD_WORDS : HEAD_WORDS + ROW_WORDS * len(works)].reshape(-1, ROW_WORDS)
            _let_alone(rows[:, -1], works)
        return Image(
            words, self.moves, self.bases, kept, self._head + scratch, works, self.threads, self.checked, self.marks,
            Origin(self.functions, placed),
        )  # fmt: skip

    def _resolve(self, ref: Ref, word: int, call: int) -> Any:
        """What a word that is an address holds before its base is added."""
        buffer = ref.buffer
        if buffer.kind == "constant":
            if buffer.known or buffer.recipe is not None:
                self._filled.setdefault(buffer, []).append(word)
                return ref.offset
            assert buffer.array is not None
            self._placed.append((word, len(self._kept)))
            self._kept.append(buffer.array)
            return buffer.array.ctypes.data + ref.offset
        base = 0
        offset = ref.offset
        if buffer.kind == "scratch":
            number = self._scratch.setdefault(buffer, len(self._scratch))
            if number == len(self._spans):
                self._spans.append([call, call])
            self._spans[number][1] = call
            self._lying.append((word, number))
            offset = self._head + ref.offset
        elif buffer.kind == "status":
            self.checked, offset = True, 8 * STATUS
        else:
            base = 1 + buffer.number + (self._inputs if buffer.kind == "output" else 0)
        self._relocations.append((word, base))
        return offset

    def _lay_out(self, nbytes: np.ndarray) -> tuple[np.ndarray, int]:
        """Offsets of the scratch buffers and the bytes of all of them. Buffers whose sizes are followed get an eighth more than they
        need, so that those which grow by little are laid out once, and all again at the same time. A quarter more is too much.
        Smaller buffers lie where larger ones did, closer only where that saves memory worth the time."""
        is_wide = self._head + self._layout[1] > ROOMY and 5 * nbytes.sum() < 4 * self._sizes.sum()
        if is_wide or np.any(nbytes > self._sizes):
            followed = self._nbytes.followed
            nbytes[followed] += nbytes[followed] // 8
            storages = [Storage(n, *span) for n, span in zip(nbytes.tolist(), self._spans, strict=True)]
            total = assign_offsets(storages, ALIGNMENT)
            self._sizes, self._layout = nbytes, (np.array([storage.offset for storage in storages], np.int64), total)
        return self._layout


class Numbers:
    """Numbers, some of them sizes that a tape follows."""

    def __init__(self, numbers: Sequence[Any], dtype: Any) -> None:
        self._plain = np.array([number_of(n) for n in numbers], dtype)
        followed = [i for i, n in enumerate(numbers) if n.__class__ is Size and not n.tape.closed]
        self.followed = np.array(followed, np.int64)
        self._positions = [numbers[i].position for i in followed]

    def of(self, values: Sequence[Any] | None) -> np.ndarray:
        """The numbers for the values of the tape, or as they were recorded."""
        made = self._plain.copy()
        if self._positions and values is not None:
            made[self.followed] = [values[i] for i in self._positions]
        return made
