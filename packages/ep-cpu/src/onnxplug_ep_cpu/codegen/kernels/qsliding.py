"""Depthwise convolution of 8-bit channels-last data by windows that move on column by column: a vector of channels at a time,
several output pixels of a row at once.

Every element that a row of taps meets is read and converted once and goes into the sums of all pixels it belongs to. Zero points,
padding and the exactness of float32 sums are as in ``qdepthwise``, which does what does not fit here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import SIZES, widen
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours
from onnxplug_ep_cpu.codegen.kernels.qend import Where, read, write


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. Operands follow, four slots each: address, pixel, row and image step."""

    OUT = 0
    SOURCE = 1
    WEIGHTS = 2  # float32 [vector of channels][tap][lane]
    PADDING = 3  # zero points, as far as the columns that a group of pixels meets
    BIAS = 4  # int32 [channel]
    CHANNELS = 5  # as many as lanes at least
    ROWS = 6
    COLUMNS = 7
    HEIGHT = 8
    WIDTH = 9
    TOP = 10
    LEFT = 11
    STRIDE = 12  # of rows
    DILATION = 13
    TALL = 14  # taps down
    OUT_PIXEL = 15
    OUT_ROW = 16
    OUT_IMAGE = 17
    PIXEL = 18
    ROW = 19
    IMAGE = 20
    OPERANDS = 21


_POINTERS = frozenset({Arg.OUT, Arg.SOURCE, Arg.WEIGHTS, Arg.PADDING, Arg.BIAS})


@record(frozen=True, slots=True)
class QSliding:
    """One kernel; an item is (image, output row, vector of channels). ``pieces`` times ``width`` taps across, ``pixels`` results
    together, the last of which overlap the ones before, as does the last vector of channels. ``stride`` is that of columns. Operands,
    ``expr`` and ``result`` are as in ``QGemm``."""

    width: int
    stride: int
    dilation: int
    pixels: int
    element: str
    expr: ex.Expr
    operands: tuple[tuple[str, str], ...]
    result: str
    pieces: int = 1

    @property
    def reach(self) -> int:
        """Columns from the first to the last that a group of pixels meets by one piece of a row of taps."""
        return self._neighbours.reach

    @property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.pixels, self.width, self.stride, self.dilation)

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        v, ints, unit = f.vec(), f.vec(I32), SIZES[self.element]
        last_pixel = f.sub(a[Arg.COLUMNS], self.pixels)
        vectors = f.div(f.add(a[Arg.CHANNELS], f.lanes - 1), f.lanes)
        last_channel = f.sub(a[Arg.CHANNELS], f.lanes)
        with f.items() as item:
            number, rest = f.rem(item, vectors), f.div(item, vectors)
            y, image = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            channel = f.smallest(f.mul(number, f.lanes), last_channel)

            def place(pointer: str, size: int, row: str, step: str, kind: str = "full") -> str:
                """Where the item's channels, row and image are."""
                if kind in ("column", "full"):
                    pointer = f.at(pointer, f.mul(channel, size))
                return f.at(f.at(pointer, f.mul(image, step)), f.mul(y, row)) if kind == "full" else pointer

            source = f.at(f.at(a[Arg.SOURCE], f.mul(channel, unit)), f.mul(image, a[Arg.IMAGE]))
            out = place(a[Arg.OUT], SIZES[self.result], a[Arg.OUT_ROW], a[Arg.OUT_IMAGE])
            operands: list[Where] = [
                (kind, element, place(where, SIZES[element], row, step, kind), pixel)
                for (kind, element), (where, pixel, row, step) in zip(self.operands, extra, strict=True)
            ]
            weights = f.at(a[Arg.WEIGHTS], f.mul(f.mul(number, a[Arg.TALL]), 4 * f.lanes * self.width * self.pieces))
            bias = f.load(ints, f.at(a[Arg.BIAS], f.shl(channel, 2)))
            top = f.sub(f.mul(y, a[Arg.STRIDE]), a[Arg.TOP])
            row = a[Arg.COLUMNS], last_pixel, a[Arg.LEFT], a[Arg.WIDTH]
            whole = replace(self._neighbours, width=self.width * self.pieces)
            for x, start, edge in whole.each(f, *row):
                totals = [
                    f.value(f"add {ints} {f.value(f'fptosi {v} {total} to {ints}')}, {bias}")
                    for total in self._sums(f, a, source, weights, top, start, edge)
                ]
                at = f.at(out, f.mul(x, a[Arg.OUT_PIXEL]))
                write(f, self.expr, totals, 1, at, a[Arg.OUT_PIXEL], self.result, x, operands, None)

    def _sums(
        self, f: Emitter, a: Sequence[str], source: str, weights: str, top: str, start: str, edge: bool
    ) -> list[str]:
        """The sums of a group of pixels; on the ``edge`` some columns are padding."""
        v = f.vec()
        carried = [(PTR, weights), *[(v, "zeroinitializer")] * self.pixels]
        with f.loop(0, a[Arg.TALL], carried=carried) as down:
            r = f.add(top, f.mul(a[Arg.DILATION], down.index))
            exists = f.value(f"icmp ult i64 {r}, {a[Arg.HEIGHT]}")
            row = f.at(source, f.mul(r, a[Arg.ROW]))
            if self.pieces == 1:
                down.next = self._piece(f, a, row, exists, start, edge, down.vars)
            else:
                types = [PTR, *[v] * self.pixels]
                with f.loop(0, self.pieces, carried=list(zip(types, down.vars, strict=True))) as piece:
                    first = f.add(start, f.mul(piece.index, self.width * self.dilation))
                    piece.next = self._piece(f, a, row, exists, first, edge, piece.vars)
                down.next = piece.vars
        return down.vars[1:]

    def _piece(
        self, f: Emitter, a: Sequence[str], row: str, exists: str, start: str, edge: bool, given: Sequence[str]
    ) -> list[str]:
        """The next weights and the sums after ``width`` taps, whose first column is ``start``, of ``given`` ones."""
        v, line, uses = f.vec(), 4 * f.lanes, self._neighbours.uses()
        checks = self._neighbours.checks(f, start, a[Arg.WIDTH]) if edge else {}
        row = f.select(exists, PTR, f.at(row, f.mul(start, a[Arg.PIXEL])), a[Arg.PADDING])
        taps, *totals = given
        factors = [f.load(v, f.at(taps, line * k)) for k in range(self.width)]
        reached = 0
        for j in sorted(uses):
            row, reached = f.at(row, f.mul(a[Arg.PIXEL], j - reached)) if j else row, j
            at = f.select(checks[j], PTR, row, a[Arg.PADDING]) if edge else row
            x = widen(f, self.element, read(f, self.element, at, None))
            for n, k in uses[j]:
                totals[n] = f.fma(x, factors[k], totals[n])
        return [f.at(taps, line * self.width), *totals]
