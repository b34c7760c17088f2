"""Resampling of channels-last data: a vector of channels at a time, the taps of a pixel through tables of rows and of columns."""

from __future__ import annotations

import functools
import itertools
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES, narrow, widen


class Arg(IntEnum):
    """Slots of the arguments; steps are in bytes."""

    OUT = 0
    SOURCE = 1
    ROWS = 2  # [row of the result][tap] offsets in elements
    SHARES = 3  # their factors
    COLUMNS = 4  # [column of the result][tap] offsets in elements
    WEIGHTS = 5  # their factors
    COUNT = 6  # rows of the result
    DOWN = 7  # taps of a row
    MADE = 8  # columns of the result
    ACROSS = 9  # taps of a column
    CHANNELS = 10
    OUT_PIXEL = 11
    OUT_IMAGE = 12
    SOURCE_IMAGE = 13


@record(frozen=True, slots=True)
class Resample:
    """Sums of elements times the product of their row's and their column's factor, each product and each sum rounded, taps of a
    row after one another: so onnxruntime adds the four of a linear interpolation (``UpsampleBilinear`` of its upsample.cc).

    An item is (image, row of the result, block of channels). The last block of channels overlaps the one before it; ``masked``:
    there are fewer channels than lanes. ``taps``, down and across, are unrolled; without them they are arguments. What becomes of
    bytes is cut down to bytes.
    """

    vectors: int
    masked: bool = False
    taps: tuple[int, int] | None = None
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.WEIGHTS else "i64") for slot in Arg]
        v, width, unit = f.vec(), self.vectors * f.lanes, SIZES[self.element]
        mask = f.lanes_below(a[Arg.CHANNELS]) if self.masked else None
        with f.channel_blocks(a[Arg.CHANNELS], width, self.masked) as (first, rest):
            row, image = f.rem(rest, a[Arg.COUNT]), f.div(rest, a[Arg.COUNT])
            channel = f.mul(first, unit)
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.SOURCE_IMAGE])), channel)
            out = f.at(f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE])), channel)
            first = f.mul(row, a[Arg.MADE])
            down = functools.partial(self._tap, f, a[Arg.ROWS], a[Arg.SHARES], row, a[Arg.DOWN])
            lines = [down(tap) for tap in range(self.taps[0])] if self.taps else []

            def added(
                totals: list[str], line: tuple[str, str], step: tuple[str, str], source: str = source
            ) -> list[str]:
                at = f.at(source, f.add(line[0], step[0]))
                factor = f.splat(f.value(f"fmul float {step[1]}, {line[1]}"))
                sums = []
                for i, total in enumerate(totals):
                    where = f.at(at, unit * f.lanes * i)
                    x = widen(f, self.element, f.load_masked(MEMORY[self.element], where, mask, unit))
                    sums.append(f.value(f"fadd {v} {total}, {f.value(f'fmul {v} {x}, {factor}')}"))
                return sums

            with f.loop(0, a[Arg.MADE]) as column:
                across = functools.partial(self._tap, f, a[Arg.COLUMNS], a[Arg.WEIGHTS], column.index, a[Arg.ACROSS])
                totals = [f.constant(-0.0)] * self.vectors  # to which any number is added without a change
                if self.taps:
                    steps = [across(tap) for tap in range(self.taps[1])]
                    for line, step in itertools.product(lines, steps):
                        totals = added(totals, line, step)
                else:
                    with f.loop(0, a[Arg.DOWN], carried=[(v, total) for total in totals]) as d:
                        line = down(d.index)
                        with f.loop(0, a[Arg.ACROSS], carried=[(v, total) for total in d.vars]) as c:
                            c.next.extend(added(c.vars, line, across(c.index)))
                        d.next.extend(c.vars)
                    totals = d.vars
                to = f.at(out, f.mul(f.add(first, column.index), a[Arg.OUT_PIXEL]))
                for i, total in enumerate(totals):
                    result = total if unit == 4 else narrow(f, self.element, whole(f, total))
                    f.store_masked(MEMORY[self.element], result, f.at(to, unit * f.lanes * i), mask, unit)

    def _tap(self, f: Emitter, offsets: str, factors: str, made: str, taps: str, tap: str | int) -> tuple[str, str]:
        """Bytes to a tap, and its factor."""
        entry = f.shl(f.add(f.mul(made, taps), tap), 2)
        offset = f.value(f"sext i32 {f.load(I32, f.at(offsets, entry))} to i64")
        return f.mul(offset, SIZES[self.element]), f.load(F32, f.at(factors, entry))


def whole(f: Emitter, value: str) -> str:
    """Floats cut down to int32, as C converts them and so onnxruntime the bytes that it blends."""
    return f.value(f"fptosi {f.vec()} {value} to {f.vec(I32)}")
