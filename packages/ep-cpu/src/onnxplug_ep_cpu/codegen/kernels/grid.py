"""Sampling of channels-last images at the places of a grid."""

from __future__ import annotations

import itertools
import math
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.approx import clamp
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    OUT = 0
    SOURCE = 1
    GRID = 2  # [image][place] (x, y), of bodies (x, y, z), without gaps in an image
    HEIGHT = 3
    WIDTH = 4
    CHANNELS = 5
    PLACES = 6  # of an image
    BLOCK = 7  # places of one item
    BLOCKS = 8
    OUT_PLACE = 9
    OUT_IMAGE = 10
    ROW = 11
    PIXEL = 12
    IMAGE = 13
    GRID_IMAGE = 14
    SHARES = 15  # [image][place], what samples are multiplied by
    SHARES_IMAGE = 16
    DEPTH = 17  # of bodies
    SLICE = 18


POINTERS = frozenset({Arg.OUT, Arg.SOURCE, Arg.GRID, Arg.SHARES})

_ALONG = {"nearest": 1, "linear": 2, "cubic": 4}
"""Pixels along an axis."""
_SHARPNESS = -0.75
"""Of cubic interpolation: the slope of a pixel's weight at its neighbour (Keys, 1981)."""


@record(frozen=True, slots=True)
class GridSample:
    """The pixel "nearest" to each place, or the weighted sum of its four neighbours ("linear") or of sixteen ("cubic"); with three
    ``axes`` of a body, the sum of eight neighbours.

    ``padding``: what lies outside is "zeros", the "border" or a "reflection"; ``aligned``: -1 and 1 are the middles of the corner
    pixels, else their outer edges. ``pixels``: places are in pixels, all x of an image before all y; ``shared``: samples are
    multiplied by shares.

    An item is (image, block of places). For as many places as a vector has lanes offsets and weights are found at once, then
    each place's channels are summed.
    """

    mode: str
    padding: str
    aligned: bool
    pixels: bool = False
    shared: bool = False
    axes: int = 2

    @property
    def taps(self) -> int:
        """Pixels of a sample."""
        return int(_ALONG[self.mode] ** self.axes)

    def emit(self, f: Emitter) -> None:
        left_out = {slot for slot in (Arg.SHARES, Arg.SHARES_IMAGE) if not self.shared}
        left_out |= {slot for slot in (Arg.DEPTH, Arg.SLICE) if self.axes == 2}
        a = ["" if slot in left_out else f.arg(slot, PTR if slot in POINTERS else "i64") for slot in Arg]
        taps = self.taps
        offsets = f.value(f"alloca [{taps * f.lanes} x i32], align 64")
        weights = f.value(f"alloca [{taps * f.lanes} x float], align 64")
        with f.items() as item:
            part, image = f.rem(item, a[Arg.BLOCKS]), f.div(item, a[Arg.BLOCKS])
            source = f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE]))
            out = f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE]))
            grid = f.at(a[Arg.GRID], f.mul(image, a[Arg.GRID_IMAGE]))
            shares = f.at(a[Arg.SHARES], f.mul(image, a[Arg.SHARES_IMAGE])) if self.shared else None
            first = f.mul(part, a[Arg.BLOCK])
            end = f.smallest(f.add(first, a[Arg.BLOCK]), a[Arg.PLACES])
            with f.loop(first, end, f.lanes) as i:
                many = f.smallest(f.sub(end, i.index), f.lanes)
                by = None
                if shares is not None:
                    by = f.load_masked(F32, f.at(shares, f.shl(i.index, 2)), f.lanes_below(many))
                self._find(
                    f, a, f.at(grid, f.mul(i.index, 4 if self.pixels else 4 * self.axes)), by, many, offsets, weights
                )
                with f.loop(0, many) as lane:
                    to = f.at(out, f.mul(f.add(i.index, lane.index), a[Arg.OUT_PLACE]))
                    self._sum(f, a[Arg.CHANNELS], source, to, lane.index, offsets, weights)

    def _find(self, f: Emitter, a: list[str], grid: str, by: str | None, many: str, offsets: str, weights: str) -> None:
        """Offsets (bytes from the image's start) and weights of the taps of a vector of places, tap by tap, the weights ``by``
        their shares."""
        n, v, ints = f.lanes, f.vec(), f.vec(I32)
        axes = []
        lines = ((a[Arg.WIDTH], a[Arg.PIXEL]), (a[Arg.HEIGHT], a[Arg.ROW]), (a[Arg.DEPTH], a[Arg.SLICE]))[: self.axes]
        places = self._planes(f, grid, a[Arg.PLACES], many) if self.pixels else self._interleaved(f, grid, many)
        for at, (size, stride) in zip(places, lines, strict=True):
            step = f.splat(f.value(f"trunc i64 {stride} to i32"), I32)
            axes.append([(f.value(f"mul {ints} {i}, {step}"), w) for i, w in self._taps(f, at, size)])
        if by is not None:
            axes[1] = [(i, f.value(f"fmul {v} {w}, {by}")) for i, w in axes[1]]
        for number, (outermost, *others) in enumerate(itertools.product(*reversed(axes))):
            offset, weight = outermost
            for step, share in others:
                offset = f.value(f"add {ints} {offset}, {step}")
                weight = f.value(f"fmul {v} {weight}, {share}")
            f.store(ints, offset, f.at(offsets, 4 * n * number), 32)
            f.store(v, weight, f.at(weights, 4 * n * number), 32)

    def _interleaved(self, f: Emitter, grid: str, many: str) -> list[str]:
        """The coordinates of a vector of places, x first."""
        if self.axes == 2:
            return self._pairs(f, grid, many)
        n, mask = f.lanes, f.lanes_below(many)
        steps = ", ".join(f"i32 {i * self.axes}" for i in range(n))
        found = []
        for axis in range(self.axes):
            pointers = f.value(f"getelementptr float, ptr {f.at(grid, 4 * axis)}, {f.vec(I32)} <{steps}>")
            operands = (f"<{n} x ptr>", pointers), (I32, "4"), (f.vec("i1"), mask), (f.vec(), "zeroinitializer")
            found.append(f.intrinsic(f"llvm.masked.gather.v{n}f32.v{n}p0", f.vec(), *operands))
        return found

    def _pairs(self, f: Emitter, grid: str, many: str) -> list[str]:
        """x and y of a vector of places."""
        n, v, both = f.lanes, f.vec(), f.shl(many, 1)
        low = f.load_masked(F32, grid, f.lanes_below(both))
        high = f.load_masked(F32, f.at(grid, 4 * n), f.lanes_below(f.sub(both, n)))
        orders = (", ".join(f"i32 {2 * i + axis}" for i in range(n)) for axis in range(2))
        return [f.value(f"shufflevector {v} {low}, {v} {high}, <{n} x i32> <{order}>") for order in orders]

    def _planes(self, f: Emitter, grid: str, places: str, many: str) -> list[str]:
        """The same of planes."""
        mask = f.lanes_below(many)
        return [f.load_masked(F32, at, mask) for at in (grid, f.at(grid, f.shl(places, 2)))]

    def _taps(self, f: Emitter, at: str, size: str) -> list[tuple[str, str]]:
        """(index, weight) of the pixels along an axis."""
        v, one = f.vec(), f.constant(1.0)
        count = f.splat(f.value(f"sitofp i64 {size} to float"))
        last = f.value(f"fsub {v} {count}, {one}")
        if not self.pixels:
            half, at = f.constant(0.5), f.value(f"fadd {v} {at}, {one}")
            if self.aligned:
                at = f.value(f"fmul {v} {f.value(f'fmul {v} {at}, {half}')}, {last}")
            else:
                at = f.value(f"fsub {v} {f.value(f'fmul {v} {at}, {count}')}, {one}")
                at = f.value(f"fmul {v} {at}, {half}")
        if self.mode == "nearest":
            at = f.intrinsic(f"llvm.roundeven.v{f.lanes}f32", v, (v, at))
        if self.padding == "border" and self.mode != "cubic":  # of a cubic sample the pixels are moved, not the middle
            at = clamp(f, at, f.constant(0.0), last)
        elif self.padding == "reflection":
            at = self._reflected(f, at, last)
        if self.mode == "nearest":  # a reflected place may lie between two pixels again
            first = f.intrinsic(f"llvm.trunc.v{f.lanes}f32", v, (v, at))
            return [self._settled(f, first, one, last)]
        first = f.intrinsic(f"llvm.floor.v{f.lanes}f32", v, (v, at))
        upper = f.value(f"fsub {v} {at}, {first}")
        if self.mode == "cubic":
            return self._cubic(f, first, upper, last)
        pairs = ((first, f.value(f"fsub {v} {one}, {upper}")), (f.value(f"fadd {v} {first}, {one}"), upper))
        return [self._settled(f, place, weight, last) for place, weight in pairs]

    def _cubic(self, f: Emitter, first: str, upper: str, last: str) -> list[tuple[str, str]]:
        """The four pixels around a place ``upper`` behind ``first``."""
        v, one = f.vec(), f.constant(1.0)
        lower = f.value(f"fsub {v} {one}, {upper}")

        def polynomial(at: str, *factors: float) -> str:
            total = f.constant(factors[0])
            for factor in factors[1:]:
                total = f.fma(total, at, f.constant(factor))
            return total

        def far(distance: str) -> str:
            a = _SHARPNESS
            return polynomial(f.value(f"fadd {v} {distance}, {one}"), a, -5 * a, 8 * a, -4 * a)

        def near(distance: str) -> str:
            return polynomial(distance, _SHARPNESS + 2, -_SHARPNESS - 3, 0.0, 1.0)

        taps = []
        for step, weight in ((-1.0, far(upper)), (0.0, near(upper)), (1.0, near(lower)), (2.0, far(lower))):
            place = f.value(f"fadd {v} {first}, {f.constant(step)}")
            if self.padding == "reflection":
                place = self._reflected(f, place, last)
            taps.append(self._settled(f, place, weight, last))
        return taps

    def _settled(self, f: Emitter, place: str, weight: str, last: str) -> tuple[str, str]:
        """An index inside of the axis, and the weight; NaN, which no other has, for what lies outside of an image in zeros."""
        v, bools = f.vec(), f.vec("i1")
        above, below = f"fcmp oge {v} {place}, zeroinitializer", f"fcmp ole {v} {place}, {last}"
        inside = f.value(f"and {bools} {f.value(above)}, {f.value(below)}")
        if self.padding == "zeros":
            weight = f.value(f"select {bools} {inside}, {v} {weight}, {v} {f.constant(math.nan)}")
            held = place
        else:
            held = clamp(f, place, f.constant(0.0), last)
            inside = f.value(f"fcmp ord {v} {held}, {held}")
        held = f.value(f"select {bools} {inside}, {v} {held}, {v} zeroinitializer")
        return f.value(f"fptosi {v} {held} to {f.vec(I32)}"), weight

    def _reflected(self, f: Emitter, at: str, last: str) -> str:
        """The line folded back and forth between the image's ends."""
        v, bools = f.vec(), f.vec("i1")
        low = f.constant(0.0 if self.aligned else -0.5)
        high = last if self.aligned else f.value(f"fadd {v} {last}, {f.constant(0.5)}")
        span = f.value(f"fsub {v} {high}, {low}")
        beyond = f.value(f"or {bools} {f.value(f'fcmp olt {v} {at}, {low}')}, {f.value(f'fcmp ogt {v} {at}, {high}')}")
        distance = f.intrinsic(f"llvm.fabs.v{f.lanes}f32", v, (v, f.value(f"fsub {v} {at}, {low}")))
        turns = f.intrinsic(f"llvm.floor.v{f.lanes}f32", v, (v, f.value(f"fdiv {v} {distance}, {span}")))
        rest = f.value(f"fsub {v} {distance}, {f.value(f'fmul {v} {turns}, {span}')}")
        half = f.value(f"fmul {v} {turns}, {f.constant(0.5)}")
        even = f.value(f"fcmp oeq {v} {half}, {f.intrinsic(f'llvm.floor.v{f.lanes}f32', v, (v, half))}")
        up, down = f.value(f"fadd {v} {low}, {rest}"), f.value(f"fsub {v} {high}, {rest}")
        folded = f.value(f"select {bools} {even}, {v} {up}, {v} {down}")
        point = f.value(f"fcmp oeq {v} {span}, zeroinitializer")
        folded = f.value(f"select {bools} {point}, {v} {low}, {v} {folded}")
        return f.value(f"select {bools} {beyond}, {v} {folded}, {v} {at}")

    def _sum(self, f: Emitter, channels: str, source: str, to: str, lane: str, offsets: str, weights: str) -> None:
        """The channels of one place."""
        rows, taps = [], []
        for tap in range(self.taps):
            where = f.shl(f.add(lane, tap * f.lanes), 2)
            offset = f.load(I32, f.at(offsets, where))
            rows.append(f.at(source, f.value(f"sext i32 {offset} to i64")))
            taps.append(self._seen(f, f.splat(f.load(F32, f.at(weights, where)))))
        whole = f.and_(channels, -f.lanes)
        with f.loop(0, whole, f.lanes) as c:
            at = f.shl(c.index, 2)
            f.store(f.vec(), self._weighted(f, [f.load(f.vec(), f.at(row, at)) for row in rows], taps), f.at(to, at))
        with f.when(f.less(whole, channels)):
            mask, at = f.lanes_below(f.sub(channels, whole)), f.shl(whole, 2)
            found = [f.load_masked(F32, f.at(row, at), mask) for row in rows]
            f.store_masked(F32, self._weighted(f, found, taps), f.at(to, at), mask)

    def _seen(self, f: Emitter, share: str) -> tuple[str, str | None]:
        """The weight as a number, and whether what it is of is inside of the image; None: it always is."""
        if self.padding != "zeros":
            return share, None
        v, bools = f.vec(), f.vec("i1")
        inside = f.value(f"fcmp ord {v} {share}, {share}")
        return f.value(f"select {bools} {inside}, {v} {share}, {v} zeroinitializer"), inside

    def _weighted(self, f: Emitter, found: list[str], taps: list[tuple[str, str | None]]) -> str:
        """The sum; what is read in place of a pixel that is not there may be infinite."""
        v, total = f.vec(), None
        for x, (share, inside) in zip(found, taps, strict=True):
            if inside is not None:
                x = f.value(f"select {f.vec('i1')} {inside}, {v} {x}, {v} zeroinitializer")
            if self.mode == "nearest":
                return x
            total = f.value(f"fmul {v} {x}, {share}") if total is None else f.fma(x, share, total)
        assert total is not None
        return total
