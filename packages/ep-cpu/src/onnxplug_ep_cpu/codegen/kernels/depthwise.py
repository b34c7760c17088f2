"""Depthwise convolution over channels-last data: a vector of channels at a time, several output pixels at once."""

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
    GROUPS = 7  # of rows that are made together, in an image
    ROWS = 8
    COLUMNS = 9
    HEIGHT = 10
    WIDTH = 11
    TOP = 12
    LEFT = 13
    OUT_PIXEL = 14
    OUT_ROW = 15
    OUT_IMAGE = 16
    PIXEL = 17
    ROW = 18
    IMAGE = 19
    TALL = 20  # rows of taps, where the kernel serves any number
    DEPTH = 21  # what follows is of bodies
    FRONT = 22
    DEPTH_STRIDE = 23
    DEPTH_DILATION = 24
    LAYER = 25
    OPERANDS = 26


@record(frozen=True, slots=True)
class Block:
    """What one turn of the loop makes: ``rows`` x ``pixels`` results of a vector of channels. ``rolled``: one row of taps after the
    other in a loop, however many there are."""

    rows: int
    pixels: int
    rolled: bool = False


@record(frozen=True, slots=True)
class Depthwise:
    """``expr`` of the sums of ``depth`` x ``height`` x ``width`` taps; an item is (image, rows of a block, block of channels).

    What the taps of a block of results share is read once; the last rows, pixels and channels overlap the ones before; ``masked``:
    there are fewer channels than lanes. Channels are innermost, so that memory is read and written in its order.
    ``operands`` are "column", "full" or "scalar" as the product kernel's are. Without ``depth`` the source is an image, of one
    layer; with it a block is of one row.
    """

    height: int
    width: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    block: Block
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()
    depth: int = 0
    masked: bool = False
    far: bool = False
    """The result is beyond the second-level cache: its lines are asked for before they are written."""

    @property
    def _across(self) -> Neighbours:
        return Neighbours(self.block.pixels, self.width, self.strides[1], self.dilations[1])

    @property
    def _down(self) -> Neighbours:
        return Neighbours(self.block.rows, self.height, self.strides[0], self.dilations[0])

    def emit(self, f: Emitter) -> None:
        pointers = (Arg.OUT, Arg.SOURCE, Arg.WEIGHTS, Arg.ZEROS)
        a = [f.arg(slot, PTR if slot in pointers else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        kinds = list(enumerate(self.operands))
        fixed = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in kinds if kind == "scalar"}
        filters = f.mul(a[Arg.TALL], 4 * self.width) if self.block.rolled else str(4 * self._taps)
        last = f.sub(a[Arg.CHANNELS], f.lanes)
        mask = f.lanes_below(a[Arg.CHANNELS]) if self.masked else None
        last_pixel, last_row = f.sub(a[Arg.COLUMNS], self.block.pixels), f.sub(a[Arg.ROWS], self.block.rows)
        with f.items() as item:
            part, rest = f.rem(item, a[Arg.PARTS]), f.div(item, a[Arg.PARTS])
            group, image = f.rem(rest, a[Arg.GROUPS]), f.div(rest, a[Arg.GROUPS])
            y = group if self.depth else f.smallest(f.mul(group, self.block.rows), last_row)
            source = f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE]))
            window = self._rolled(f, a, source, y) if self.block.rolled else self._unrolled(f, a, source, y)
            written = [(a[Arg.OUT], a[Arg.OUT_PIXEL], a[Arg.OUT_ROW], a[Arg.OUT_IMAGE])]
            read = [i for i, kind in kinds if kind == "full"]
            places = [
                self._rows(f, f.at(f.at(start, f.mul(image, step)), f.mul(y, row)), row)
                for start, _, row, step in (*written, *(extra[i] for i in read))
            ]
            steps = [a[Arg.OUT_PIXEL], *(extra[i][1] for i in read)]
            first = f.mul(part, a[Arg.PART])
            end = f.smallest(f.add(first, a[Arg.PART]), a[Arg.CHANNELS])
            row = a[Arg.COLUMNS], last_pixel, a[Arg.LEFT], a[Arg.WIDTH]
            for x, start, edge in self._across.each(f, *row):
                begin = f.mul(start, a[Arg.PIXEL])
                exists = self._across.checks(f, start, a[Arg.WIDTH]) if edge else {}
                here = [
                    [f.at(line, f.mul(x, step)) for line in lines] for lines, step in zip(places, steps, strict=True)
                ]
                with f.loop(first, end, f.lanes) as channel:
                    c = "0" if self.masked else f.shl(f.smallest(channel.index, last), 2)
                    own = f.at(a[Arg.WEIGHTS], f.mul(channel.index, filters))
                    columns = Columns(f, a[Arg.PIXEL], a[Arg.ZEROS], exists, mask)
                    totals = window(f.add(begin, c), own, columns)
                    leaves = {
                        **fixed,
                        **{i: f.load_masked(F32, f.at(extra[i][0], c), mask) for i, kind in kinds if kind == "column"},
                    }
                    for n, total in enumerate(totals):
                        r, pixel = divmod(n, self.block.pixels)
                        to, *at = (
                            f.at(f.at(lines[r], c), f.mul(step, pixel) if pixel else 0)
                            for lines, step in zip(here, steps, strict=True)
                        )
                        if self.far:
                            f.prefetch(f.at(to, f.mul(a[Arg.OUT_PIXEL], self.block.pixels)), write=True)
                        leaves |= {i: f.load_masked(F32, p, mask) for i, p in zip(read, at, strict=True)}
                        result = ex.emit(f, self.expr, [total, *(leaves[i] for i, _ in kinds)])
                        f.store_masked(F32, result, to, mask)

    @property
    def _taps(self) -> int:
        return max(1, self.depth) * self.height * self.width

    def _rows(self, f: Emitter, first: str, step: str) -> list[str]:
        """Where the rows of a block are."""
        return [f.at(first, f.mul(step, r) if r else 0) for r in range(self.block.rows)]

    # ---- sums; ``window(offset, weights, columns)`` are those of the pixels that lie ``offset`` bytes behind a row's first

    def _unrolled(self, f: Emitter, a: Sequence[str], image: str, y: str) -> Window:
        """All taps in one block of code."""
        lines = self._lines(f, a, image, y)
        across = self._across.uses()

        def window(offset: str, weights: str, columns: Columns) -> list[str]:
            totals = ["zeroinitializer"] * (self.block.rows * self.block.pixels)
            held: dict[int, str] = {}
            for pairs, line in lines:
                # Weights that leave sums and taps too few registers are read again for every row.
                held = held if self._taps + len(totals) < f.target.registers - 1 else {}
                row = f.at(line, offset)
                for j in sorted(across):
                    x = columns.read(row, j)
                    for r, down in pairs:
                        for n, k in across[j]:
                            tap = down * self.width + k
                            # Read where first needed: all of a long row would not fit the registers.
                            if tap not in held:
                                held[tap] = f.load(f.vec(), f.at(weights, 4 * f.lanes * tap))
                            at = r * self.block.pixels + n
                            totals[at] = f.fma(x, held[tap], totals[at])
            return totals

        return window

    def _lines(self, f: Emitter, a: Sequence[str], image: str, y: str) -> list[tuple[list[tuple[int, int]], str]]:
        """The rows of the source that a block meets, zeros in place of padding: of each which (row of the block, row of taps) pairs
        it counts for, and where it is."""
        layer, row = (f.div(y, a[Arg.ROWS]), f.rem(y, a[Arg.ROWS])) if self.depth else ("0", y)
        top = f.sub(f.mul(row, self.strides[0]), a[Arg.TOP])
        flat = []
        for down, pairs in sorted(self._down.uses().items()):
            at = f.add(top, down)
            flat.append((pairs, f.value(f"icmp ult i64 {at}, {a[Arg.HEIGHT]}"), f.at(image, f.mul(at, a[Arg.ROW]))))
        if not self.depth:
            return [(pairs, f.select(inside, PTR, line, a[Arg.ZEROS])) for pairs, inside, line in flat]
        front = f.sub(f.mul(layer, a[Arg.DEPTH_STRIDE]), a[Arg.FRONT])
        lines = []
        for tap in range(self.depth):
            z = f.add(front, f.mul(a[Arg.DEPTH_DILATION], tap))
            there, step = f.value(f"icmp ult i64 {z}, {a[Arg.DEPTH]}"), f.mul(z, a[Arg.LAYER])
            for pairs, inside, line in flat:
                both = f.value(f"and i1 {there}, {inside}")
                behind = [(r, tap * self.height + down) for r, down in pairs]
                lines.append((behind, f.select(both, PTR, f.at(line, step), a[Arg.ZEROS])))
        return lines

    def _rolled(self, f: Emitter, a: Sequence[str], image: str, y: str) -> Window:
        """A loop over the rows of taps that see the source."""
        v, step, line = f.vec(), self.dilations[0], 4 * f.lanes * self.width
        across = self._across.uses()
        top = f.sub(f.mul(y, self.strides[0]), a[Arg.TOP])
        first = f.div(f.sub(step - 1, f.smallest(top, 0)), step)
        below = f.sub(a[Arg.HEIGHT], f.smallest(top, a[Arg.HEIGHT]))
        end = f.smallest(f.div(f.add(below, step - 1), step), a[Arg.TALL])
        further = f.mul(a[Arg.ROW], step)
        start = f.at(image, f.add(f.mul(top, a[Arg.ROW]), f.mul(first, further)))

        def window(offset: str, weights: str, columns: Columns) -> list[str]:
            own, row = f.at(weights, f.mul(first, line)), f.at(start, offset)
            carried = [(PTR, own), (PTR, row), *[(v, "zeroinitializer")] * self.block.pixels]
            with f.loop(first, end, carried=carried) as down:
                own, row, *totals = down.vars
                taps = [f.load(v, f.at(own, 4 * f.lanes * k)) for k in range(self.width)]
                for j in sorted(across):
                    x = columns.read(row, j)
                    for n, k in across[j]:
                        totals[n] = f.fma(x, taps[k], totals[n])
                down.next = [f.at(own, line), f.at(row, further), *totals]
            return down.vars[2:]

        return window


class Columns:
    """How the columns of the source that a block meets are read: ``pixel`` bytes apart; of those in ``exists`` some are padding."""

    def __init__(self, f: Emitter, pixel: str, zeros: str, exists: dict[int, str], mask: str | None) -> None:
        self._f, self._pixel, self._zeros, self._exists, self._mask = f, pixel, zeros, exists, mask
        self._masks: dict[int, str] = {}

    def read(self, row: str, column: int) -> str:
        """A vector of channels."""
        f = self._f
        where = f.at(row, f.mul(self._pixel, column) if column else 0)
        if column not in self._exists:
            return f.load_masked(F32, where, self._mask)
        if f.target.registers < 32 or not f.target.masks:
            where = f.select(self._exists[column], PTR, where, self._zeros)
            return f.load_masked(F32, where, self._mask)
        # With masks of their own, lanes that are not read cost nothing.
        if column not in self._masks:
            some = self._mask or "splat (i1 true)"
            bools = f.vec("i1")
            self._masks[column] = f.select(self._exists[column], bools, some, "zeroinitializer")
        return f.load_masked(F32, where, self._masks[column])


Window = Callable[[str, str, Columns], list[str]]
