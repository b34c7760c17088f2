"""Convolutions to a few channels: vectors of input channels, whose products with each filter are summed up at the end."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. The addresses of operands follow."""

    OUT = 0
    SOURCE = 1
    WEIGHTS = 2  # [output][tap][channel], channels padded with zeros to whole vectors
    ZEROS = 3  # what padding reads
    TABLE = 4  # [pixel][tap] offsets in floats; negative: ZEROS
    TAPS = 5
    CHANNELS = 6
    WIDTH = 7  # channels with their padding
    ROWS = 8
    COLUMNS = 9
    BLOCK = 10  # columns of one item
    OUT_IMAGE = 11
    OUT_CHANNEL = 12
    OUT_ROW = 13
    OUT_PIXEL = 14
    IMAGE = 15
    OPERANDS = 16


TOGETHER = 2
"""Pixels whose products are taken together, which share the reading of filters."""


@record(frozen=True, slots=True)
class Dots:
    """``expr`` of the sums for ``outputs`` filters; an item is (image, output row, block of columns). ``tail``: channels do not
    fill the last vector; ``apart``: pixels of a channel of the result do not lie behind each other. ``operands`` are "column" or
    "scalar" as the product kernel's are.
    """

    outputs: int
    tail: bool
    apart: bool
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.TABLE else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = [f.arg(Arg.OPERANDS + i, PTR) for i in range(len(self.operands))]
        n = f.lanes
        sums = f.value(f"alloca [{n * self.outputs} x float], align 64")
        blocks = f.div(f.add(a[Arg.COLUMNS], f.sub(a[Arg.BLOCK], 1)), a[Arg.BLOCK])
        last = f.sub(a[Arg.COLUMNS], 1)
        with f.items() as item:
            block, rest = f.rem(item, blocks), f.div(item, blocks)
            row, image = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            source = f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE]))
            out = f.at(f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE])), f.mul(row, a[Arg.OUT_ROW]))
            before = f.mul(row, a[Arg.COLUMNS])
            first = f.mul(block, a[Arg.BLOCK])
            stop = f.smallest(f.add(first, a[Arg.BLOCK]), a[Arg.COLUMNS])
            with f.loop(first, stop, n) as group:
                with f.loop(0, n, TOGETHER) as turn:
                    x = f.add(group.index, turn.index)
                    places = [f.smallest(f.add(x, i) if i else x, last) for i in range(TOGETHER)]
                    totals = self._totals(f, a, source, [f.add(before, place) for place in places])
                    for i, total in enumerate(totals):
                        pixel, output = divmod(i, self.outputs)
                        at = f.shl(f.add(turn.index, output * n + pixel), 2)
                        f.store(F32, f.reduce("add", total), f.at(sums, at))
                many = f.sub(stop, group.index)
                for output in range(self.outputs):
                    self._write(f, a, extra, sums, out, output, group.index, many)

    def _totals(self, f: Emitter, a: list[str], source: str, pixels: list[str]) -> list[str]:
        """Of each pixel the vectors of sums of each output."""
        v, count = f.vec(), TOGETHER * self.outputs
        entries = [f.at(a[Arg.TABLE], f.shl(f.mul(pixel, a[Arg.TAPS]), 2)) for pixel in pixels]
        filter_ = f.shl(f.mul(a[Arg.TAPS], a[Arg.WIDTH]), 2)
        whole = f.and_(a[Arg.CHANNELS], -f.lanes)
        zero = [(v, "zeroinitializer")] * count
        with f.loop(0, a[Arg.TAPS], 1, zero) as tap:
            offsets = [f.load(I32, f.at(entry, f.shl(tap.index, 2))) for entry in entries]
            rows = []
            for offset in offsets:
                wide = f.value(f"sext i32 {offset} to i64")
                rows.append(f.select(f.less(wide, 0), PTR, a[Arg.ZEROS], f.at(source, f.shl(wide, 2))))
            own = f.at(a[Arg.WEIGHTS], f.shl(f.mul(tap.index, a[Arg.WIDTH]), 2))
            filters = [f.at(own, f.mul(filter_, output)) for output in range(self.outputs)]
            with f.loop(0, whole, f.lanes, [(v, total) for total in tap.vars]) as c:
                at = f.shl(c.index, 2)
                c.next = self._added(f, c.vars, [f.load(v, f.at(row, at)) for row in rows], filters, at)
            tap.next = c.vars
            if self.tail:
                at, mask = f.shl(whole, 2), f.lanes_below(f.sub(a[Arg.CHANNELS], whole))
                given = [f.load_masked(F32, f.at(row, at), mask) for row in rows]
                tap.next = self._added(f, c.vars, given, filters, at)
        return tap.vars

    def _added(self, f: Emitter, totals: list[str], given: list[str], filters: list[str], at: str) -> list[str]:
        weights = [f.load(f.vec(), f.at(filter_, at)) for filter_ in filters]
        return [
            f.fma(x, weight, totals[pixel * self.outputs + output])
            for pixel, x in enumerate(given)
            for output, weight in enumerate(weights)
        ]

    def _write(
        self, f: Emitter, a: list[str], extra: list[str], sums: str, out: str, output: int, x: str, many: str
    ) -> None:
        """Write a vector of pixels of an output."""
        leaves = [f.load(f.vec(), f.at(sums, 4 * f.lanes * output), 64)]
        for kind, pointer in zip(self.operands, extra, strict=True):
            leaves.append(f.splat(f.load(F32, f.at(pointer, 4 * output if kind == "column" else 0))))
        result = ex.emit(f, self.expr, leaves)
        to = f.at(f.at(out, f.mul(a[Arg.OUT_CHANNEL], output)), f.mul(x, a[Arg.OUT_PIXEL]))
        if not self.apart:
            f.store_masked(F32, result, to, f.lanes_below(many))
            return
        f.store(f.vec(), result, f.at(sums, 4 * f.lanes * output), 64)
        with f.loop(0, f.smallest(many, f.lanes)) as lane:
            value = f.load(F32, f.at(sums, f.shl(f.add(lane.index, output * f.lanes), 2)))
            f.store(F32, value, f.at(to, f.mul(lane.index, a[Arg.OUT_PIXEL])))
