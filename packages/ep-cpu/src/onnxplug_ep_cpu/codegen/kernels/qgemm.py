"""Integer matrix products: C = expr(A B + bias, operands...), exact in int32, with A's rows dense or gathered through a table.

A holds int16 pairs (8-bit values less their zero point), B int8 or int16 as [panel][pair of k][column][2]. One instruction
multiplies a pair of A with a vector of pairs of B and adds the two products (pmaddwd; with VNNI it also adds the sum): no
intermediate saturates, whatever the values. Tiles, panels and tables are as in ``gemm``; where k is odd the weight of the pair's
second half is zero. With ``weights`` "int8" they are widened in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I8, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES
from onnxplug_ep_cpu.codegen.kernels.qend import Where, edge_of, inside, read, write

I16 = "i16"


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Operands follow, four slots each: address, row stride, batch strides."""

    A = 0
    B = 1
    C = 2
    M = 3
    N = 4
    PAIRS = 5  # with a table: pairs per tap
    LDA = 6
    LDC = 7
    BLOCK = 8  # tiles of rows one item does
    BLOCKS = 9
    PANELS = 10
    INNER = 11  # size of the inner batch dimension
    A0 = 12
    A1 = 13
    B1 = 14
    C0 = 15
    C1 = 16
    TABLE = 17
    TAPS = 18
    ZEROS = 19
    BIAS = 20  # int32 along columns
    BIAS1 = 21
    OPERANDS = 22


_POINTERS = frozenset({Arg.A, Arg.B, Arg.C, Arg.TABLE, Arg.ZEROS, Arg.BIAS})


@record(frozen=True, slots=True)
class QGemm:
    """One kernel; an item is (batch, block of row tiles, panel).

    ``operands`` are (kind, element) of leaves 1.. of ``expr``: "column" (a vector along n), "full" (like C), "row" (one value per
    row) or "scalar". Leaf 0 is int32. ``masked``: C is narrower than one vector.
    """

    rows: int
    vectors: int
    unroll: int
    tail: bool
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[tuple[str, str], ...] = ()
    result: str = "int32"
    weights: str = "int8"
    gathered: bool = False
    masked: bool = False

    def emit(self, f: Emitter) -> None:
        a: dict[Arg, str] = {
            slot: f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS
        }
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        width = self.vectors * f.lanes
        last_m, last_n = f.sub(a[Arg.M], self.rows), f.sub(a[Arg.N], width)
        tiles = f.div(f.add(a[Arg.M], self.rows - 1), self.rows)
        depth = f.mul(a[Arg.PAIRS], a[Arg.TAPS])
        with f.items() as item:
            panel, rest = f.rem(item, a[Arg.PANELS]), f.div(item, a[Arg.PANELS])
            block, batch = f.rem(rest, a[Arg.BLOCKS]), f.div(rest, a[Arg.BLOCKS])
            outer, inner = f.div(batch, a[Arg.INNER]), f.rem(batch, a[Arg.INNER])

            def base(pointer: str, s0: str | None, s1: str) -> str:
                moved = f.at(pointer, f.mul(inner, s1))
                return moved if s0 is None else f.at(moved, f.mul(outer, s0))

            n = "0" if self.masked else f.smallest(f.mul(panel, width), last_n)
            a_base = base(a[Arg.A], a[Arg.A0], a[Arg.A1])
            packed = f.at(base(a[Arg.B], None, a[Arg.B1]), f.mul(f.mul(panel, depth), 2 * SIZES[self.weights] * width))
            bias = f.at(base(a[Arg.BIAS], None, a[Arg.BIAS1]), f.shl(n, 2))
            operands: list[Where] = []
            for (kind, element), (pointer, stride, s0, s1) in zip(self.operands, extra, strict=True):
                where = base(pointer, s0, s1)
                if kind in ("column", "full"):
                    where = f.at(where, f.mul(n, SIZES[element]))
                operands.append((kind, element, where, stride))
            edge = edge_of(f, a[Arg.N], self.vectors) if self.masked else None
            first = f.mul(block, a[Arg.BLOCK])
            end = f.smallest(f.add(first, a[Arg.BLOCK]), tiles)
            c_at = f.at(base(a[Arg.C], a[Arg.C0], a[Arg.C1]), f.mul(n, SIZES[self.result]))
            start = [
                read(f, "int32", f.at(bias, 4 * f.lanes * i), inside(edge, i, self.vectors))
                for i in range(self.vectors)
            ]
            with f.loop(first, end) as tile:
                m = f.smallest(f.mul(tile.index, self.rows), last_m)
                sums = self._sums(f, a, a_base, packed, m, tile.index, start * self.rows)
                write(
                    f, self.expr, sums, self.vectors, f.at(c_at, f.mul(m, a[Arg.LDC])), a[Arg.LDC], self.result, m, operands,
                    edge,
                )  # fmt: skip

    def _sums(
        self, f: Emitter, a: dict[Arg, str], a_base: str, packed: str, m: str, tile: str, start: list[str]
    ) -> list[str]:
        v = f.vec(I32)
        if not self.gathered:
            row = f.at(a_base, f.mul(m, a[Arg.LDA]))
            rows = [row]
            for _ in range(1, self.rows):
                rows.append(f.at(rows[-1], a[Arg.LDA]))
            return self._inner(f, rows, packed, a[Arg.PAIRS], start)[0]
        table = f.at(a[Arg.TABLE], f.mul(tile, f.mul(a[Arg.TAPS], 4 * self.rows)))
        with f.loop(0, a[Arg.TAPS], carried=[(PTR, packed), *((v, s) for s in start)]) as tap:
            entry = f.at(table, f.mul(tap.index, 4 * self.rows))
            rows = []
            for r in range(self.rows):
                offset = f.value(f"sext i32 {f.load(I32, f.at(entry, 4 * r))} to i64")
                rows.append(f.select(f.less(offset, 0), PTR, a[Arg.ZEROS], f.at(a_base, f.shl(offset, 1))))
            sums, following = self._inner(f, rows, tap.vars[0], a[Arg.PAIRS], tap.vars[1:])
            tap.next = [following, *sums]
        return tap.vars[1:]

    def _inner(
        self, f: Emitter, rows: Sequence[str], packed: str, pairs: str, sums: Sequence[str]
    ) -> tuple[list[str], str]:
        """Add ``pairs`` steps to ``sums``; also returns B's address behind them."""
        v = f.vec(I32)
        whole = f.mul(f.div(pairs, self.unroll), self.unroll) if self.tail else pairs
        carried = [(PTR, packed), *((v, s) for s in sums)]
        with f.loop(0, whole, self.unroll, carried) as loop:
            loop.next = self._steps(f, rows, loop.index, loop.vars, self.unroll)
        if self.tail:
            with f.loop(whole, pairs, 1, [(t, s) for (t, _), s in zip(carried, loop.vars, strict=True)]) as rest:
                rest.next = self._steps(f, rows, rest.index, rest.vars, 1)
            loop = rest
        return loop.vars[1:], loop.vars[0]

    def _steps(self, f: Emitter, rows: Sequence[str], pair: str, carried: Sequence[str], steps: int) -> list[str]:
        packed, *sums = carried
        unit = 2 * SIZES[self.weights] * f.lanes
        here = [f.at(row, f.shl(pair, 2)) for row in rows]
        for j in range(steps):
            loaded = []
            for i in range(self.vectors):
                w = f.load(f.vec(MEMORY[self.weights], 2 * f.lanes), f.at(packed, unit * (j * self.vectors + i)), 1)
                wide = f.vec(I16, 2 * f.lanes)
                loaded.append(w if self.weights == "int16" else f.value(f"sext {f.vec(I8, 2 * f.lanes)} {w} to {wide}"))
            for r, row in enumerate(here):
                x = f.splat(f.load(I32, f.at(row, 4 * j), 2), I32)
                for i, w in enumerate(loaded):
                    sums[r * self.vectors + i] = dot_pairs(f, sums[r * self.vectors + i], x, w)
        return [f.at(packed, unit * self.vectors * steps), *sums]


def dot_pairs(f: Emitter, total: str, x: str, w: str) -> str:
    """total + x0 w0 + x1 w1 for int16 pairs: ``x`` as int32 lanes, ``w`` as twice as many int16 lanes."""
    v, halves = f.vec(I32), f.vec(I16, 2 * f.lanes)
    if f.target.is_x86 and f.target.name != "generic":
        name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[f.lanes]
        both = f.intrinsic(name, v, (halves, f.value(f"bitcast {v} {x} to {halves}")), (halves, w))
        return f.value(f"add {v} {total}, {both}")
    w = f.value(f"bitcast {halves} {w} to {v}")
    for low in (True, False):
        parts = [
            f.value(f"ashr {v} {f.value(f'shl {v} {p}, splat (i32 16)') if low else p}, splat (i32 16)") for p in (x, w)
        ]
        total = f.value(f"add {v} {total}, {f.value(f'mul {v} {parts[0]}, {parts[1]}')}")
    return total
