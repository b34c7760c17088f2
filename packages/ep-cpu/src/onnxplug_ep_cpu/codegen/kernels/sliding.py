"""Convolution of few channels to each result: a vector of output channels at a time, several output pixels of a row at once.

Where a product would read a short row for each tap, here every element that a row of taps meets is read once and goes into the
sums of all pixels it belongs to. Lanes of a vector that belong to different groups get their inputs by a shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. Operands follow, four slots each: address, pixel, row and image step."""

    OUT = 0
    SOURCE = 1
    WEIGHTS = 2  # [vector of outputs][tap down][input channel][tap across][lane]
    ZEROS = 3  # what padding reads: as far apart as elements of the source
    VECTORS = 4  # of output channels
    CHANNELS = 5  # of a group
    PER_GROUP = 6  # vectors of output channels; 1 where a vector spans groups
    ROWS = 7
    COLUMNS = 8
    HEIGHT = 9
    WIDTH = 10
    TOP = 11
    LEFT = 12
    STRIDE = 13  # of rows; that of columns is the kernel's own
    DILATION = 14
    TALL = 15  # taps down
    OUT_PIXEL = 16
    OUT_ROW = 17
    OUT_IMAGE = 18
    PIXEL = 19
    ROW = 20
    IMAGE = 21
    CHANNEL = 22
    GROUP = 23  # from the inputs of one vector, or group of vectors, to those of the next
    OPERANDS = 24


POINTERS = (Arg.OUT, Arg.SOURCE, Arg.WEIGHTS, Arg.ZEROS)


@record(frozen=True, slots=True)
class Sliding:
    """``expr`` of the sums; an item is (image, output row, vector of output channels).

    ``width`` taps across, ``pixels`` results together, the last of which overlap the ones before. ``spread``: 0 where all lanes
    read the same input channel, else the channels of a group, several of which make a vector. ``operands`` are "column", "full"
    or "scalar" as the product kernel's are.
    """

    width: int
    stride: int
    dilation: int
    pixels: int
    spread: int = 0
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    @property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.pixels, self.width, self.stride, self.dilation)

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot in POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        kinds = list(enumerate(self.operands))
        fixed = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in kinds if kind == "scalar"}
        filters = f.mul(f.mul(a[Arg.TALL], a[Arg.CHANNELS]), 4 * f.lanes * self.width)
        last_pixel = f.sub(a[Arg.COLUMNS], self.pixels)
        with f.items() as item:
            number, rest = f.rem(item, a[Arg.VECTORS]), f.div(item, a[Arg.VECTORS])
            y, image = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            own = f.mul(f.div(number, a[Arg.PER_GROUP]), a[Arg.GROUP])
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE])), own)
            c = f.mul(number, 4 * f.lanes)
            out = f.at(f.at(f.at(a[Arg.OUT], c), f.mul(image, a[Arg.OUT_IMAGE])), f.mul(y, a[Arg.OUT_ROW]))
            leaves = {
                **fixed,
                **{i: f.load(f.vec(), f.at(extra[i][0], c)) for i, kind in kinds if kind == "column"},
            }
            full = {
                i: f.at(f.at(f.at(extra[i][0], c), f.mul(image, extra[i][3])), f.mul(y, extra[i][2]))
                for i, kind in kinds
                if kind == "full"
            }
            weights = f.at(a[Arg.WEIGHTS], f.mul(number, filters))
            top = f.sub(f.mul(y, a[Arg.STRIDE]), a[Arg.TOP])
            row = a[Arg.COLUMNS], last_pixel, a[Arg.LEFT], a[Arg.WIDTH]
            for x, start, edge in self._neighbours.each(f, *row):
                totals = self._sums(f, a, source, weights, top, start, edge)
                for n, total in enumerate(totals):
                    at = f.add(x, n) if n else x
                    for i, p in full.items():
                        leaves[i] = f.load(f.vec(), f.at(p, f.mul(at, extra[i][1])))
                    result = ex.emit(f, self.expr, [total, *(leaves[i] for i, _ in kinds)])
                    f.store(f.vec(), result, f.at(out, f.mul(at, a[Arg.OUT_PIXEL])))

    def _sums(
        self, f: Emitter, a: Sequence[str], source: str, weights: str, top: str, start: str, edge: bool
    ) -> list[str]:
        """The sums of a group of pixels; on the ``edge`` some columns are padding."""
        v, line = f.vec(), 4 * f.lanes * self.width
        uses = self._neighbours.uses()
        offset = f.mul(start, a[Arg.PIXEL])
        across = {j: f.mul(a[Arg.PIXEL], j) for j in uses}
        checks = self._neighbours.checks(f, start, a[Arg.WIDTH]) if edge else {}
        carried = [(v, "zeroinitializer")] * self.pixels
        with f.loop(0, a[Arg.TALL], carried=[(PTR, weights), *carried]) as down:
            r = f.add(top, f.mul(a[Arg.DILATION], down.index))
            exists = f.value(f"icmp ult i64 {r}, {a[Arg.HEIGHT]}")
            row = f.at(f.at(source, f.mul(r, a[Arg.ROW])), offset)
            places = {j: f.at(row, across[j]) for j in sorted(uses)}
            if edge:
                places = {
                    j: f.select(f.value(f"and i1 {checks[j]}, {exists}"), PTR, p, a[Arg.ZEROS])
                    for j, p in places.items()
                }
            else:
                # Of a row that does not exist every element is the first of ``ZEROS``.
                places = {j: f.select(exists, PTR, p, a[Arg.ZEROS]) for j, p in places.items()}
            totals = down.vars[1:]
            if self.spread:
                loaded = {j: f.load(v, p) for j, p in places.items()}
                at = down.vars[0]
                for channel in range(self.spread):
                    inputs = {j: self._spread(f, x, channel) for j, x in loaded.items()}
                    totals = self._products(f, totals, inputs, uses, at)
                    at = f.at(at, line)
            else:
                with f.loop(0, a[Arg.CHANNELS], carried=[(PTR, down.vars[0]), *((v, t) for t in totals)]) as every:
                    move = f.mul(every.index, a[Arg.CHANNEL])
                    inputs = {j: f.splat(f.load(F32, f.at(p, move))) for j, p in places.items()}
                    sums = self._products(f, every.vars[1:], inputs, uses, every.vars[0])
                    every.next = [f.at(every.vars[0], line), *sums]
                at, *totals = every.vars
            down.next = [at, *totals]
        return down.vars[1:]

    def _products(
        self, f: Emitter, totals: Sequence[str], inputs: dict[int, str], uses: dict[int, list[tuple[int, int]]], at: str
    ) -> list[str]:
        """The sums after one input channel of a row of taps."""
        weights = [f.load(f.vec(), f.at(at, 4 * f.lanes * k)) for k in range(self.width)]
        totals = list(totals)
        for j, x in inputs.items():
            for n, k in uses[j]:
                totals[n] = f.fma(x, weights[k], totals[n])
        return totals

    def _spread(self, f: Emitter, x: str, channel: int) -> str:
        """One channel of each group in all lanes of the group."""
        lanes = ", ".join(f"i32 {lane // self.spread * self.spread + channel}" for lane in range(f.lanes))
        return f.value(f"shufflevector {f.vec()} {x}, {f.vec()} poison, <{f.lanes} x i32> <{lanes}>")
