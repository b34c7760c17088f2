"""Resampling of bytes that lie plane by plane: the lines that a row of the result sees become floats, of which its elements gather."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, narrow, widen
from onnxplug_ep_cpu.codegen.kernels.planes import blocks_of_rows, looked_up
from onnxplug_ep_cpu.codegen.kernels.resample import whole


class Arg(IntEnum):
    """Slots of the arguments; steps are in bytes."""

    OUT = 0
    SOURCE = 1
    ROWS = 2  # [row of the result][tap] offsets of lines in bytes
    SHARES = 3  # their factors
    COLUMNS = 4  # [tap][element of a row] columns
    WEIGHTS = 5  # their factors
    CHANNELS = 6
    COUNT = 7  # rows of the result
    BLOCK = 8  # of one item
    WIDTH = 9
    MADE = 10  # elements of a row of the result
    OUT_IMAGE = 11
    OUT_PLANE = 12
    OUT_ROW = 13
    IMAGE = 14
    PLANE = 15


@record(frozen=True, slots=True)
class BytePlanes:
    """Sums of bytes times the product of their line's and their column's factor, of ``down`` lines and ``across`` columns each, rounded
    and cut down to integers as those of ``Resample``.

    The last vector of a row overlaps the one before it; ``thin``: the source's rows have fewer elements than a vector, ``short``:
    the result's have.
    """

    element: str
    down: int
    across: int
    thin: bool = False
    short: bool = False

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.WEIGHTS else "i64") for slot in Arg]
        room = f.add(a[Arg.WIDTH], f.lanes)
        lines = [f.value(f"alloca float, i64 {room}, align 64") for _ in range(self.down)]
        with blocks_of_rows(f, Arg, a) as (source, out, first, end), f.loop(first, end) as row:
            shares = []
            for tap, line in enumerate(lines):
                entry = f.shl(f.add(f.mul(row.index, self.down), tap), 2)
                offset = f.value(f"sext i32 {f.load(I32, f.at(a[Arg.ROWS], entry))} to i64")
                shares.append(f.splat(f.load(F32, f.at(a[Arg.SHARES], entry))))
                self._floats(f, f.at(source, offset), a[Arg.WIDTH], line)
            self._row(f, a, lines, shares, f.at(out, f.mul(row.index, a[Arg.OUT_ROW])))

    def _floats(self, f: Emitter, source: str, width: str, line: str) -> None:
        """A line of the source as floats."""
        mask = f.lanes_below(width) if self.thin else None
        last = "0" if self.thin else f.sub(width, f.lanes)
        with f.loop(0, width, f.lanes) as column:
            at = f.smallest(column.index, last)
            x = widen(f, self.element, f.load_masked(MEMORY[self.element], f.at(source, at), mask, 1))
            f.store(f.vec(), x, f.at(line, f.shl(at, 2)))

    def _row(self, f: Emitter, a: list[str], lines: list[str], shares: list[str], out: str) -> None:
        """A row of the result."""
        v, made = f.vec(), a[Arg.MADE]
        mask = f.lanes_below(made) if self.short else None
        last = "0" if self.short else f.sub(made, f.lanes)
        with f.loop(0, made, f.lanes) as step:
            x = f.smallest(step.index, last)
            columns, factors = [], []
            for tap in range(self.across):
                place = f.shl(f.add(x, f.mul(made, tap)), 2)
                columns.append(f.load_masked(I32, f.at(a[Arg.COLUMNS], place), mask))
                factors.append(f.load_masked(F32, f.at(a[Arg.WEIGHTS], place), mask))
            total = f.constant(-0.0)  # to which any number is added without a change
            for line, share in zip(lines, shares, strict=True):
                for column, factor in zip(columns, factors, strict=True):
                    part = f.value(f"fmul {v} {factor}, {share}")
                    part = f.value(f"fmul {v} {looked_up(f, line, column)}, {part}")
                    total = f.value(f"fadd {v} {total}, {part}")
            f.store_masked(MEMORY[self.element], narrow(f, self.element, whole(f, total)), f.at(out, x), mask, 1)
