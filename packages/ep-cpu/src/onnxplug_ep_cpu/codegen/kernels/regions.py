"""Means and maxima of the samples of regions of images, channels-last: a block of channels at a time."""

from __future__ import annotations

import math
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels.gather import read_index

MOST = 256
"""Samples of a bin along an axis; regions that would have more set the status word, as those do that are not finite or whose corners are
swapped along one axis."""


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    OUT = 0
    SOURCE = 1
    BOXES = 2  # left, top, right, bottom
    IMAGES = 3  # whose regions they are, int64
    STATUS = 4
    COUNT = 5  # of images
    HEIGHT = 6
    WIDTH = 7
    CHANNELS = 8
    ROWS = 9  # of bins of a region
    COLUMNS = 10
    SAMPLES = 11  # of a bin along an axis; 0: as many as there are pixels
    IMAGE = 12
    ROW = 13
    PIXEL = 14
    SCALE = 15  # bits of a float: from boxes to pixels
    SHIFT = 16  # and of what is then subtracted


@record(frozen=True, slots=True)
class RegionSamples:
    """Bilinear samples on a grid in each bin (ONNX operator spec, RoiAlign-16). An item is (region, row of bins, block of
    channels), of which the last overlaps the one before it; ``masked``: there are fewer channels than lanes; ``least``: regions
    are at least a pixel wide and high. The result is [region, row, column, channel]: the mean of a bin's samples, or the ``largest``
    of the four shares of all of them, which are not added up then.
    """

    vectors: int
    masked: bool
    least: bool
    largest: bool = False

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.STATUS else I64) for slot in Arg if slot < Arg.SCALE]
        scale, shift = (f.load(F32, f.at("%args", 8 * slot)) for slot in (Arg.SCALE, Arg.SHIFT))
        width = self.vectors * f.lanes
        with f.channel_blocks(a[Arg.CHANNELS], width, self.masked) as (first, rest):
            row, region = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            channel = f.shl(first, 2)
            image = read_index(f, 64, f.at(a[Arg.IMAGES], f.shl(region, 3)), a[Arg.COUNT], a[Arg.STATUS], False)
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE])), channel)
            out = f.at(a[Arg.OUT], f.shl(f.mul(f.mul(rest, a[Arg.COLUMNS]), a[Arg.CHANNELS]), 2))
            box = f.at(a[Arg.BOXES], f.shl(region, 4))
            corners = [f.load(F32, f.at(box, 4 * i)) for i in range(4)]
            for corner in corners:
                zero = f.value(f"fsub float {corner}, {corner}")  # not a number where the corner is none or infinite
                with f.when(f.value(f"fcmp uno float {zero}, 0.0")):
                    refuse(f, a[Arg.STATUS])
            left, top, right, bottom = (
                f.value(f"fsub float {f.value(f'fmul float {corner}, {scale}')}, {shift}") for corner in corners
            )
            down = self._axis(f, top, bottom, a[Arg.ROWS], a[Arg.SAMPLES], a[Arg.STATUS])
            across = self._axis(f, left, right, a[Arg.COLUMNS], a[Arg.SAMPLES], a[Arg.STATUS])
            whole = f.value(f"fmul float {as_float(f, down[1])}, {as_float(f, across[1])}")
            wanted = [f.intrinsic("llvm.ceil.f32", F32, (F32, axis[2])) for axis in (down, across)]
            crossed = f.value(f"fcmp olt float {f.value(f'fmul float {wanted[0]}, {wanted[1]}')}, 0.0")
            with f.when(f.value(f"and i1 {crossed}, {f.value(f'icmp sle i64 {a[Arg.SAMPLES]}, 0')}")):
                refuse(f, a[Arg.STATUS])
            share = f.splat(f.value(f"fdiv float 1.0, {whole}"))
            with f.loop(0, a[Arg.COLUMNS]) as column:
                start = [(f.vec(), f.constant(-math.inf if self.largest else 0.0))] * self.vectors
                with f.loop(0, down[1], 1, start) as y:
                    low, high, weights = self._place(f, down, row, y.index, a[Arg.HEIGHT], a[Arg.ROW])
                    lines = f.at(source, low), f.at(source, high)
                    with f.loop(0, across[1], 1, [(f.vec(), v) for v in y.vars]) as x:
                        one, two, shares = self._place(f, across, column.index, x.index, a[Arg.WIDTH], a[Arg.PIXEL])
                        x.next = x.vars
                        for line, weight in zip(lines, weights, strict=True):
                            for at, factor in zip((one, two), shares, strict=True):
                                product = f.value(f"fmul float {weight}, {factor}")
                                x.next = self._added(f, x.next, f.at(line, at), product, a[Arg.CHANNELS])
                    y.next = x.vars
                to = f.at(f.at(out, f.shl(f.mul(column.index, a[Arg.CHANNELS]), 2)), channel)
                for i, total in enumerate(y.vars):
                    # Without samples the sum is zero, and its share is not a number.
                    mean = total if self.largest else f.value(f"fmul {f.vec()} {total}, {share}")
                    empty = f.value(f"fcmp oeq float {whole}, 0.0")
                    mean = f.select(empty, f.vec(), "zeroinitializer", mean)
                    if self.masked:
                        f.store_masked(F32, mean, to, f.lanes_below(a[Arg.CHANNELS]))
                    else:
                        f.store(f.vec(), mean, f.at(to, 4 * f.lanes * i))

    def _axis(self, f: Emitter, start: str, end: str, bins: str, samples: str, status: str) -> tuple[str, str, str]:
        """(where a region starts, samples of a bin, length of a bin)."""
        length = f.value(f"fsub float {end}, {start}")
        if self.least:
            length = f.select(f.value(f"fcmp ogt float {length}, 1.0"), F32, length, float_text(1.0))
        step = f.value(f"fdiv float {length}, {as_float(f, bins)}")
        many = f.intrinsic("llvm.ceil.f32", F32, (F32, step))
        with f.when(f.value(f"fcmp ogt float {many}, {float_text(MOST)}")):
            refuse(f, status)
        many = f.value(f"fptosi float {_within(f, many, float_text(MOST))} to i64")
        return start, f.select(f.value(f"icmp sgt i64 {samples}, 0"), I64, samples, many), step

    def _place(
        self, f: Emitter, axis: tuple[str, str, str], bin_: str, sample: str, size: str, stride: str
    ) -> tuple[str, str, tuple[str, str]]:
        """(offsets of the two neighbours of a sample, their weights)."""
        start, many, step = axis
        part = f.value(f"fdiv float {f.value(f'fadd float {as_float(f, sample)}, 0.5')}, {as_float(f, many)}")
        moved = f.value(f"fmul float {f.value(f'fadd float {as_float(f, bin_)}, {part}')}, {step}")
        at = f.value(f"fadd float {start}, {moved}")
        seen = f.value(
            f"and i1 {f.value(f'fcmp oge float {at}, -1.0')}, {f.value(f'fcmp ole float {at}, {as_float(f, size)}')}"
        )
        end = f.sub(size, 1)
        held = _within(f, at, as_float(f, end))
        low = f.value(f"fptosi float {held} to i64")
        above = f.value(f"fsub float {held}, {as_float(f, low)}")
        weights = f.value(f"fsub float 1.0, {above}"), above
        first, second = (f.select(seen, F32, weight, float_text(0.0)) for weight in weights)
        return f.mul(low, stride), f.mul(f.smallest(f.add(low, 1), end), stride), (first, second)

    def _added(self, f: Emitter, totals: list[str], where: str, weight: str, channels: str) -> list[str]:
        if self.masked:
            return [self._with(f, totals[0], f.load_masked(F32, where, f.lanes_below(channels)), weight)]
        return [
            self._with(f, total, f.load(f.vec(), f.at(where, 4 * f.lanes * i)), weight)
            for i, total in enumerate(totals)
        ]

    def _with(self, f: Emitter, total: str, x: str, weight: str) -> str:
        factor = f.splat(weight)
        if not self.largest:
            return f.fma(x, factor, total)
        # What weighs nothing is 0, even of an infinity.
        weightless = f.value(f"fcmp oeq float {weight}, 0.0")
        share = f.value(f"fmul {f.vec()} {x}, {factor}")
        return maximum(f, total, f.select(weightless, f.vec(), "zeroinitializer", share))


def maximum(f: Emitter, a: str, b: str) -> str:
    """The larger of two vectors; NaN if there is one."""
    return ex.emit(f, (("leaf", 0), ("leaf", 1), ("max", 0, 1)), [a, b])


def refuse(f: Emitter, status: str) -> None:
    """Leave the work to the NumPy kernel, which says what is wrong."""
    f.do(f"store atomic i64 1, ptr {status} monotonic, align 8")


def as_float(f: Emitter, number: str) -> str:
    """An integer as float32."""
    return f.value(f"sitofp i64 {number} to float")


def _within(f: Emitter, x: str, most: str) -> str:
    """At least 0, which what is no number becomes, and at most so much."""
    x = f.select(f.value(f"fcmp oge float {x}, 0.0"), F32, x, float_text(0.0))
    return f.select(f.value(f"fcmp ole float {x}, {most}"), F32, x, most)
