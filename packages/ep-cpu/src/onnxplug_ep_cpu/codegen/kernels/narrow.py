"""Matrix products of few columns: vectors along k, of which each element of the result adds up one in the end."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter

_GROUP = 4
"""Sums whose lanes are added up together: as many as 128 bits hold."""


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. Operands follow, four slots each: address, row step, steps of the two batches."""

    A = 0
    B = 1  # [vector of k][column][lane], filled up with zeros
    C = 2
    M = 3
    K = 4
    LDA = 5
    LDC = 6
    BLOCK = 7  # rows of one item
    BLOCKS = 8
    INNER = 9  # batch entries of the inner batch
    A_OUTER = 10
    A_INNER = 11
    B_OUTER = 12
    B_INNER = 13
    C_OUTER = 14
    C_INNER = 15
    OPERANDS = 16


@record(frozen=True, slots=True)
class Narrow:
    """``expr`` of the sums for ``columns`` columns, no more than a vector has lanes, of ``rows`` rows at once; an item is (batch entry,
    block of rows). The last rows overlap the ones before. ``tail``: k does not fill the last vector. ``operands`` are as ``Gemm``'s."""

    rows: int
    columns: int
    tail: bool
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.C else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        mask = f.lanes_below(str(self.columns)) if self.columns < f.lanes else None
        fixed = {
            i: f.splat(f.load(F32, extra[i][0])) if kind == "scalar" else f.load_masked(F32, extra[i][0], mask)
            for i, kind in enumerate(self.operands)
            if kind in ("scalar", "column")
        }
        last = f.sub(a[Arg.M], self.rows)
        with f.items() as item:
            block, entry = f.rem(item, a[Arg.BLOCKS]), f.div(item, a[Arg.BLOCKS])
            inner, outer = f.rem(entry, a[Arg.INNER]), f.div(entry, a[Arg.INNER])

            def start(base: str, steps: Sequence[str], outer: str = outer, inner: str = inner) -> str:
                return f.at(f.at(base, f.mul(outer, steps[0])), f.mul(inner, steps[1]))

            left = start(a[Arg.A], a[Arg.A_OUTER : Arg.A_INNER + 1])
            right = start(a[Arg.B], a[Arg.B_OUTER : Arg.B_INNER + 1])
            out = start(a[Arg.C], a[Arg.C_OUTER : Arg.C_INNER + 1])
            moving = {i: start(extra[i][0], extra[i][2:]) for i in range(len(extra)) if i not in fixed}
            first = f.mul(block, a[Arg.BLOCK])
            with f.loop(first, f.smallest(f.add(first, a[Arg.BLOCK]), a[Arg.M]), self.rows) as turn:
                m = f.smallest(turn.index, last)
                rows = [f.at(left, f.mul(m, a[Arg.LDA]))]
                for _ in range(self.rows - 1):
                    rows.append(f.at(rows[-1], a[Arg.LDA]))
                sums = self._sums(f, rows, right, a[Arg.K])
                for r in range(self.rows):
                    row = f.add(m, r) if r else m
                    leaves = [self._row(f, sums[r * self.columns : (r + 1) * self.columns])]
                    for i, kind in enumerate(self.operands):
                        if i in fixed:
                            leaves.append(fixed[i])
                            continue
                        where = f.at(moving[i], f.mul(row, extra[i][1]))
                        leaves.append(f.splat(f.load(F32, where)) if kind == "row" else f.load_masked(F32, where, mask))
                    f.store_masked(F32, ex.emit(f, self.expr, leaves), f.at(out, f.mul(row, a[Arg.LDC])), mask)

    def _sums(self, f: Emitter, rows: Sequence[str], right: str, k: str) -> list[str]:
        """[row][column] vectors, whose lanes are yet to be added up."""
        v = f.vec()

        def added(sums: list[str], at: str, mask: str | None) -> list[str]:
            given = [f.load_masked(F32, f.at(row, f.shl(at, 2)), mask) for row in rows]
            here = f.at(right, f.mul(at, 4 * self.columns))
            panel = [f.load(v, f.at(here, 4 * f.lanes * n)) for n in range(self.columns)]
            return [f.fma(x, y, sums[r * self.columns + n]) for r, x in enumerate(given) for n, y in enumerate(panel)]

        whole = f.and_(k, -f.lanes)
        with f.loop(0, whole, f.lanes, [(v, "zeroinitializer")] * (self.rows * self.columns)) as step:
            step.next = added(step.vars, step.index, None)
        return added(step.vars, whole, f.lanes_below(f.sub(k, whole))) if self.tail else step.vars

    def _row(self, f: Emitter, sums: Sequence[str]) -> str:
        """The sums of the lanes of each vector, as the first lanes of one."""
        parts = [self._four(f, sums[at : at + _GROUP]) for at in range(0, len(sums), _GROUP)]
        parts += [parts[-1]] * (f.lanes // _GROUP - len(parts))
        while len(parts) > 1:
            size = f.lanes // len(parts)
            half, places = f.vec(F32, size), ", ".join(f"i32 {lane}" for lane in range(2 * size))
            parts = [
                f.value(f"shufflevector {half} {one}, {half} {other}, <{2 * size} x i32> <{places}>")
                for one, other in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def _four(self, f: Emitter, sums: Sequence[str]) -> str:
        """The sums of the lanes of up to four vectors: neighbours are added within 128 bits, which then hold all four, then those."""
        v, lanes = f.vec(), f.lanes
        found = [sums[min(n, len(sums) - 1)] for n in range(_GROUP)]
        while len(found) > 1:
            found = [self._neighbours(f, one, other) for one, other in zip(found[::2], found[1::2], strict=True)]
        (total,) = found
        while lanes > _GROUP:
            wide, lanes = f.vec(F32, lanes), lanes // 2
            low, high = (
                f.value(
                    f"shufflevector {wide} {total}, {wide} poison, <{lanes} x i32> "
                    f"<{', '.join(f'i32 {first + n}' for n in range(lanes))}>"
                )
                for first in (0, lanes)
            )
            v = f.vec(F32, lanes)
            total = f.value(f"fadd {v} {low}, {high}")
        return total

    def _neighbours(self, f: Emitter, one: str, other: str) -> str:
        """Of each 128 bits the sums of neighbours of the one, then of the other."""
        v, n = f.vec(), f.lanes
        halves = []
        for odd in (0, 1):
            places = ", ".join(
                f"i32 {at + odd + step}"
                for block in range(0, n, _GROUP)
                for at in (block, n + block)
                for step in (0, 2)
            )
            halves.append(f.value(f"shufflevector {v} {one}, {v} {other}, <{n} x i32> <{places}>"))
        return f.value(f"fadd {v} {halves[0]}, {halves[1]}")
