"""Pooling and resampling of images that lie plane by plane: rows are combined first, then columns of what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    OUT = 0
    SOURCE = 1
    ROWS = 2  # [row of the result][tap] offsets in floats of a plane's rows; negative: NEUTRAL
    NEUTRAL = 3  # a row that changes no result
    SHARES = 4  # "mean": a factor for each element of a plane; "weighted": for each tap of each row
    COLUMNS = 5  # "weighted": [tap][element of a row] columns, as offsets in floats
    WEIGHTS = 6  # "weighted": their factors
    CHANNELS = 7
    COUNT = 8  # rows of the result
    BLOCK = 9  # of one item
    TAPS = 10  # down
    WIDTH = 11
    MADE = 12  # elements of a row of the result
    LEFT = 13  # columns before the first
    ROOM = 14  # columns of the row in between
    OUT_IMAGE = 15
    OUT_PLANE = 16
    OUT_ROW = 17
    IMAGE = 18
    PLANE = 19
    BATCH = 20  # rows of the result whose rows are combined before the first one's columns are


POINTERS = Arg.WEIGHTS


class Block(NamedTuple):
    """Rows ``first`` up to ``end`` of a plane of the result: where that plane starts, and the one of the source."""

    source: str
    out: str
    first: str
    end: str


@contextmanager
def blocks_of_rows(f: Emitter, slots: type[IntEnum], given: list[str]) -> Iterator[Block]:
    """The items of a call, which are (image, channel, block of rows); slots are found by the names that ``Arg`` has here."""
    a = {slot.name: given[slot] for slot in slots}
    blocks = f.div(f.add(a["COUNT"], f.sub(a["BLOCK"], 1)), a["BLOCK"])
    with f.items() as item:
        block, rest = f.rem(item, blocks), f.div(item, blocks)
        channel, image = f.rem(rest, a["CHANNELS"]), f.div(rest, a["CHANNELS"])
        source = f.at(f.at(a["SOURCE"], f.mul(image, a["IMAGE"])), f.mul(channel, a["PLANE"]))
        out = f.at(f.at(a["OUT"], f.mul(image, a["OUT_IMAGE"])), f.mul(channel, a["OUT_PLANE"]))
        first = f.mul(block, a["BLOCK"])
        yield Block(source, out, first, f.smallest(f.add(first, a["BLOCK"]), a["COUNT"]))


def looked_up(f: Emitter, line: str, columns: str) -> str:
    """The floats of a line at the columns of a vector."""
    v, n = f.vec(), f.lanes
    pointers = f.value(f"getelementptr float, ptr {line}, {f.vec(I32)} {columns}")
    return f.intrinsic(
        f"llvm.masked.gather.v{n}f32.v{n}p0", v,
        (f"<{n} x ptr>", pointers), (I32, "4"), (f.vec("i1"), "splat (i1 true)"), (v, "zeroinitializer"),
    )  # fmt: skip


@record(frozen=True, slots=True)
class Planes:
    """The "max" of a window, its sum times a factor ("mean"), or the sum of its elements times a factor for the row and one for
    the column ("weighted").

    ``taps`` across are ``dilation`` apart and move on by ``stride``; those of "weighted" lie where a table says. The last vector of a
    row overlaps the one before it; ``thin``: the source's rows have fewer elements than a vector, ``short``: the result's have.
    Columns are read from memory some rows after they were written there: a processor has to wait for what it reads at another
    place than it has just written.
    """

    kind: str
    taps: int
    stride: int = 1
    dilation: int = 1
    thin: bool = False
    short: bool = False

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= POINTERS else "i64") for slot in Arg]
        v = f.vec()
        room = f.mul(a[Arg.ROOM], a[Arg.BATCH])
        between = f.value(f"alloca float, i64 {room}, align 64")
        with f.loop(0, room, f.lanes) as fresh:
            f.store(v, self._start(f), f.at(between, f.shl(fresh.index, 2)))
        left = f.shl(a[Arg.LEFT], 2)
        with blocks_of_rows(f, Arg, a) as (source, out, first, end):

            def line(row: str, begun: str) -> str:
                return f.at(between, f.shl(f.mul(f.sub(row, begun), a[Arg.ROOM]), 2))

            with f.loop(first, end, a[Arg.BATCH]) as batch:
                stop = f.smallest(f.add(batch.index, a[Arg.BATCH]), end)
                with f.loop(batch.index, stop) as row:
                    self._down(f, a, source, row.index, f.at(line(row.index, batch.index), left))
                with f.loop(batch.index, stop) as row:
                    to = f.at(out, f.mul(row.index, a[Arg.OUT_ROW]))
                    self._across(f, a, row.index, line(row.index, batch.index), to)

    def _start(self, f: Emitter) -> str:
        return f.constant(float("-inf") if self.kind == "max" else 0.0)

    def _vectors(self, width: str, narrow: bool, f: Emitter) -> tuple[str, str, str | None]:
        """(the end of the loop over a row, where its last vector starts, the mask of one that is not whole)."""
        return (width, "0", f.lanes_below(width)) if narrow else (width, f.sub(width, f.lanes), None)

    def _down(self, f: Emitter, a: list[str], source: str, row: str, inside: str) -> None:
        """Combine the rows that a row of the result sees."""
        v = f.vec()
        entry = f.shl(f.mul(row, a[Arg.TAPS]), 2)
        offsets, shares = f.at(a[Arg.ROWS], entry), f.at(a[Arg.SHARES], entry)
        end, last, mask = self._vectors(a[Arg.WIDTH], self.thin, f)
        with f.loop(0, end, f.lanes) as column:
            at = f.shl(f.smallest(column.index, last), 2)
            with f.loop(0, a[Arg.TAPS], carried=[(v, self._start(f))]) as tap:
                offset = f.value(f"sext i32 {f.load(I32, f.at(offsets, f.shl(tap.index, 2)))} to i64")
                line = f.select(f.less(offset, 0), PTR, a[Arg.NEUTRAL], f.at(source, f.shl(offset, 2)))
                where = f.at(line, at)
                x = f.load_masked(F32, where, mask)
                share = ""
                if self.kind == "weighted":
                    share = f.splat(f.load(F32, f.at(shares, f.shl(tap.index, 2))))
                tap.next = [self._combine(f, tap.vars[0], x, share)]
            f.store_masked(F32, tap.vars[0], f.at(inside, at), mask)

    def _across(self, f: Emitter, a: list[str], row: str, between: str, out: str) -> None:
        """Combine the columns that an element of the row sees."""
        v = f.vec()
        end, last, mask = self._vectors(a[Arg.MADE], self.short, f)
        share = f.at(a[Arg.SHARES], f.shl(f.mul(row, a[Arg.MADE]), 2)) if self.kind == "mean" else ""
        with f.loop(0, end, f.lanes) as step:
            x = f.smallest(step.index, last)
            total = self._start(f)
            for tap in range(self.taps):
                if self.kind == "weighted":
                    place = f.shl(f.add(x, f.mul(a[Arg.MADE], tap)), 2)
                    value, factor = self._looked_up(f, a, between, place, mask)
                else:
                    at = f.shl(f.add(f.mul(x, self.stride), tap * self.dilation), 2)
                    value, factor = self._apart(f, f.at(between, at)), ""
                total = self._combine(f, total, value, factor)
            at = f.shl(x, 2)
            if share:
                where = f.at(share, at)
                total = f.value(f"fmul {v} {total}, {f.load_masked(F32, where, mask)}")
            f.store_masked(F32, total, f.at(out, at), mask)

    def _apart(self, f: Emitter, where: str) -> str:
        """A vector of elements that are ``stride`` apart."""
        if self.stride == 1:
            return f.load(f.vec(), where)
        many = f.lanes * self.stride
        wide = f.load(f.vec(F32, many), where)
        picks = ", ".join(f"i32 {lane * self.stride}" for lane in range(f.lanes))
        return f.value(
            f"shufflevector {f.vec(F32, many)} {wide}, {f.vec(F32, many)} poison, <{f.lanes} x i32> <{picks}>"
        )

    def _looked_up(self, f: Emitter, a: list[str], between: str, place: str, mask: str | None) -> tuple[str, str]:
        """(elements at the columns of a table, their factors)."""
        value = looked_up(f, between, f.load_masked(I32, f.at(a[Arg.COLUMNS], place), mask))
        return value, f.load_masked(F32, f.at(a[Arg.WEIGHTS], place), mask)

    def _combine(self, f: Emitter, total: str, x: str, factor: str) -> str:
        if factor:
            return f.fma(x, factor, total)
        return ex.emit(f, (("leaf", 0), ("leaf", 1), ("max" if self.kind == "max" else "add", 0, 1)), [total, x])
