"""Convolution of few channels to each result: one or two vectors of output channels, several output pixels of a row at once.

Where a product would read a short row for each tap, here every element that a row of taps meets is read once and goes into the
sums of all pixels it belongs to. Lanes of a vector that belong to different groups get their inputs by a shuffle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    PIXEL = 19  # where the kernel does not know it
    ROW = 20
    IMAGE = 21
    CHANNEL = 22
    GROUP = 23  # from the inputs of one vector, or group of vectors, to those of the next
    OPERANDS = 24


POINTERS = (Arg.OUT, Arg.SOURCE, Arg.WEIGHTS, Arg.ZEROS)


@record(frozen=True, slots=True)
class Sliding:
    """``expr`` of the sums; an item is (image, output row, ``beside`` vectors of output channels).

    ``width`` taps across, ``pixels`` results together, the last of which overlap the ones before. ``spread``: 0 where all lanes
    read the same input channel, else the channels of a group, several of which make a vector; then ``beside`` is 1. ``step``: bytes
    between pixels of the source, 0 where an argument says them: with a known step one register addresses all columns. ``operands``
    are "column", "full" or "scalar" as the product kernel's are.
    """

    width: int
    stride: int
    dilation: int
    pixels: int
    spread: int = 0
    beside: int = 1
    step: int = 0
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    @property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.pixels, self.width, self.stride, self.dilation)

    def emit(self, f: Emitter) -> None:
        unread = {Arg.OPERANDS, Arg.PIXEL} if self.step else {Arg.OPERANDS}
        a = {slot: f.arg(slot, PTR if slot in POINTERS else "i64") for slot in Arg if slot not in unread}
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        kinds = list(enumerate(self.operands))
        fixed = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in kinds if kind == "scalar"}
        filters = f.mul(f.mul(a[Arg.TALL], a[Arg.CHANNELS]), 4 * f.lanes * self.width)
        last_pixel = f.sub(a[Arg.COLUMNS], self.pixels)
        places = [4 * f.lanes * i for i in range(self.beside)]
        vectors = f.div(a[Arg.VECTORS], self.beside) if self.beside > 1 else a[Arg.VECTORS]
        with f.items() as item:
            number, rest = f.mul(f.rem(item, vectors), self.beside), f.div(item, vectors)
            y, image = f.rem(rest, a[Arg.ROWS]), f.div(rest, a[Arg.ROWS])
            own = f.mul(f.div(number, a[Arg.PER_GROUP]), a[Arg.GROUP])
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE])), own)
            c = f.mul(number, 4 * f.lanes)
            out = f.at(f.at(f.at(a[Arg.OUT], c), f.mul(image, a[Arg.OUT_IMAGE])), f.mul(y, a[Arg.OUT_ROW]))
            column = {i: f.at(extra[i][0], c) for i, kind in kinds if kind == "column"}
            leaves = [{**fixed, **{i: f.load(f.vec(), f.at(p, place)) for i, p in column.items()}} for place in places]
            full = {
                i: f.at(f.at(f.at(extra[i][0], c), f.mul(image, extra[i][3])), f.mul(y, extra[i][2]))
                for i, kind in kinds
                if kind == "full"
            }
            own_weights = f.at(a[Arg.WEIGHTS], f.mul(number, filters))
            weights = [f.at(own_weights, f.mul(filters, i)) if i else own_weights for i in range(self.beside)]
            top = f.sub(f.mul(y, a[Arg.STRIDE]), a[Arg.TOP])
            row = a[Arg.COLUMNS], last_pixel, a[Arg.LEFT], a[Arg.WIDTH]
            for x, start, edge in self._neighbours.each(f, *row):
                totals = self._sums(f, a, source, weights, top, start, edge)
                for n in range(self.pixels):
                    at = f.add(x, n) if n else x
                    pixel = f.at(out, f.mul(at, a[Arg.OUT_PIXEL]))
                    others = {i: f.at(p, f.mul(at, extra[i][1])) for i, p in full.items()}
                    for own_leaves, total, place in zip(leaves, totals[n :: self.pixels], places, strict=True):
                        every = own_leaves | {i: f.load(f.vec(), f.at(p, place)) for i, p in others.items()}
                        result = ex.emit(f, self.expr, [total, *(every[i] for i, _ in kinds)])
                        f.store(f.vec(), result, f.at(pixel, place))

    def _sums(
        self, f: Emitter, a: Mapping[Arg, str], source: str, weights: Sequence[str], top: str, start: str, edge: bool
    ) -> list[str]:
        """The sums of a group of pixels, those of one vector before those of the next; on the ``edge`` some columns are padding."""
        v, line = f.vec(), 4 * f.lanes * self.width
        uses = self._neighbours.uses()
        pixel = str(self.step) if self.step else a[Arg.PIXEL]
        offset = f.mul(start, pixel)
        across = {j: self.step * j if self.step else f.mul(pixel, j) for j in uses}
        checks = self._neighbours.checks(f, start, a[Arg.WIDTH]) if edge else {}
        carried = [(v, "zeroinitializer")] * (self.pixels * self.beside)
        with f.loop(0, a[Arg.TALL], carried=[*((PTR, w) for w in weights), *carried]) as down:
            r = f.add(top, f.mul(a[Arg.DILATION], down.index))
            exists = f.value(f"icmp ult i64 {r}, {a[Arg.HEIGHT]}")
            row = f.at(f.at(source, f.mul(r, a[Arg.ROW])), offset)
            if edge:
                places = {
                    j: f.select(f.value(f"and i1 {checks[j]}, {exists}"), PTR, f.at(row, across[j]), a[Arg.ZEROS])
                    for j in sorted(uses)
                }
            elif self.step:
                row = f.select(exists, PTR, row, a[Arg.ZEROS])
                places = {}
            else:
                # Of a row that does not exist every element is the first of ``ZEROS``.
                places = {j: f.select(exists, PTR, f.at(row, across[j]), a[Arg.ZEROS]) for j in sorted(uses)}
            at, totals = down.vars[: self.beside], down.vars[self.beside :]
            if self.spread:
                loaded = {j: f.load(v, places[j] if places else f.at(row, across[j])) for j in sorted(uses)}
                for channel in range(self.spread):
                    inputs = {j: self._spread(f, x, channel) for j, x in loaded.items()}
                    totals = self._products(f, totals, inputs, uses, at)
                    at = [f.at(p, line) for p in at]
            else:
                begun = [*((PTR, p) for p in at), *((v, t) for t in totals)]
                with f.loop(0, a[Arg.CHANNELS], carried=begun) as every:
                    move = f.mul(every.index, a[Arg.CHANNEL])
                    if places:
                        inputs = {j: f.splat(f.load(F32, f.at(p, move))) for j, p in places.items()}
                    else:
                        here = f.at(row, move)
                        inputs = {j: f.splat(f.load(F32, f.at(here, across[j]))) for j in sorted(uses)}
                    own = every.vars[: self.beside]
                    sums = self._products(f, every.vars[self.beside :], inputs, uses, own)
                    every.next = [*(f.at(p, line) for p in own), *sums]
                at, totals = every.vars[: self.beside], every.vars[self.beside :]
            down.next = [*at, *totals]
        return down.vars[self.beside :]

    def _products(
        self,
        f: Emitter,
        totals: Sequence[str],
        inputs: dict[int, str],
        uses: dict[int, list[tuple[int, int]]],
        at: Sequence[str],
    ) -> list[str]:
        """The sums after one input channel of a row of taps."""
        weights = [[f.load(f.vec(), f.at(p, 4 * f.lanes * k)) for k in range(self.width)] for p in at]
        totals = list(totals)
        for j, x in inputs.items():
            for n, k in uses[j]:
                for i, taps in enumerate(weights):
                    totals[i * self.pixels + n] = f.fma(x, taps[k], totals[i * self.pixels + n])
        return totals

    def _spread(self, f: Emitter, x: str, channel: int) -> str:
        """One channel of each group in all lanes of the group."""
        lanes = ", ".join(f"i32 {lane // self.spread * self.spread + channel}" for lane in range(f.lanes))
        return f.value(f"shufflevector {f.vec()} {x}, {f.vec()} poison, <{f.lanes} x i32> <{lanes}>")
