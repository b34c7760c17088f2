"""Squared distances between rows and columns, taken as they are: |a|^2 - 2 a.b + |b|^2 cancels where the two lie close."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter

ROWS, VECTORS = 4, 2
"""Rows and vectors of columns of a tile."""


@record(frozen=True, slots=True)
class Pairwise:
    """out = ``expr`` of the squared distance of each row of x to each column, which lie in panels [feature][VECTORS * lanes]. An item
    is (rows, panel). Arguments: out, x, panels, rows, features, panels' count, bytes from row to row of out and of x, rows of an item.
    """

    expr: ex.Expr = ex.IDENTITY

    def emit(self, f: Emitter) -> None:
        out, x, packed = (f.arg(i, PTR) for i in range(3))
        rows, features, panels, out_step, x_step, block = (f.arg(i) for i in range(3, 9))
        width = 4 * VECTORS * f.lanes
        with f.items() as item:
            panel, part = f.rem(item, panels), f.div(item, panels)
            columns = f.at(packed, f.mul(panel, f.mul(features, width)))
            to = f.at(out, f.mul(panel, width))
            first = f.mul(part, block)
            end = f.smallest(f.add(first, block), rows)
            whole = f.sub(end, f.rem(f.sub(end, first), ROWS))
            for count, start, stop in ((ROWS, first, whole), (1, whole, end)):
                with f.loop(start, stop, count) as row:
                    self._tile(
                        f, count, f.at(x, f.mul(row.index, x_step)), columns, f.at(to, f.mul(row.index, out_step)),
                        features, x_step, out_step,
                    )  # fmt: skip

    def _tile(
        self, f: Emitter, count: int, x: str, columns: str, to: str, features: str, x_step: str, out_step: str
    ) -> None:
        v = f.vec()
        xs, tos = [x], [to]
        for _ in range(1, count):
            xs.append(f.at(xs[-1], x_step))
            tos.append(f.at(tos[-1], out_step))
        with f.loop(0, features, 1, [(v, "zeroinitializer")] * (count * VECTORS)) as k:
            here = f.at(columns, f.mul(k.index, 4 * VECTORS * f.lanes))
            theirs = [f.load(v, f.at(here, 4 * f.lanes * i)) for i in range(VECTORS)]
            for row, where in enumerate(xs):
                mine = f.splat(f.load(F32, f.at(where, f.shl(k.index, 2))))
                for i in range(VECTORS):
                    apart = f.value(f"fsub {v} {mine}, {theirs[i]}")
                    k.next.append(f.fma(apart, apart, k.vars[row * VECTORS + i]))
        for row, where in enumerate(tos):
            for i in range(VECTORS):
                total = ex.emit(f, self.expr, [k.vars[row * VECTORS + i]])
                f.store(v, total, f.at(where, 4 * f.lanes * i))
