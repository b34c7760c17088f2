"""Weights laid out for ``qdot``: quads of k in the order of their classes, found for each panel of columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I8, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.qdot import (
    CLASSES,
    FOLDED,
    LARGEST_PAIR,
    NATURAL,
    PAIRED,
    PAIRINGS,
    WIDENED,
)

I16 = "i16"
OCTET = 8
PAIRS = tuple(itertools.combinations(range(OCTET), 2))
WAYS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
"""How the bytes of a quad may be paired among themselves."""
CLASS = 1 << 16
"""What a class counts in the code of a quad; its pairing, a number of ``PAIRINGS``, counts 1."""


def _matchings(left: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to pair all of ``left``."""
    if not left:
        yield ()
    for other in left[1:]:
        for rest in _matchings(tuple(i for i in left[1:] if i != other)):
            yield ((left[0], other), *rest)


def _bits(*pairs: tuple[int, int]) -> int:
    return sum(1 << PAIRS.index(pair) for pair in pairs)


MATCHINGS = np.array(
    [
        (_bits(*whole), *(PAIRED * CLASS + PAIRINGS.index(one + two) for one, two in (whole[:2], whole[2:])))
        for whole in _matchings(tuple(range(OCTET)))
    ],
    np.int32,
)
"""Every way to pair the bytes of an octet: its pairs as bits, and the codes of its quads."""


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes."""

    WORDS = 0
    ORDER = 1
    ENDS = 2
    SUMS = 3  # see ``qdot``
    SOURCE = 4
    ZEROS = 5  # a byte for each column
    UNSORTED = 6  # like WORDS; the same where there is one class
    CODES = 7  # int32 [panel][quad]
    MATCHINGS = 8
    PLACES = 9  # PAIRINGS, a byte each
    K = 10
    N = 11
    QUADS = 12
    INNER = 13  # of k, those INNER_STEP apart; OUTER_STEP from one such run to the next
    OUTER_STEP = 14
    INNER_STEP = 15
    COLUMN_STEP = 16


@record(frozen=True, slots=True)
class PackQuads:
    """Bytes less their zero points, [k][column], as [panel][quad][column][4], with the quads' places in a row, ends of classes and
    sums of columns; an item is a panel. ``pairs``: quads are sorted by class, otherwise all belong to the first. ``even``:
    columns lie next to each other; ``narrow``: there are fewer than a panel has, the others are zero. Beyond k are zeros."""

    vectors: int
    pairs: bool
    even: bool
    narrow: bool

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot < Arg.K else "i64") for slot in Arg}
        width = self.vectors * f.lanes
        wide, bytes_ = f.vec(I32, width), f.vec(I8, width)
        room = f.value(f"alloca [{OCTET} x {bytes_}], align 64")
        last_k, last_n = f.sub(a[Arg.K], 1), f.sub(a[Arg.N], width)
        with f.items() as panel:
            n = "0" if self.narrow else f.smallest(f.mul(panel, width), last_n)
            columns = f.at(a[Arg.SOURCE], f.mul(n, a[Arg.COLUMN_STEP]))
            zeros = self._gathered(f, a, f.at(a[Arg.ZEROS], n), "1")
            first = f.mul(panel, a[Arg.QUADS])
            unsorted = f.at(a[Arg.UNSORTED], f.mul(first, 4 * width))
            codes, order = (f.at(a[slot], f.shl(first, 2)) for slot in (Arg.CODES, Arg.ORDER))
            with f.loop(0, a[Arg.QUADS], 2, [(wide, "zeroinitializer")]) as octet:
                with f.loop(0, OCTET) as row:
                    k = f.add(f.shl(octet.index, 2), row.index)
                    held = f.smallest(k, last_k)
                    runs, rest = f.div(held, a[Arg.INNER]), f.rem(held, a[Arg.INNER])
                    start = f.at(f.at(columns, f.mul(runs, a[Arg.OUTER_STEP])), f.mul(rest, a[Arg.INNER_STEP]))
                    value = self._gathered(f, a, start, a[Arg.COLUMN_STEP])
                    value = f.value(f"sub {bytes_} {value}, {zeros}")
                    value = f.select(f.less(k, a[Arg.K]), bytes_, value, "zeroinitializer")
                    f.store(bytes_, value, f.at(room, f.mul(row.index, width)), 1)
                rows = [f.load(bytes_, f.at(room, width * row_of), 1) for row_of in range(OCTET)]
                total = octet.vars[0]
                for x in rows:
                    total = f.value(f"add {wide} {total}, {f.value(f'sext {bytes_} {x} to {wide}')}")
                octet.next = [total]
                to = f.at(unsorted, f.mul(octet.index, 4 * width))
                f.store(wide, self._words(f, rows[:4]), to)
                f.store(wide, self._words(f, rows[4:]), f.at(to, 4 * width))
                if self.pairs:
                    self._classify(f, a, rows, f.at(codes, f.shl(octet.index, 2)))
            f.store(wide, octet.vars[0], f.at(a[Arg.SUMS], f.shl(n, 2)))
            ends = f.at(a[Arg.ENDS], f.mul(panel, 4 * CLASSES))
            if self.pairs:
                self._sort(f, a, unsorted, codes, f.at(a[Arg.WORDS], f.mul(first, 4 * width)), order, ends)
            else:
                with f.loop(0, a[Arg.QUADS]) as quad:
                    self._store_int(f, f.shl(quad.index, 2), f.at(order, f.shl(quad.index, 2)))
                for number in range(CLASSES):
                    self._store_int(f, a[Arg.QUADS], f.at(ends, 4 * number))

    def _gathered(self, f: Emitter, a: dict[Arg, str], start: str, step: str) -> str:
        """A byte of every column of a panel."""
        width = self.vectors * f.lanes
        bytes_ = f.vec(I8, width)
        if (self.even or step == "1") and not self.narrow:
            return f.load(bytes_, start, 1)
        value, last = "zeroinitializer", f.sub(a[Arg.N], 1)
        for column in range(width):
            place = f.smallest(column, last) if self.narrow else column
            byte = f.load(I8, f.at(start, f.mul(place, step)), 1)
            if self.narrow:
                byte = f.select(f.less(column, a[Arg.N]), I8, byte, "0")
            value = f.value(f"insertelement {bytes_} {value}, i8 {byte}, i32 {column}")
        return value

    def _words(self, f: Emitter, rows: list[str]) -> str:
        """Four rows of bytes, four of a column in a word."""
        width = self.vectors * f.lanes
        wide, word = f.vec(I32, width), ""
        for number, row in enumerate(rows):
            byte = f.value(f"zext {f.vec(I8, width)} {row} to {wide}")
            byte = f.value(f"shl {wide} {byte}, splat (i32 {8 * number})") if number else byte
            word = f.value(f"or {wide} {word}, {byte}") if word else byte
        return word

    def _classify(self, f: Emitter, a: dict[Arg, str], rows: list[str], codes: str) -> None:
        """The codes of an octet's quads."""
        width = self.vectors * f.lanes
        words, fine = f.vec(I16, width), "0"
        sixteen = [f.value(f"sext {f.vec(I8, width)} {row} to {words}") for row in rows]
        for number, (one, other) in enumerate(PAIRS):
            total = f.value(f"add {words} {sixteen[one]}, {sixteen[other]}")
            total = f.value(f"add {words} {total}, splat (i16 {LARGEST_PAIR})")
            # Sums below the limits are large as unsigned numbers.
            beyond = f.value(f"icmp ugt {words} {total}, splat (i16 {2 * LARGEST_PAIR})")
            mask = f.value(f"bitcast {f.vec('i1', width)} {beyond} to i{width}")
            bit = f.value(f"zext i1 {f.value(f'icmp eq i{width} {mask}, 0')} to i32")
            fine = f.value(f"or i32 {fine}, {f.value(f'shl i32 {bit}, {number}')}")
        missing = []
        for half in (0, 4):
            code = str(WIDENED * CLASS)
            for number, way in reversed(list(enumerate(WAYS))):
                places = tuple(place + half for place in way)
                found = self._has(f, fine, str(_bits((places[0], places[1]), (places[2], places[3]))))
                class_ = PAIRED if number else NATURAL
                code = f.select(found, I32, str(class_ * CLASS + PAIRINGS.index(places)), code)
            f.store(I32, code, f.at(codes, half))
            missing.append(f.value(f"icmp eq i32 {code}, {WIDENED * CLASS}"))
        with f.when(f.value(f"or i1 {missing[0]}, {missing[1]}")):
            with f.loop(0, len(MATCHINGS), carried=[("i64", "-1")]) as loop:
                found = self._has(f, fine, f.load(I32, self._matching(f, a, loop.index, 0)))
                loop.next = [f.select(found, "i64", loop.index, loop.vars[0])]
            with f.when(f.less(-1, loop.vars[0])):
                for half in range(2):
                    f.store(I32, f.load(I32, self._matching(f, a, loop.vars[0], 1 + half)), f.at(codes, 4 * half))
        self._fold(f, sixteen, codes)

    def _fold(self, f: Emitter, rows: list[str], codes: str) -> None:
        """Make an octet one whose quads are summed in int16, if neither the positive nor the negative weights of the four
        bytes that go into a sum can saturate it."""
        width = self.vectors * f.lanes
        words, wrong = f.vec(I16, width), ""
        for places in ((0, 1, 4, 5), (2, 3, 6, 7)):
            for kind, test in (
                ("smax", f"sgt {words} %s, splat (i16 {LARGEST_PAIR})"),
                ("smin", f"slt {words} %s, splat (i16 -{LARGEST_PAIR})"),
            ):
                total = ""
                for place in places:
                    part = f.intrinsic(
                        f"llvm.{kind}.v{width}i16", words, (words, rows[place]), (words, "zeroinitializer")
                    )
                    total = f.value(f"add {words} {total}, {part}") if total else part
                beyond = f.value(f"icmp {test % total}")
                wrong = f.value(f"or {f.vec('i1', width)} {wrong}, {beyond}") if wrong else beyond
        mask = f.value(f"bitcast {f.vec('i1', width)} {wrong} to i{width}")
        with f.when(f.value(f"icmp eq i{width} {mask}, 0")):
            for half in range(2):
                f.store(I32, str(FOLDED * CLASS), f.at(codes, 4 * half))

    @staticmethod
    def _matching(f: Emitter, a: dict[Arg, str], number: str, field: int) -> str:
        return f.at(f.at(a[Arg.MATCHINGS], f.mul(number, 4 * MATCHINGS.shape[1])), 4 * field)

    @staticmethod
    def _has(f: Emitter, fine: str, bits: str) -> str:
        return f.value(f"icmp eq i32 {f.value(f'and i32 {fine}, {bits}')}, {bits}")

    def _sort(
        self, f: Emitter, a: dict[Arg, str], unsorted: str, codes: str, words: str, order: str, ends: str
    ) -> None:
        """Bring the quads of a panel into the order of their classes."""
        width = self.vectors * f.lanes
        with f.loop(0, a[Arg.QUADS], carried=[("i64", "0")] * (CLASSES - 1)) as count:
            class_ = self._class(f, codes, count.index)[0]
            count.next = [self._plus(f, total, class_, number) for number, total in enumerate(count.vars)]
        starts = ["0"]
        for total in count.vars:
            starts.append(f.add(starts[-1], total))
        for number, end in enumerate((*starts[1:], a[Arg.QUADS])):
            self._store_int(f, end, f.at(ends, 4 * number))
        with f.loop(0, a[Arg.QUADS], carried=[("i64", start) for start in starts]) as quad:
            class_, pairing = self._class(f, codes, quad.index)
            place = quad.vars[CLASSES - 1]
            for number in range(CLASSES - 1):
                place = f.select(f.value(f"icmp eq i64 {class_}, {number}"), "i64", quad.vars[number], place)
            quad.next = [self._plus(f, at, class_, number) for number, at in enumerate(quad.vars)]
            to, at = f.at(words, f.mul(place, 4 * width)), f.at(order, f.shl(place, 2))
            wide, source = f.vec(I32, width), f.at(unsorted, f.mul(quad.index, 4 * width))
            f.store(wide, f.load(wide, source), to)
            self._store_int(f, f.shl(quad.index, 2), at)
            with f.when(f.value(f"icmp eq i64 {class_}, {PAIRED}")):
                octet = f.and_(quad.index, -2)
                self._store_int(f, f.value(f"or i64 {f.shl(octet, 10)}, {pairing}"), at)
                halves = f.at(unsorted, f.mul(octet, 4 * width))
                low, high = (f.load(wide, f.at(halves, 4 * width * half)) for half in range(2))
                f.store(wide, self._paired(f, low, high, f.at(a[Arg.PLACES], f.shl(pairing, 2))), to)

    def _paired(self, f: Emitter, low: str, high: str, places: str) -> str:
        """The bytes of an octet, given as its quads, that are at four places."""
        width = self.vectors * f.lanes
        wide, word = f.vec(I32, width), ""
        for number in range(4):
            place = f.value(f"zext i8 {f.load(I8, f.at(places, number), 1)} to i32")
            chosen = f.select(f.value(f"icmp ult i32 {place}, 4"), wide, low, high)
            shift = f.splat(f.value(f"shl i32 {f.value(f'and i32 {place}, 3')}, 3"), I32, width)
            byte = f.value(f"and {wide} {f.value(f'lshr {wide} {chosen}, {shift}')}, splat (i32 255)")
            byte = f.value(f"shl {wide} {byte}, splat (i32 {8 * number})") if number else byte
            word = f.value(f"or {wide} {word}, {byte}") if word else byte
        return word

    @staticmethod
    def _class(f: Emitter, codes: str, quad: str) -> tuple[str, str]:
        """A quad's class and pairing."""
        code = f.value(f"zext i32 {f.load(I32, f.at(codes, f.shl(quad, 2)))} to i64")
        return f.div(code, CLASS), f.rem(code, CLASS)

    @staticmethod
    def _plus(f: Emitter, total: str, class_: str, number: int) -> str:
        one = f.value(f"zext i1 {f.value(f'icmp eq i64 {class_}, {number}')} to i64")
        return f.add(total, one)

    @staticmethod
    def _store_int(f: Emitter, value: str, where: str) -> None:
        f.store(I32, f.value(f"trunc i64 {value} to i32"), where)
