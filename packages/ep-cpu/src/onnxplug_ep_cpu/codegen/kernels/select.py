"""Many of the greatest or smallest elements of lines, best first, with their places: what is near the best is sorted by digits."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.topk import ordered

COARSE = 11
"""Leading bits of a key by which elements are told apart first: sign, exponent and two more of a float."""
DIGIT = 8
DIGITS = 32 // DIGIT
COUNT_BYTES, DIGIT_BYTES = 4 * (2 << COARSE), 4 * (DIGITS << DIGIT)
"""Bytes of the counts of both."""
_Body = Callable[[str, "int | str", list[str]], list[str]]


def memory(size: int) -> int:
    """Bytes that a grab needs for lines of ``size`` elements."""
    return COUNT_BYTES + DIGIT_BYTES + 16 * (size + 1)


@record(frozen=True, slots=True)
class Select:
    """As ``TopK``, in a time that depends little on how many are wanted and on how the elements lie.

    Elements become keys that order like them, best lowest. The leading bits of all are counted, those that may be among the best
    are taken in the order in which they lie, and sorted by one digit after the other, which keeps equal ones in order. An item is
    a line. Arguments: values, places (int64), lines, elements of a line, how many are wanted (at least one), bytes from line to
    line, memory, its bytes for a grab, items of a grab.
    """

    largest: bool
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        values, places, x = (f.arg(i, PTR) for i in range(3))
        size, wanted, step = (f.arg(i) for i in range(3, 6))
        counts = f.at(f.arg(6, PTR), f.mul(f.div("%lo", f.arg(8)), f.arg(7)))
        digits = f.at(counts, COUNT_BYTES)
        first = f.at(digits, DIGIT_BYTES)
        second = f.at(first, f.shl(f.add(size, 1), 3))
        lanes = f.value(f"alloca [{f.lanes} x i32], align 64")
        with f.items() as line:
            at = f.at(x, f.mul(line, step))
            bound = self._bound(f, at, size, wanted, counts, lanes)
            taken = self._take(f, at, size, bound, first, lanes)
            sort_pairs(f, first, second, taken, digits)
            done = f.mul(line, wanted)
            with f.loop(0, wanted) as k:
                place = f.and_(f.load(I64, f.at(first, f.shl(k.index, 3)), 8), (1 << 32) - 1)
                to = f.add(done, k.index)
                f.store(I64, place, f.at(places, f.shl(to, 3)), 8)
                f.store(I32, f.load(I32, f.at(at, f.shl(place, 2))), f.at(values, f.shl(to, 2)))

    def _bound(self, f: Emitter, at: str, size: str, wanted: str, counts: str, lanes: str) -> str:
        """The leading bits up to which elements are taken: as few as have all that are wanted."""
        f.intrinsic("llvm.memset.p0.i64", "void", (PTR, counts), ("i8", "0"), (I64, str(COUNT_BYTES)), ("i1", "0"))

        def count(start: str, number: int | str, carried: list[str]) -> list[str]:
            self._lay(f, f.at(at, f.shl(start, 2)), number, lanes)
            with f.loop(0, number) as lane:
                which = f.value(f"lshr i32 {f.load(I32, f.at(lanes, f.shl(lane.index, 2)))}, {32 - COARSE}")
                # Neighbours, often equal, are counted apart: a count waits for the one before it.
                place = f.add(f.shl(f.value(f"zext i32 {which} to i64"), 1), f.and_(lane.index, 1))
                _next(f, counts, place)
            return []

        self._each(f, size, count, [])
        with f.loop(0, 1 << COARSE, 1, [(I64, "0"), (I64, "0")]) as bits:
            total, bound = bits.vars
            pair = [f.load(I32, f.at(counts, f.add(f.shl(bits.index, 3), part))) for part in (0, 4)]
            here = f.value(f"zext i32 {f.value(f'add i32 {pair[0]}, {pair[1]}')} to i64")
            bits.next = [f.add(total, here), f.select(f.less(total, wanted), I64, bits.index, bound)]
        return bits.vars[1]

    def _take(self, f: Emitter, at: str, size: str, bound: str, to: str, lanes: str) -> str:
        """Write keys up to the bound, each above its place; returns how many they are."""
        ints = f.vec(I32)
        beyond = f.splat(f.value(f"trunc i64 {bound} to i32"), I32)

        def take(start: str, number: int | str, carried: list[str]) -> list[str]:
            keys = self._lay(f, f.at(at, f.shl(start, 2)), number, lanes)
            good = f.value(f"icmp ule {ints} {f.value(f'lshr {ints} {keys}, splat (i32 {32 - COARSE})')}, {beyond}")
            some = f.intrinsic(f"llvm.vector.reduce.or.v{f.lanes}i1", "i1", (f.vec("i1"), good))
            with f.loop(0, f.select(some, I64, str(number), "0"), 1, [(I64, carried[0])]) as lane:
                key = f.value(f"zext i32 {f.load(I32, f.at(lanes, f.shl(lane.index, 2)))} to i64")
                f.store(
                    I64,
                    f.value(f"or i64 {f.shl(key, 32)}, {f.add(start, lane.index)}"),
                    f.at(to, f.shl(lane.vars[0], 3)),
                    8,
                )
                inside = f.value(f"icmp ule i64 {f.value(f'lshr i64 {key}, {32 - COARSE}')}, {bound}")
                lane.next = [f.add(lane.vars[0], f.value(f"zext i1 {inside} to i64"))]
            return lane.vars

        return self._each(f, size, take, ["0"])[0]

    def _each(self, f: Emitter, size: str, body: _Body, carried: list[str]) -> list[str]:
        """``body`` for every vector of a line, with where it starts and how many elements it has."""
        whole = f.and_(size, -f.lanes)
        with f.loop(0, whole, f.lanes, [(I64, c) for c in carried]) as i:
            i.next = body(i.index, f.lanes, i.vars)
        with f.loop(whole, size, f.lanes, [(I64, c) for c in i.vars]) as i:
            i.next = body(i.index, f.sub(size, whole), i.vars)
        return i.vars

    def _lay(self, f: Emitter, where: str, number: int | str, lanes: str) -> str:
        """A vector of keys, of which the lowest, as numbers without sign, are the best; also where lanes are read one by one."""
        type_ = F32 if self.element == "float32" else I32
        whole = number == f.lanes
        raw = f.load(f.vec(type_), where) if whole else f.load_masked(type_, where, f.lanes_below(str(number)))
        keys = f.value(f"xor {f.vec(I32)} {ordered(f, raw, self.largest, self.element)}, splat (i32 2147483647)")
        f.store(f.vec(I32), keys, lanes, 64)
        return keys


def sort_pairs(f: Emitter, pairs: str, others: str, many: str, digits: str) -> None:
    """Sort pairs by their upper halves, equal ones as they lie; each digit from one memory to the other and the next one back.
    ``digits``: memory of ``DIGIT_BYTES``."""
    f.intrinsic("llvm.memset.p0.i64", "void", (PTR, digits), ("i8", "0"), (I64, str(DIGIT_BYTES)), ("i1", "0"))
    tables = [f.at(digits, 4 * (number << DIGIT)) for number in range(DIGITS)]

    def digit(pair: str, number: int) -> str:
        return f.and_(f.value(f"lshr i64 {pair}, {32 + DIGIT * number}"), (1 << DIGIT) - 1)

    with f.loop(0, many) as i:
        pair = f.load(I64, f.at(pairs, f.shl(i.index, 3)), 8)
        for number, table in enumerate(tables):
            _next(f, table, digit(pair, number))
    # one by one: a loop over all takes twenty times as long where they were just set to zero (EPYC 9004)
    for table in tables:
        with f.loop(0, 1 << DIGIT, 1, [(I32, "0")]) as i:
            place = f.at(table, f.shl(i.index, 2))
            i.next = [f.value(f"add i32 {i.vars[0]}, {f.load(I32, place)}")]
            f.store(I32, i.vars[0], place)
    for number, table in enumerate(tables):
        with f.loop(0, many) as i:
            pair = f.load(I64, f.at(pairs, f.shl(i.index, 3)), 8)
            f.store(I64, pair, f.at(others, f.shl(_next(f, table, digit(pair, number)), 3)), 8)
        pairs, others = others, pairs


def _next(f: Emitter, table: str, index: str) -> str:
    """The count at an index of a table, which becomes one more."""
    at = f.at(table, f.shl(index, 2))
    held = f.load(I32, at)
    f.store(I32, f.value(f"add i32 {held}, 1"), at)
    return f.value(f"zext i32 {held} to i64")
