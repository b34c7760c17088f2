"""The largest pixels of regions of images, channels-last: a block of channels at a time."""

from __future__ import annotations

import math
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels.regions import as_float, maximum, refuse

FARTHEST = 2.0**30
"""Corners beyond it, and numbers of images, set the status word, as those do that are no numbers."""


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    OUT = 0
    SOURCE = 1
    BOXES = 2  # the number of the image, left, top, right, bottom
    STATUS = 3
    COUNT = 4  # of images
    HEIGHT = 5
    WIDTH = 6
    CHANNELS = 7
    ROWS = 8  # of bins of a region
    COLUMNS = 9
    IMAGE = 10
    ROW = 11
    PIXEL = 12
    SCALE = 13  # bits of a float: from boxes to pixels


@record(frozen=True, slots=True)
class RegionMaxima:
    """Bins of whole pixels, zero where there are none (ONNX operator spec, MaxRoiPool-1). An item is (region, row of bins, block of
    channels), of which the last overlaps the one before it; ``masked``: there are fewer channels than lanes. The result is [region, row,
    column, channel].
    """

    vectors: int
    masked: bool

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.STATUS else I64) for slot in Arg if slot < Arg.SCALE]
        scale = f.load(F32, f.at("%args", 8 * Arg.SCALE))
        width = self.vectors * f.lanes
        mask = f.lanes_below(a[Arg.CHANNELS]) if self.masked else None
        with f.channel_blocks(a[Arg.CHANNELS], width, self.masked) as (first, rest):
            row, region = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            channel = f.shl(first, 2)
            box = f.at(a[Arg.BOXES], f.mul(region, 20))
            number = self._whole(f, f.load(F32, box), a[Arg.STATUS])
            known = f.value(f"icmp ult i64 {number}, {a[Arg.COUNT]}")
            with f.when(f.value(f"xor i1 {known}, true")):
                refuse(f, a[Arg.STATUS])
            source = f.at(f.at(a[Arg.SOURCE], f.mul(f.select(known, I64, number, "0"), a[Arg.IMAGE])), channel)
            out = f.at(f.at(a[Arg.OUT], f.shl(f.mul(f.mul(rest, a[Arg.COLUMNS]), a[Arg.CHANNELS]), 2)), channel)
            left, top, right, bottom = (
                self._whole(f, self._rounded(f, f.load(F32, f.at(box, 4 + 4 * i)), scale), a[Arg.STATUS])
                for i in range(4)
            )
            first, end = self._bin(f, top, bottom, a[Arg.ROWS], row, a[Arg.HEIGHT])
            with f.loop(0, a[Arg.COLUMNS]) as column:
                begin, stop = self._bin(f, left, right, a[Arg.COLUMNS], column.index, a[Arg.WIDTH])
                start = [(f.vec(), f.constant(-math.inf))] * self.vectors
                with f.loop(first, end, 1, start) as y:
                    line = f.at(source, f.mul(y.index, a[Arg.ROW]))
                    with f.loop(begin, stop, 1, [(f.vec(), v) for v in y.vars]) as x:
                        at = f.at(line, f.mul(x.index, a[Arg.PIXEL]))
                        x.next = [
                            maximum(f, total, f.load_masked(F32, f.at(at, 4 * f.lanes * i), mask))
                            for i, total in enumerate(x.vars)
                        ]
                    y.next = x.vars
                some = f.value(f"and i1 {f.less(first, end)}, {f.less(begin, stop)}")
                to = f.at(out, f.shl(f.mul(column.index, a[Arg.CHANNELS]), 2))
                for i, total in enumerate(y.vars):
                    best = f.select(some, f.vec(), total, "zeroinitializer")
                    f.store_masked(F32, best, f.at(to, 4 * f.lanes * i), mask)

    def _rounded(self, f: Emitter, corner: str, scale: str) -> str:
        """The pixel of a corner: halves go away from zero."""
        return f.intrinsic("llvm.round.f32", F32, (F32, f.value(f"fmul float {corner}, {scale}")))

    def _whole(self, f: Emitter, x: str, status: str) -> str:
        """The whole part of a float as an integer."""
        near = f.value(f"fcmp ole float {f.intrinsic('llvm.fabs.f32', F32, (F32, x))}, {float_text(FARTHEST)}")
        with f.when(f.value(f"xor i1 {near}, true")):
            refuse(f, status)
        return f.value(f"fptosi float {f.select(near, F32, x, float_text(0.0))} to i64")

    def _bin(self, f: Emitter, start: str, end: str, bins: str, number: str, size: str) -> tuple[str, str]:
        """Where a bin begins and ends along an axis, as float32 has it."""
        length = f.add(f.sub(end, start), 1)
        length = f.select(f.less(length, 1), I64, "1", length)
        step = f.value(f"fdiv float {as_float(f, length)}, {as_float(f, bins)}")
        ends = []
        for at, rounding in ((number, "floor"), (f.add(number, 1), "ceil")):
            edge = f.intrinsic(f"llvm.{rounding}.f32", F32, (F32, f.value(f"fmul float {as_float(f, at)}, {step}")))
            place = f.add(f.value(f"fptosi float {edge} to i64"), start)
            place = f.select(f.less(place, 0), I64, "0", place)
            ends.append(f.smallest(place, size))
        return ends[0], ends[1]
