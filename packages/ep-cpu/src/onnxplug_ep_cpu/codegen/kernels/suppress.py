"""Greedy non-maximum suppression of boxes: take the best, drop what overlaps it, until enough are taken."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter, float_text


@record(frozen=True, slots=True)
class Suppress:
    """One item: all boxes of a class. Arguments: sides (left, top, right, bottom, area, a row of floats each), bytes of a row,
    scores (which it consumes), boxes (whole vectors of them; ones to be passed over score -inf), how many to take at most,
    the overlap from which a box is dropped as a float at an address, result (int32 numbers), how many were taken (int64).
    """

    def emit(self, f: Emitter) -> None:
        sides, row, scores = f.arg(0, PTR), f.arg(1), f.arg(2, PTR)
        boxes, most, limit = f.arg(3), f.arg(4), f.splat(f.load(F32, f.arg(5, PTR)))
        taken, count = f.arg(6, PTR), f.arg(7, PTR)
        none = f"float {float_text(float('-inf'))}"
        with f.items(), f.loop(0, most) as turn:
            best, place = self._best(f, scores, boxes)
            with f.when(f.value(f"fcmp ogt float {best}, {none[6:]}")):
                f.store(I32, place, f.at(taken, f.shl(turn.index, 2)))
                f.store("i64", f.add(turn.index, 1), count, 8)
                at = f.shl(f.value(f"zext i32 {place} to i64"), 2)
                f.do(f"store {none}, ptr {f.at(scores, at)}, align 4")
                own, where = [], sides
                for _ in range(5):
                    own.append(f.splat(f.load(F32, f.at(where, at))))
                    where = f.at(where, row)
                with f.loop(0, boxes, f.lanes) as box:
                    self._drop(f, own, sides, row, scores, f.shl(box.index, 2), limit)

    def _best(self, f: Emitter, scores: str, boxes: str) -> tuple[str, str]:
        """The highest score and the first place that has it."""
        n, v, ints, bools = f.lanes, f.vec(), f.vec(I32), f.vec("i1")
        start = "<" + ", ".join(f"i32 {i}" for i in range(n)) + ">"
        carried = [(v, f.constant(float("-inf"))), (ints, "zeroinitializer"), (ints, start)]
        with f.loop(0, boxes, n, carried) as box:
            best, place, here = box.vars
            score = f.load(v, f.at(scores, f.shl(box.index, 2)))
            above = f.value(f"fcmp ogt {v} {score}, {best}")
            box.next = [
                f.value(f"select {bools} {above}, {v} {score}, {v} {best}"),
                f.value(f"select {bools} {above}, {ints} {here}, {ints} {place}"),
                f.value(f"add {ints} {here}, splat (i32 {n})"),
            ]
        best, place, _ = box.vars
        top = f.reduce("fmax", best)
        equal = f.value(f"fcmp oeq {v} {best}, {f.splat(top)}")
        places = f.value(f"select {bools} {equal}, {ints} {place}, {ints} splat (i32 2147483647)")
        return top, f.intrinsic(f"llvm.vector.reduce.smin.v{n}i32", I32, (ints, places))

    def _drop(self, f: Emitter, own: list[str], sides: str, row: str, scores: str, at: str, limit: str) -> None:
        """Take the boxes that overlap ``own`` too much out of the running."""
        v, bools = f.vec(), f.vec("i1")
        others, where = [], f.at(sides, at)
        for _ in range(5):
            others.append(f.load(v, where))
            where = f.at(where, row)

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
        score = f.load(v, f.at(scores, at))
        f.store(v, f.value(f"select {bools} {over}, {v} {f.constant(float('-inf'))}, {v} {score}"), f.at(scores, at))
