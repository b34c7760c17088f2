"""Greedy non-maximum suppression of boxes: best first, each is taken that overlaps none of those taken, until they are enough."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels import heap
from onnxplug_ep_cpu.codegen.kernels.topk import ordered

SIDES = 5
"""Rows of numbers about the boxes taken: left, top, right, bottom, area."""


def memory(boxes: int, room: int) -> int:
    """Bytes that the kernel needs beside its operands, for boxes of which it takes no more than ``room`` of a class."""
    return 8 * (boxes + 1) + 4 * SIDES * room


@record(frozen=True, slots=True)
class Suppress:
    """An item is an image with all of its classes; one call does all of them. Boxes are (y1, x1, y2, x2), corners in any order,
    or ``centered`` (x, y, width, height).

    Arguments: boxes, scores [image][class][box], boxes of an image, classes, the score that those in the running exceed and the
    overlap from which one is dropped (floats that share a slot), how many to take of a class at most, their room (whole vectors of
    them), result (rows of three int64: image, class, box), where its end is written to, memory.
    """

    centered: bool

    def emit(self, f: Emitter) -> None:
        given, scores, boxes, classes = f.arg(0, PTR), f.arg(1, PTR), f.arg(2), f.arg(3)
        least, limit = (f.splat(f.load(F32, f.at("%args", at))) for at in (32, 36))
        most, room, result, end = f.arg(5), f.shl(f.arg(6), 2), f.arg(7, PTR), f.arg(8, PTR)
        pairs = f.arg(9, PTR)
        kept = f.at(pairs, f.shl(f.add(boxes, 1), 3))
        row = f.shl(boxes, 2)
        lanes = f.value(f"alloca [{f.lanes} x i32], align 64")
        with f.loop("%lo", "%hi", 1, [(PTR, result)]) as image:
            corners = f.at(given, f.shl(f.mul(image.index, boxes), 4))
            with f.loop(0, classes, 1, [(PTR, image.vars[0])]) as category:
                item = f.add(f.mul(image.index, classes), category.index)
                running = self._running(f, f.at(scores, f.mul(item, row)), boxes, least, pairs, lanes)
                heap.build(f, pairs, running)
                (to,) = category.vars
                many = self._take(f, corners, pairs, running, kept, room, most, limit, to)
                with f.loop(0, many) as k:
                    place = f.at(to, f.mul(k.index, 24))
                    f.store(I64, image.index, place, 8)
                    f.store(I64, category.index, f.at(place, 8), 8)
                category.next = [f.at(to, f.mul(many, 24))]
            image.next = category.vars
        f.store(PTR, image.vars[0], end, 8)

    def _sides(self, f: Emitter, at: str) -> list[str]:
        """Left, top, right, bottom and area of a box."""
        a, b, c, d = (f.load(F32, f.at(at, 4 * i)) for i in range(4))
        if self.centered:
            width, height = (f.value(f"fmul float {side}, 0.5") for side in (c, d))
            made = [
                f.value(f"{op} float {middle}, {half}")
                for op in ("fsub", "fadd")
                for middle, half in ((a, width), (b, height))
            ]
        else:
            made = [self._first(f, order, p, q) for order in ("olt", "ogt") for p, q in ((b, d), (a, c))]
        left, top, right, bottom = made
        wide, high = (f.value(f"fsub float {end}, {start}") for end, start in ((right, left), (bottom, top)))
        return [*made, f.value(f"fmul float {wide}, {high}")]

    def _first(self, f: Emitter, order: str, a: str, b: str) -> str:
        """The lesser or greater, NaN if one is."""
        kept = f.value(f"select i1 {f.value(f'fcmp {order} float {a}, {b}')}, float {a}, float {b}")
        return f.value(
            f"select i1 {f.value(f'fcmp uno float {a}, {b}')}, float {f.value(f'fadd float {a}, {b}')}, float {kept}"
        )

    def _running(self, f: Emitter, scores: str, boxes: str, least: str, pairs: str, lanes: str) -> str:
        """Write a key, lowest for the highest score, above the number of each box in the running; returns how many they are."""
        v, ints, bools = f.vec(), f.vec(I32), f.vec("i1")
        with f.loop(0, boxes, f.lanes, [(I64, "0")]) as box:
            number = f.smallest(f.sub(boxes, box.index), f.lanes)
            mask = f.lanes_below(number)
            score = f.load_masked(F32, f.at(scores, f.shl(box.index, 2)), mask)
            good = f.value(f"and {bools} {mask}, {f.value(f'fcmp ogt {v} {score}, {least}')}")
            keys = f.value(f"xor {ints} {ordered(f, score, largest=True)}, splat (i32 2147483647)")
            f.store(ints, keys, lanes, 64)
            bits = f.value(f"bitcast {bools} {good} to i{f.lanes}")
            some = f.value(f"icmp ne i{f.lanes} {bits}, 0")
            with f.loop(0, f.select(some, I64, number, "0"), 1, [(I64, box.vars[0])]) as lane:
                key = f.value(f"zext i32 {f.load(I32, f.at(lanes, f.shl(lane.index, 2)))} to i64")
                pair = f.value(f"or i64 {f.shl(key, 32)}, {f.add(box.index, lane.index)}")
                f.store(I64, pair, f.at(pairs, f.shl(lane.vars[0], 3)), 8)
                inside = f.value(f"extractelement {bools} {good}, i64 {lane.index}")
                lane.next = [f.add(lane.vars[0], f.value(f"zext i1 {inside} to i64"))]
            box.next = lane.vars
        return box.vars[0]

    def _take(
        self, f: Emitter, corners: str, pairs: str, running: str, kept: str, room: str, most: str, limit: str, to: str
    ) -> str:  # fmt: skip
        """Take boxes, best first, their numbers into the last column of rows; returns how many."""
        head, body, done = (f.label(name) for name in ("next", "box", "enough"))
        before = f.block
        f.do(f"br label %{head}")
        f.start(head)
        rest, many = f"%{head}.i", f"%{head}.m"
        at = len(f.lines)
        more = f.value(f"and i1 {f.less('0', rest)}, {f.less(many, most)}")
        f.do(f"br i1 {more}, label %{body}, label %{done}")
        f.start(body)
        best, left = heap.pop(f, pairs, rest)
        place = f.and_(best, (1 << 32) - 1)
        own = self._sides(f, f.at(corners, f.shl(place, 4)))
        clear = self._is_clear(f, [f.splat(side) for side in own], kept, room, many, limit)
        with f.when(clear):
            f.store(I64, place, f.at(to, f.add(f.mul(many, 24), 16)), 8)
            column = f.at(kept, f.shl(many, 2))
            for side in own:
                f.store(F32, side, column)
                column = f.at(column, room)
        following = f.add(many, f.value(f"zext i1 {clear} to i64"))
        last = f.block
        f.do(f"br label %{head}")
        f.lines[at:at] = [
            f"  {rest} = phi i64 [{running}, %{before}], [{left}, %{last}]",
            f"  {many} = phi i64 [0, %{before}], [{following}, %{last}]",
        ]
        f.start(done)
        return many

    def _is_clear(self, f: Emitter, own: list[str], kept: str, room: str, many: str, limit: str) -> str:
        """Whether a box overlaps none of those kept too much: vectors of them until one does."""
        head, body, done = (f.label(name) for name in ("look", "compare", "seen"))
        before = f.block
        f.do(f"br label %{head}")
        f.start(head)
        first = f"%{head}.i"
        at = len(f.lines)
        f.do(f"br i1 {f.less(first, many)}, label %{body}, label %{done}")
        f.start(body)
        over = self._over(f, own, f.at(kept, f.shl(first, 2)), room, limit)
        over = f.value(f"and {f.vec('i1')} {over}, {f.lanes_below(f.sub(many, first))}")
        bits = f.value(f"bitcast {f.vec('i1')} {over} to i{f.lanes}")
        none = f.value(f"icmp eq i{f.lanes} {bits}, 0")
        after, last = f.add(first, f.lanes), f.block
        f.do(f"br i1 {none}, label %{head}, label %{done}")
        f.lines.insert(at, f"  {first} = phi i64 [0, %{before}], [{after}, %{last}]")
        f.start(done)
        return f.value(f"phi i1 [true, %{head}], [false, %{last}]")

    def _over(self, f: Emitter, own: list[str], where: str, room: str, limit: str) -> str:
        """Which boxes of a vector overlap ``own`` too much."""
        v, bools = f.vec(), f.vec("i1")
        others = []
        for _ in range(SIDES):
            others.append(f.load(v, where))
            where = f.at(where, room)

        def pick(order: str, a: str, b: str) -> str:
            return f.value(f"select {bools} {f.value(f'fcmp {order} {v} {a}, {b}')}, {v} {a}, {v} {b}")

        common = ""
        for low, high in ((0, 2), (1, 3)):
            reach = f.value(f"fsub {v} {pick('olt', own[high], others[high])}, {pick('ogt', own[low], others[low])}")
            reach = pick("ogt", reach, "zeroinitializer")
            common = f.value(f"fmul {v} {common}, {reach}") if common else reach
        union = f.value(f"fsub {v} {f.value(f'fadd {v} {own[4]}, {others[4]}')}, {common}")
        over = f.value(f"fcmp ogt {v} {f.value(f'fdiv {v} {common}, {union}')}, {limit}")
        for positive in (common, own[4], others[4], union):
            over = f.value(f"and {bools} {over}, {f.value(f'fcmp ogt {v} {positive}, zeroinitializer')}")
        return over
