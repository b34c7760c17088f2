"""Rows of a table, a stretch of them at a time, as one row for each stretch."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels.gather import read_index

INFINITY = float("inf")
WIDE = 4
"""Vectors of columns that one pass over a stretch makes."""


@record(frozen=True, slots=True)
class Stretches:
    """out[stretch] = the sum, mean or maximum (``kind`` is add, mean or max) of the rows of a stretch, taken in order, with
    ``weighted`` each times its weight. They are rows of the table or, where it is ``listed``, those that indices name.

    A stretch has what is from its start to its end, both counted from the end if negative and kept within what there is (ONNX's
    Slice); the mean of none is 0. An index out of range sets the status word. An item is a block of stretches. Arguments: out,
    table, indices, starts, ends, weights, status, columns, rows of the table, indices (or rows again), stretches, stretches of an item,
    bytes from row to row of out.
    """

    kind: str
    listed: bool
    weighted: bool

    def emit(self, f: Emitter) -> None:
        out, table, indices, starts, ends, weights, status = (f.arg(i, PTR) for i in range(7))
        columns, rows, count, stretches, block, step = (f.arg(i) for i in range(7, 13))
        with f.items() as item:
            first = f.mul(item, block)
            with f.loop(first, f.smallest(f.add(first, block), stretches)) as stretch:
                start, end = (self._place(f, side, stretch.index, count) for side in (starts, ends))
                to = f.at(out, f.mul(stretch.index, step))
                size = f.select(f.less(start, end), I64, f.sub(end, start), "0")
                scale = f.value(f"sitofp i64 {f.select(f.less(0, size), I64, size, '1')} to float")

                def part(column: str, vectors: int, lanes: int, ends: tuple[str, str, str, str]) -> None:
                    to, start, end, scale = ends
                    self._part(
                        f, to, table, indices, weights, status, columns, rows, start, end, scale, column, vectors, lanes
                    )

                given = (to, start, end, scale)
                wide, whole = f.and_(columns, -WIDE * f.lanes), f.and_(columns, -f.lanes)
                with f.loop(0, wide, WIDE * f.lanes) as c:
                    part(c.index, WIDE, f.lanes, given)
                with f.loop(wide, whole, f.lanes) as c:
                    part(c.index, 1, f.lanes, given)
                with f.loop(whole, columns) as c:
                    part(c.index, 1, 1, given)

    @staticmethod
    def _place(f: Emitter, places: str, stretch: str, count: str) -> str:
        """Where a stretch begins or ends."""
        raw = f.load(I64, f.at(places, f.mul(stretch, 8)), 8)
        place = f.select(f.less(raw, 0), I64, f.add(raw, count), raw)
        return f.smallest(f.select(f.less(place, 0), I64, "0", place), count)

    def _part(
        self, f: Emitter, to: str, table: str, indices: str, weights: str, status: str, columns: str, rows: str, start: str, end: str,
        scale: str, column: str, vectors: int, lanes: int,
    ) -> None:  # fmt: skip
        """Some columns of one stretch."""
        type_ = F32 if lanes == 1 else f.vec()

        def splat(scalar: str) -> str:
            return scalar if lanes == 1 else f.splat(scalar)

        nothing = float_text(-INFINITY if self.kind == "max" else 0.0)
        initial = nothing if lanes == 1 else f"splat (float {nothing})"
        offset = f.mul(column, 4)
        with f.loop(start, end, 1, [(type_, initial)] * vectors) as j:
            row = read_index(f, 64, f.at(indices, f.mul(j.index, 8)), rows, status) if self.listed else j.index
            source = f.at(table, f.add(f.mul(f.mul(row, columns), 4), offset))
            weight = splat(f.load(F32, f.at(weights, f.mul(j.index, 4)))) if self.weighted else ""
            for k, held in enumerate(j.vars):
                x = f.load(type_, f.at(source, 4 * lanes * k))
                x = f.value(f"fmul {type_} {x}, {weight}") if self.weighted else x
                j.next.append(self._join(f, type_, held, x, lanes))
        for k, made in enumerate(j.vars):
            result = f.value(f"fdiv {type_} {made}, {splat(scale)}") if self.kind == "mean" else made
            f.store(type_, result, f.at(f.at(to, offset), 4 * lanes * k))

    def _join(self, f: Emitter, type_: str, held: str, x: str, lanes: int) -> str:
        if self.kind != "max":
            return f.value(f"fadd {type_} {held}, {x}")
        bits = "i1" if lanes == 1 else f.vec("i1")
        greater, broken = (f.value(f"fcmp {how} {type_} {x}, {other}") for how, other in (("ogt", held), ("uno", x)))
        takes = f.value(f"or {bits} {greater}, {broken}")
        return f.value(f"select {bits} {takes}, {type_} {x}, {type_} {held}")
