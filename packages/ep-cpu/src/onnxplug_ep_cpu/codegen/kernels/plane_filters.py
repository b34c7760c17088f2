"""Convolution of one input channel to each result over images that lie plane by plane: vectors along rows, without turning channels
innermost."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. Operands follow, four slots each: address, row, plane and image step."""

    OUT = 0
    SOURCE = 1
    WEIGHTS = 2  # [channel of the result][tap]
    CHANNELS = 3  # of the source
    FILTERS = 4  # of each of them
    PARTS = 5  # of the columns
    PART = 6  # columns of a part
    BLOCKS = 7  # of the rows
    BLOCK = 8  # rows of a block
    ROWS = 9
    COLUMNS = 10
    HEIGHT = 11
    WIDTH = 12
    TOP = 13
    LEFT = 14
    LINES = 15  # rows of the source that a block meets
    REACH = 16  # columns of the source that a part meets
    ROOM = 17  # floats of a line in between
    OUT_ROW = 18
    OUT_PLANE = 19
    OUT_IMAGE = 20
    ROW = 21
    PLANE = 22
    IMAGE = 23
    OPERANDS = 24


POINTERS = (Arg.OUT, Arg.SOURCE, Arg.WEIGHTS)


@record(frozen=True, slots=True)
class PlaneFilters:
    """``expr`` of the sums; an item is (image, channel of the source, block of rows, part of the columns), and makes the results of
    all filters of the channel.

    What a block of rows meets is first copied with the zeros around it, columns that are ``strides[1]`` apart behind each other: then
    every tap is a vector of neighbours. ``rows`` x ``vectors`` results are made together; the last of a block, and the last block and
    part, overlap those before them. ``lead``: columns of padding at the left, modulo the stride. ``short``: rows of the result have
    fewer elements than a vector. ``operands`` are "channel" (one number for each plane), "full" (rows as the result has them) or
    "scalar".
    """

    height: int
    width: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    lead: int
    rows: int
    vectors: int
    short: bool = False
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot in POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        line = f.shl(f.mul(a[Arg.ROOM], self.strides[1]), 2)
        size = f.mul(line, a[Arg.LINES])
        between = f.value(f"alloca i8, i64 {size}, align 64")
        self._clear(f, between, size)
        several = f.less(1, a[Arg.PARTS])
        fixed = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in enumerate(self.operands) if kind == "scalar"}
        with f.items() as item:
            part, rest = f.rem(item, a[Arg.PARTS]), f.div(item, a[Arg.PARTS])
            block, rest = f.rem(rest, a[Arg.BLOCKS]), f.div(rest, a[Arg.BLOCKS])
            channel, image = f.rem(rest, a[Arg.CHANNELS]), f.div(rest, a[Arg.CHANNELS])
            x = f.smallest(f.mul(part, a[Arg.PART]), f.sub(a[Arg.COLUMNS], a[Arg.PART]))
            y = f.smallest(f.mul(block, a[Arg.BLOCK]), f.sub(a[Arg.ROWS], a[Arg.BLOCK]))
            with f.when(several):  # the padding of one part is where another has columns
                self._clear(f, between, size)
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE])), f.mul(channel, a[Arg.PLANE]))
            self._copied(f, a, source, between, line, x, y)
            with f.loop(0, a[Arg.FILTERS]) as number:
                plane = f.add(f.mul(channel, a[Arg.FILTERS]), number.index)
                weights = f.at(a[Arg.WEIGHTS], f.mul(plane, 4 * self.height * self.width))
                leaves = dict(fixed)
                places = [
                    self._place(f, a[Arg.OUT], (a[Arg.OUT_IMAGE], a[Arg.OUT_PLANE], a[Arg.OUT_ROW]), image, plane, y, x)
                ]
                steps = [a[Arg.OUT_ROW]]
                for i, kind in enumerate(self.operands):
                    start, row, planes, images = extra[i]
                    if kind == "channel":
                        leaves[i] = f.splat(f.load(F32, f.at(start, f.mul(plane, planes))))
                    elif kind == "full":
                        places.append(self._place(f, start, (images, planes, row), image, plane, y, x))
                        steps.append(row)
                self._filtered(f, a, between, line, weights, places, steps, leaves)

    @staticmethod
    def _clear(f: Emitter, start: str, size: str) -> None:
        with f.loop(0, size, 4 * f.lanes) as fresh:
            f.store(f.vec(), "zeroinitializer", f.at(start, fresh.index))

    @staticmethod
    def _largest(f: Emitter, a: str, b: int) -> str:
        return f.select(f.less(a, b), "i64", str(b), a)

    @staticmethod
    def _place(f: Emitter, start: str, steps: Sequence[str], image: str, plane: str, y: str, x: str) -> str:
        """Where the first result of an item is, or an operand of it."""
        for step, index in zip(steps, (image, plane, y), strict=True):
            start = f.at(start, f.mul(step, index))
        return f.at(start, f.shl(x, 2))

    def _copied(self, f: Emitter, a: Sequence[str], source: str, between: str, line: str, x: str, y: str) -> None:
        """Copy what a block meets; ``between`` starts a vector before the first column that the taps of the first result read."""
        stride, lanes = self.strides[1], f.lanes
        many = stride * lanes
        top, left = f.sub(f.mul(y, self.strides[0]), a[Arg.TOP]), f.sub(a[Arg.LEFT], f.mul(x, stride))
        begin = self._largest(f, left, self.lead - stride)
        column = f.sub(begin, left)
        count = self._largest(f, f.smallest(f.sub(a[Arg.WIDTH], column), f.sub(a[Arg.REACH], begin)), 0)
        # ``begin`` is ``lead`` modulo the stride, so that each phase has its place in every vector.
        index = f.value(f"sdiv i64 {f.sub(begin, self.lead)}, {stride}")
        at, whole = f.at(source, f.shl(column, 2)), f.sub(count, many - 1)
        rest = f.mul(f.div(count, many), many)
        with f.loop(0, a[Arg.LINES]) as number:
            row = f.add(top, number.index)
            to = f.at(f.at(between, f.mul(number.index, line)), f.shl(f.add(index, lanes), 2))
            here = f.at(at, f.mul(row, a[Arg.ROW]))
            exists = f.value(f"icmp ult i64 {row}, {a[Arg.HEIGHT]}")
            with f.when(exists):
                with f.loop(0, whole, many) as step:
                    self._apart(f, a, f.load(f.vec(F32, many), f.at(here, f.shl(step.index, 2))), to, step.index)
                with f.when(f.less(rest, count)):
                    wide, v = f.vec("i64", many), f.vec(F32, many)
                    numbers = "<" + ", ".join(f"i64 {i}" for i in range(many)) + ">"
                    left_over = f.splat(f.sub(count, rest), "i64", many)
                    mask = f.value(f"icmp slt {wide} {numbers}, {left_over}")
                    found = f.intrinsic(
                        f"llvm.masked.load.v{many}f32.p0", v, (PTR, f.at(here, f.shl(rest, 2))), ("i32", "4"),
                        (f.vec("i1", many), mask), (v, "zeroinitializer"),
                    )  # fmt: skip
                    self._apart(f, a, found, to, rest)
            with f.when(f.value(f"xor i1 {exists}, true")):
                start = f.at(between, f.mul(number.index, line))
                self._clear(f, start, line)

    def _apart(self, f: Emitter, a: Sequence[str], found: str, to: str, column: str) -> None:
        """Store columns behind the first of a line, each phase in its part of the line."""
        stride, many = self.strides[1], self.strides[1] * f.lanes
        v, wide = f.vec(), f.vec(F32, many)
        to = f.at(to, f.shl(f.div(column, stride), 2))
        for phase in range(stride):
            first = (phase - self.lead) % stride
            picks = ", ".join(f"i32 {first + lane * stride}" for lane in range(f.lanes))
            own = (
                found
                if stride == 1
                else f.value(f"shufflevector {wide} {found}, {wide} poison, <{f.lanes} x i32> <{picks}>")
            )
            later = 0 if phase >= self.lead else 4
            f.store(v, own, f.at(f.at(to, f.shl(f.mul(a[Arg.ROOM], phase), 2)) if phase else to, later))

    def _filtered(
        self, f: Emitter, a: Sequence[str], between: str, line: str, weights: str, places: Sequence[str], steps: Sequence[str],
        leaves: dict[int, str],
    ) -> None:  # fmt: skip
        """Write the results of one filter."""
        held: dict[int, str] = {}
        taps, sums = self.height * self.width, self.rows * self.vectors
        if taps + sums < f.target.registers - 1:
            held = {tap: f.splat(f.load(F32, f.at(weights, 4 * tap))) for tap in range(taps)}
        wide = f.lanes * self.vectors
        mask = f.lanes_below(a[Arg.PART]) if self.short else None
        last_x, last_y = "0" if self.short else f.sub(a[Arg.PART], wide), f.sub(a[Arg.BLOCK], self.rows)
        read = [i for i, kind in enumerate(self.operands) if kind == "full"]
        with f.loop(0, a[Arg.BLOCK], self.rows) as group:
            y = f.smallest(group.index, last_y)
            lines = f.at(between, f.mul(f.mul(y, self.strides[0]), line))
            starts = [f.at(place, f.mul(y, step)) for place, step in zip(places, steps, strict=True)]
            with f.loop(0, a[Arg.PART], wide) as turn:
                at = f.shl(f.smallest(turn.index, last_x), 2)
                totals = self._sums(f, a, f.at(lines, f.add(at, 4 * f.lanes)), line, weights, held)
                here = [f.at(start, at) for start in starts]
                for r in range(self.rows):
                    for n in range(self.vectors):
                        to, *others = (f.at(p, 4 * f.lanes * n) for p in here)
                        leaves |= {i: f.load_masked(F32, p, mask) for i, p in zip(read, others, strict=True)}
                        operands = [totals[r * self.vectors + n], *(leaves[i] for i in range(len(self.operands)))]
                        f.store_masked(F32, ex.emit(f, self.expr, operands), to, mask)
                    here = [f.at(p, step) for p, step in zip(here, steps, strict=True)]

    def _sums(
        self, f: Emitter, a: Sequence[str], lines: str, line: str, weights: str, held: dict[int, str]
    ) -> list[str]:
        """[row][vector] sums."""
        stride, dilation = self.strides[1], self.dilations[1]
        totals = ["zeroinitializer"] * (self.rows * self.vectors)
        for down, pairs in sorted(
            Neighbours(self.rows, self.height, self.strides[0], self.dilations[0]).uses().items()
        ):
            row = f.at(lines, f.mul(line, down)) if down else lines
            for across in range(self.width):
                index, phase = divmod(across * dilation, stride)
                own = f.at(row, f.shl(f.mul(a[Arg.ROOM], phase), 2)) if phase else row
                found = [f.load(f.vec(), f.at(own, 4 * (index + n * f.lanes))) for n in range(self.vectors)]
                for r, tap in pairs:
                    tap = tap * self.width + across
                    weight = held.get(tap) or f.splat(f.load(F32, f.at(weights, 4 * tap)))
                    for n, x in enumerate(found):
                        totals[r * self.vectors + n] = f.fma(x, weight, totals[r * self.vectors + n])
        return totals
