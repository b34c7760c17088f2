"""Copies between planes of a few channels and pixels of as many, as images have them: shuffles of whole vectors."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class Interleave:
    """Pixels of ``channels`` elements that lie behind each other, from planes; or with ``apart`` planes from such pixels. Planes
    that are one and the same repeat their elements.

    An item is (outer index, block of rows, block of pixels). The last vector of pixels of a block overlaps the one before it;
    ``thin``: rows have fewer pixels than a vector. Every row is written ``copies`` times.
    Arguments: result, source, pixels, pixels of one item, rows of one item, bytes between planes, then for each outer dimension:
    size, result stride, source stride, in bytes; rows are the last; bytes between copies.
    """

    channels: int
    apart: bool
    outer: int
    element: str = "float32"
    copies: int = 1
    thin: bool = False

    def emit(self, f: Emitter) -> None:
        plane, n, c, unit = f.arg(5), f.lanes, self.channels, SIZES[self.element]
        again, type_ = f.arg(6 + 3 * self.outer), MEMORY[self.element]
        v, whole = f.vec(type_), f.mul(f.arg(2), c)
        masks: dict[bool, list[str]] = {}
        if self.thin:
            masks[True] = [f.lanes_below(f.arg(2))] * c
            masks[False] = [f.lanes_below(f.sub(whole, i * n)) for i in range(c)]

        def move(to: str, at: str, pixel: str) -> None:
            def places(base: str, planes: bool) -> list[str]:
                start = f.at(base, f.mul(pixel, unit if planes else c * unit))
                return [f.at(start, f.mul(i, plane) if planes else i * n * unit) for i in range(c)]

            def load(where: str, i: int) -> str:
                return f.load_masked(type_, where, masks[not self.apart][i], unit) if masks else f.load(v, where, unit)

            given = [load(where, i) for i, where in enumerate(places(at, not self.apart))]
            for i, (where, made) in enumerate(zip(places(to, self.apart), self._moved(f, v, given), strict=True)):
                for number in range(self.copies):
                    where = f.at(where, again) if number else where
                    if masks:
                        f.store_masked(type_, made, where, masks[self.apart][i], unit)
                    else:
                        f.store(v, made, where, unit)

        _rows(f, self.outer, move, self.thin)

    def _moved(self, f: Emitter, v: str, given: list[str]) -> list[str]:
        """Vectors of planes of those of pixels, or the other way round."""
        n, c = f.lanes, self.channels
        if c & (c - 1) == 0:
            return dealt(f, v, given) if self.apart else in_turn(f, v, given)
        places = [[lane * c + i if self.apart else i * n + lane for lane in range(n)] for i in range(c)]
        return [
            _picked(f, v, given, [divmod(at, n) if self.apart else (at % c, at // c) for at in some]) for some in places
        ]


@record(frozen=True, slots=True)
class Reordered:
    """Pixels whose element ``i`` was number ``order[i]``. Items and arguments are as of ``Interleave``."""

    order: tuple[int, ...]
    outer: int
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        n, unit, c = f.lanes, SIZES[self.element], len(self.order)
        v = f.vec(MEMORY[self.element])

        def move(to: str, at: str, pixel: str) -> None:
            start = f.mul(pixel, c * unit)
            here, there = f.at(at, start), f.at(to, start)
            given = [f.load(v, f.at(here, i * n * unit), unit) for i in range(c)]
            for i in range(c):
                picks = [divmod(lane // c * c + self.order[lane % c], n) for lane in range(i * n, (i + 1) * n)]
                low, high = min(picks)[0], max(picks)[0]
                made = _picked(f, v, given[low : high + 1], [(number - low, lane) for number, lane in picks])
                f.store(v, made, f.at(there, i * n * unit), unit)

        _rows(f, self.outer, move)


@record(frozen=True, slots=True)
class Strided:
    """Elements that lie ``step`` apart, backwards where it is negative, as rows. Items and arguments are as of ``Interleave``."""

    step: int
    outer: int
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        n, unit = f.lanes, SIZES[self.element]
        v = f.vec(MEMORY[self.element])
        first = max(0, -self.step * (n - 1))
        reach = (n - 1) * abs(self.step) + 1
        starts = [min(i * n, reach - n) for i in range(-(-reach // n))]  # nothing beyond the elements is read
        places = [first + lane * self.step for lane in range(n)]
        picks = [(place // n, place - starts[place // n]) for place in places]

        def move(to: str, at: str, column: str) -> None:
            here = f.at(f.at(at, -first * unit), f.mul(column, self.step * unit))
            given = [f.load(v, f.at(here, start * unit), unit) for start in starts]
            f.store(v, _picked(f, v, given, picks), f.at(to, f.mul(column, unit)), unit)

        _rows(f, self.outer, move)


def in_turn(f: Emitter, v: str, vectors: list[str]) -> list[str]:
    """The elements of a power of two of vectors in turn: the first of each, then the second of each."""
    if len(vectors) == 1:
        return vectors
    n, made = f.lanes, []
    for a, b in zip(in_turn(f, v, vectors[::2]), in_turn(f, v, vectors[1::2]), strict=True):
        made += [
            _shuffled(f, v, a, b, [half * n // 2 + lane // 2 + lane % 2 * n for lane in range(n)]) for half in (0, 1)
        ]
    return made


def dealt(f: Emitter, v: str, vectors: list[str]) -> list[str]:
    """What ``in_turn`` makes these of."""
    if len(vectors) == 1:
        return vectors
    n, pairs = f.lanes, list(zip(vectors[::2], vectors[1::2], strict=True))
    even, odd = (
        dealt(f, v, [_shuffled(f, v, a, b, [2 * lane + first for lane in range(n)]) for a, b in pairs])
        for first in (0, 1)
    )
    return [vector for pair in zip(even, odd, strict=True) for vector in pair]


def _shuffled(f: Emitter, v: str, a: str, b: str, lanes: list[int]) -> str:
    """The vector of these lanes of two, those of the second counted on from the first's."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return f.value(f"shufflevector {v} {a}, {v} {b}, <{len(lanes)} x i32> <{mask}>")


def _rows(f: Emitter, dims: int, move: Callable[[str, str, str], None], thin: bool = False) -> None:
    """``move`` a vector of pixels, from and to rows, for all that the items are of; ``thin``: a row is one vector."""
    out, source = f.arg(0, PTR), f.arg(1, PTR)
    pixels, block, row_block = (f.arg(i) for i in range(2, 5))
    *outer, (rows, out_row, source_row) = [tuple(f.arg(6 + 3 * d + i) for i in range(3)) for d in range(dims)]
    blocks, row_blocks = (f.div(f.add(n, f.sub(m, 1)), m) for n, m in ((pixels, block), (rows, row_block)))
    last = f.sub(pixels, f.lanes)
    with f.items() as item:
        number, rest = f.rem(item, blocks), f.div(item, blocks)
        turn, rest = f.rem(rest, row_blocks), f.div(rest, row_blocks)
        to, at = out, source
        for size, out_stride, source_stride in reversed(outer):
            index, rest = f.rem(rest, size), f.div(rest, size)
            to, at = f.at(to, f.mul(index, out_stride)), f.at(at, f.mul(index, source_stride))
        first, start = f.mul(number, block), f.mul(turn, row_block)
        stop = f.smallest(f.add(first, block), pixels)
        with f.loop(start, f.smallest(f.add(start, row_block), rows)) as row:
            here = f.at(to, f.mul(row.index, out_row)), f.at(at, f.mul(row.index, source_row))
            if thin:
                move(*here, "0")
            else:
                with f.loop(first, stop, f.lanes) as step:
                    move(*here, f.smallest(step.index, last))


def _picked(f: Emitter, v: str, vectors: list[str], picks: list[tuple[int, int]]) -> str:
    """The vector whose lanes are those (vector, lane) of others."""
    n, made = len(picks), vectors[0]
    if len(vectors) == 1:
        return _shuffled(f, v, made, made, [lane for _, lane in picks])
    for number in range(1, len(vectors)):
        lanes = [
            n + lane if vector == number else place if number > 1 else lane
            for place, (vector, lane) in enumerate(picks)
        ]  # of the vectors so far, their lanes are already in place but for those of the first
        made = _shuffled(f, v, made, vectors[number], lanes)
    return made
