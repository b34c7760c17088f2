"""Depthwise convolution over channels-last data: a vector of channels at a time, several output pixels of a row at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. Operands follow, four slots each: address, pixel, row and image step."""

    OUT = 0
    SOURCE = 1
    WEIGHTS = 2  # [vector of channels][tap][lane]
    ZEROS = 3  # what padding reads: as long as a row of the source
    CHANNELS = 4
    PARTS = 5  # blocks of channels
    PART = 6  # channels of a block
    ROWS = 7
    COLUMNS = 8
    HEIGHT = 9
    WIDTH = 10
    TOP = 11
    LEFT = 12
    STRIDE = 13  # of rows; that of columns is the kernel's own
    DILATION = 14
    OUT_PIXEL = 15
    OUT_ROW = 16
    OUT_IMAGE = 17
    PIXEL = 18
    ROW = 19
    IMAGE = 20
    LAYERS = 21  # of the result; what follows is of bodies
    DEPTH = 22
    FRONT = 23
    DEPTH_STRIDE = 24
    DEPTH_DILATION = 25
    LAYER = 26
    OPERANDS = 27


@record(frozen=True, slots=True)
class Depthwise:
    """``expr`` of the sums of ``depth`` x ``height`` x ``width`` taps; an item is (image, output layer and row, block of channels).

    ``pixels`` results are made together, so that what their taps share is read once; the last group of pixels and the last
    vector of channels overlap the ones before; ``masked``: there are fewer channels than lanes. ``operands`` are "column", "full" or
    "scalar" as the product kernel's are. Without ``depth`` the source is an image, of one layer.
    """

    height: int
    width: int
    stride: int
    dilation: int
    pixels: int
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()
    depth: int = 0
    masked: bool = False

    @property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.pixels, self.width, self.stride, self.dilation)

    def emit(self, f: Emitter) -> None:
        pointers = (Arg.OUT, Arg.SOURCE, Arg.WEIGHTS, Arg.ZEROS)
        a = [f.arg(slot, PTR if slot in pointers else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        kinds = list(enumerate(self.operands))
        fixed = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in kinds if kind == "scalar"}
        taps = max(1, self.depth) * self.height * self.width
        last = f.sub(a[Arg.CHANNELS], f.lanes)
        mask = f.lanes_below(a[Arg.CHANNELS]) if self.masked else None
        last_pixel = f.sub(a[Arg.COLUMNS], self.pixels)
        with f.items() as item:
            part, rest = f.rem(item, a[Arg.PARTS]), f.div(item, a[Arg.PARTS])
            lines_of_image = f.mul(a[Arg.LAYERS], a[Arg.ROWS])
            y, image = f.rem(rest, lines_of_image), f.div(rest, lines_of_image)
            lines = self._lines(f, a, f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE])), y)
            out = f.at(f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE])), f.mul(y, a[Arg.OUT_ROW]))
            full = {
                i: f.at(f.at(extra[i][0], f.mul(image, extra[i][3])), f.mul(y, extra[i][2]))
                for i, kind in kinds
                if kind == "full"
            }
            first = f.mul(part, a[Arg.PART])
            end = f.smallest(f.add(first, a[Arg.PART]), a[Arg.CHANNELS])
            with f.loop(first, end, f.lanes) as channel:
                c = "0" if self.masked else f.shl(f.smallest(channel.index, last), 2)
                rows = [f.select(inside, PTR, f.at(line, c), a[Arg.ZEROS]) for inside, line in lines]
                own = f.at(a[Arg.WEIGHTS], f.mul(channel.index, 4 * taps))
                # Weights that leave sums and taps too few registers are read again for every group of pixels.
                keep = taps <= f.target.registers * 2 // 3
                held = [f.load(f.vec(), f.at(own, 4 * f.lanes * tap)) for tap in range(taps)] if keep else []
                leaves = {
                    **fixed,
                    **{i: f.load_masked(F32, f.at(extra[i][0], c), mask) for i, kind in kinds if kind == "column"},
                }
                to, here = f.at(out, c), {i: f.at(p, c) for i, p in full.items()}

                def weight(tap: int, own: str = own, held: list[str] = held) -> str:
                    return held[tap] if held else f.load(f.vec(), f.at(own, 4 * f.lanes * tap))

                row = a[Arg.COLUMNS], last_pixel, a[Arg.LEFT], a[Arg.WIDTH]
                for x, start, edge in self._neighbours.each(f, *row):
                    totals = self._sums(f, a, rows, start, weight, edge, mask)
                    for n, total in enumerate(totals):
                        at = f.add(x, n) if n else x
                        for i, p in here.items():
                            leaves[i] = f.load_masked(F32, f.at(p, f.mul(at, extra[i][1])), mask)
                        result = ex.emit(f, self.expr, [total, *(leaves[i] for i, _ in kinds)])
                        f.store_masked(F32, result, f.at(to, f.mul(at, a[Arg.OUT_PIXEL])), mask)

    def _lines(self, f: Emitter, a: Sequence[str], image: str, y: str) -> list[tuple[str, str]]:
        """For each tap in depth and down: whether its row of the source exists, and where."""
        layer, row = (f.div(y, a[Arg.ROWS]), f.rem(y, a[Arg.ROWS])) if self.depth else ("0", y)
        top = f.sub(f.mul(row, a[Arg.STRIDE]), a[Arg.TOP])
        rows = [f.add(top, f.mul(a[Arg.DILATION], tap)) for tap in range(self.height)]
        flat = [(f.value(f"icmp ult i64 {r}, {a[Arg.HEIGHT]}"), f.at(image, f.mul(r, a[Arg.ROW]))) for r in rows]
        if not self.depth:
            return flat
        front = f.sub(f.mul(layer, a[Arg.DEPTH_STRIDE]), a[Arg.FRONT])
        lines = []
        for tap in range(self.depth):
            z = f.add(front, f.mul(a[Arg.DEPTH_DILATION], tap))
            there, step = f.value(f"icmp ult i64 {z}, {a[Arg.DEPTH]}"), f.mul(z, a[Arg.LAYER])
            lines += [(f.value(f"and i1 {there}, {inside}"), f.at(line, step)) for inside, line in flat]
        return lines

    def _sums(
        self, f: Emitter, a: Sequence[str], rows: Sequence[str], start: str, weight: Callable[[int], str], edge: bool,
        mask: str | None,
    ) -> list[str]:  # fmt: skip
        """The sums of a group of pixels; on the ``edge`` some columns are padding."""
        uses = self._neighbours.uses()
        offset = f.mul(start, a[Arg.PIXEL])
        across = {j: f.mul(a[Arg.PIXEL], j) for j in uses}
        checks = self._neighbours.checks(f, start, a[Arg.WIDTH]) if edge else {}
        totals = ["zeroinitializer"] * self.pixels
        for ky, line in enumerate(rows):
            row = f.at(line, offset)
            weights: dict[int, str] = {}  # read where first needed: all of a long row would not fit the registers
            for j in sorted(uses):
                where = f.at(row, across[j]) if j else row
                x = f.load_masked(F32, f.select(checks[j], PTR, where, a[Arg.ZEROS]) if edge else where, mask)
                for n, k in uses[j]:
                    if k not in weights:
                        weights[k] = weight(ky * self.width + k)
                    totals[n] = f.fma(x, weights[k], totals[n])
        return totals
