"""Register-tiled matrix products: C = expr(A B, operands...), batched, with A's rows dense or gathered through a table.

Results are computed by register tiles (``tile``). B lies in panels of a tile's width, [panel][k][width], or ``direct``: row-major with
a stride. The last tile of either direction overlaps the one before it, unless told otherwise; results must not lie over operands. With
``gathered`` the row of A for output row m and tap t starts at ``base + table[m's tile][t][row]`` floats (negative: a row of zeros), and k
runs over taps x count: convolution over channels-last data without im2col.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.gemm_slots import Arg, used
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES
from onnxplug_ep_cpu.codegen.kernels.tile import Sums, Tile
from onnxplug_ep_cpu.codegen.kernels.tile_end import TileEnd
from onnxplug_ep_cpu.codegen.kernels.tile_rows import ANY, TileRows

HEAVY = 8
"""Instructions; a costlier expression is applied in a loop over sums on the stack rather than to every register. Not over sums in
the result: tiles overlap, so that another thread may have been there, and its rows often exclude each other from the cache."""

NEXT = 4096
"""Bytes of a panel that is passed once between what is read and what is brought near: a whole panel would not stay in the
first-level cache until then."""


@record(frozen=True, slots=True)
class Gemm:
    """One kernel; an item is (batch, block of row tiles, panel), or with ``blocked`` (batch, block of row tiles, chunk
    of panels): then k goes in steps whose part of a panel stays in the first-level cache while the tiles pass, and sums
    wait in scratch memory.

    ``operands`` say how leaves 1.. of ``expr`` are read: "column" (a vector along n), "full" (like C), "row" (one value
    per row) or "scalar". ``masked``: C is narrower than one vector. ``rest``: the last tile has so many rows, rather
    than as many as others by overlapping; ANY: rows behind FULL tiles, of which there are none, or two and more.
    ``grouped``: entries of the inner batch dimension lie side by side in the rows of A, as the groups of a convolution do,
    so that all pass over a block before the next one. ``last``: vectors of the last panel, where it has fewer than others;
    ``lapped``: the only panel is wider than C, and its last vector overlaps the one before. ``near``: cache lines of the next
    panel that a turn of the loop asks for; ANY: it is told.
    """

    rows: int
    vectors: int
    unroll: int
    tail: bool
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()
    gathered: bool = False
    direct: bool = False
    masked: bool = False
    blocked: bool = False
    rest: int = 0
    grouped: bool = False
    last: int = 0
    lapped: bool = False
    near: int = 1
    element: str = "float32"
    """Of everything; vectors of float64 have as many lanes, of two registers."""
    weights: str = "float32"
    """What panels hold where that is not ``element``, numbers of 16 bits: these are widened in registers or, with ``blocked``, a step's
    part of a panel is once for all tiles that pass over it."""

    @property
    def _unit(self) -> int:
        return SIZES[self.element]

    @property
    def _held(self) -> str:
        return self.element if self.weights == "float32" else self.weights

    @property
    def _type(self) -> str:
        return MEMORY[self.element]

    def emit(self, f: Emitter) -> None:
        a = {
            slot: f.arg(slot, PTR if slot.name in ("A", "B", "C", "TABLE", "ZEROS", "SCRATCH") else "i64")
            for slot in used(self)
        }
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        width = self.vectors * f.lanes
        stack = (
            f.value(f"alloca [{self.rows * width} x {self._type}], align 64") if ex.cost(self.expr) > HEAVY else None
        )
        tiles = TileRows.of(f, self.rows, self.rest, a[Arg.M], a.get(Arg.FULL, "0"))
        chunks = a[Arg.PANELS]
        if self.blocked:
            chunks = f.div(f.add(chunks, f.sub(a[Arg.CHUNK], 1)), a[Arg.CHUNK])
        with f.items() as item:
            chunk, rest = f.rem(item, chunks), f.div(item, chunks)
            if self.grouped:
                inner, rest = f.rem(rest, a[Arg.INNER]), f.div(rest, a[Arg.INNER])
                block, outer = f.rem(rest, a[Arg.BLOCKS]), f.div(rest, a[Arg.BLOCKS])
            else:
                block, rest = f.rem(rest, a[Arg.BLOCKS]), f.div(rest, a[Arg.BLOCKS])
                inner, outer = f.rem(rest, a[Arg.INNER]), f.div(rest, a[Arg.INNER])

            def base(pointer: str, s0: str, s1: str) -> str:
                return f.at(pointer, f.add(f.mul(outer, s0), f.mul(inner, s1)))

            a_base, b_base, c_base = (
                base(a[p], a[s0], a[s1])
                for p, s0, s1 in ((Arg.A, Arg.A0, Arg.A1), (Arg.B, Arg.B0, Arg.B1), (Arg.C, Arg.C0, Arg.C1))
            )
            further = [base(pointer, s0, s1) for pointer, _, s0, s1 in extra]
            first = f.mul(block, a[Arg.BLOCK])
            end = f.smallest(f.add(first, a[Arg.BLOCK]), tiles.count)
            depth = f.mul(a[Arg.K], a[Arg.TAPS]) if self.gathered else a[Arg.K]
            mask = f.lanes_below(a[Arg.N]) if self.masked else None

            def panel_of(panel: str, vectors: int = self.vectors) -> tuple[str, str, list[tuple[str, str, str]]]:
                """Where a panel of B of so many vectors, its columns of C and of the operands are."""
                one = self.masked or self.lapped
                n = "0" if one else f.smallest(f.mul(panel, width), f.sub(a[Arg.N], vectors * f.lanes))
                columns = f.mul(n, self._unit)
                operands = [
                    (kind, f.at(where, columns) if kind in ("column", "full") else where, row)
                    for kind, where, (_, row, _, _) in zip(self.operands, further, extra, strict=True)
                ]
                b_at = f.at(b_base, columns if self.direct else f.mul(f.mul(panel, depth), SIZES[self._held] * width))
                return b_at, f.at(c_base, columns), operands

            if self.blocked:
                self._in_steps(f, a, a_base, chunk, tiles, (first, end), panel_of, stack)
            elif self.last:
                ends = f.value(f"icmp eq i64 {f.add(chunk, 1)}, {chunks}")
                for vectors, condition in ((self.vectors, f.value(f"xor i1 {ends}, true")), (self.last, ends)):
                    with f.when(condition):
                        panel = replace(self, vectors=vectors, last=0)
                        panel._over(f, a, a_base, panel_of(chunk, vectors), depth, tiles, (first, end), mask, stack)
            else:
                self._over(f, a, a_base, panel_of(chunk), depth, tiles, (first, end), mask, stack)

    def _over(
        self,
        f: Emitter,
        a: dict[Arg, str],
        a_base: str,
        panel: tuple[str, str, list[tuple[str, str, str]]],
        depth: str,
        tiles: TileRows,
        item: tuple[str, str],
        mask: str | None,
        stack: str | None,
    ) -> None:
        """An item: its tiles pass over a panel; meanwhile each brings a part of the next one near, a single one what it reads next."""
        (b_at, c_at, operands), (first, end) = panel, item
        line = SIZES[self._held] * self.vectors * f.lanes
        size, passes = f.mul(depth, line), tiles.passes(f, first, end)
        share = f.div(size, passes)
        pace = f.div(f.add(str(line * self.unroll), f.sub(passes, 1)), passes)
        far = f.select(f.less(passes, 2), "i64", f.smallest(size, NEXT), size)
        ahead = f.at(b_at, f.sub(far, f.mul(first, share)))

        def summed(rows: int, tile: str, m: str) -> Sums:
            part = replace(self, rows=rows)
            near = (
                None
                if self.direct or (self.rows == 1 and self._held == self.element)
                else (f.at(ahead, f.mul(tile, share)), pace)
            )
            if self.gathered:
                return part._gathered(f, a, a_base, b_at, tile, near)
            row = f.at(a_base, f.mul(m, a[Arg.LDA]))
            return part._dense(f, a, row, b_at, a[Arg.K], part._tile(a).zeros(), near, mask)

        def to(m: str) -> str:
            return f.at(c_at, f.mul(m, a[Arg.LDC]))

        def one(rows: int, tile: str, m: str) -> None:
            sums = summed(rows, tile, m)
            self._end.finish(f, sums, to(m), a[Arg.LDC], m, operands, mask, stack, end_at)

        end_at = f.mul(f.sub(a[Arg.N], f.lanes), self._unit) if self.lapped else None
        if stack is None:
            tiles.each(f, first, end, one)
            return

        def left(rows: int, tile: str, m: str) -> None:
            self._end.keep(f, summed(rows, tile, m), stack)

        def ended(rows: str, tile: str, m: str) -> None:
            self._end.finish_kept(f, rows, stack, to(m), a[Arg.LDC], m, operands, mask, end_at)

        tiles.each(f, first, end, one, (left, ended))

    def _in_steps(
        self,
        f: Emitter,
        a: dict[Arg, str],
        a_base: str,
        chunk: str,
        tiles: TileRows,
        item: tuple[str, str],
        panel_of: Callable[[str], tuple[str, str, list[tuple[str, str, str]]]],
        stack: str | None,
    ) -> None:
        """An item with k outermost."""
        v, line = f.vec(self._type), self._unit * f.lanes * self.vectors
        lies, widened = SIZES[self._held] * f.lanes * self.vectors, self._held != self.element
        first, end = item
        slot = f.at(a[Arg.SCRATCH], f.mul(f.div("%lo", a[Arg.GRAB]), a[Arg.SLOT]))
        start = f.mul(chunk, a[Arg.CHUNK])
        stop = f.smallest(f.add(start, a[Arg.CHUNK]), a[Arg.PANELS])
        size = f.mul(f.add(f.mul(f.sub(end, first), self.rows), tiles.left), line)
        with f.loop(0, a[Arg.K], a[Arg.DEPTH]) as step:
            count = f.smallest(a[Arg.DEPTH], f.sub(a[Arg.K], step.index))
            again = f.value(f"zext i1 {f.less(0, step.index)} to i64")
            complete = f.value(f"icmp eq i64 {f.add(step.index, count)}, {a[Arg.K]}")
            partial = f.value(f"xor i1 {complete}, true")
            with f.loop(start, stop) as panel:
                b_at, c_at, operands = panel_of(panel.index)
                b_at = f.at(b_at, f.mul(step.index, lies))
                passes, part = tiles.passes(f, first, end), f.mul(count, lies)
                share = f.div(part, passes)
                pace = f.div(f.add(str(lies * self.unroll), f.sub(passes, 1)), passes)
                ahead = f.at(f.at(b_at, f.mul(a[Arg.K], lies)), f.mul(f.sub("0", first), share))
                if widened:
                    to = f.at(slot, f.sub(a[Arg.SLOT], f.mul(a[Arg.DEPTH], line)))
                    b_at = replace(self._tile(a), weights=self.weights).widened(f, b_at, count, to)
                kept = f.at(slot, f.mul(f.sub(panel.index, start), size))

                def waits(tile: str, m: str) -> str:
                    if self.rest:
                        return f.at(kept, f.mul(f.sub(m, f.mul(first, self.rows)), line))
                    return f.at(kept, f.mul(f.sub(tile, first), self.rows * line))

                def summed(rows: int, waiting: str, tile: str, m: str) -> Sums:
                    part = replace(self, rows=rows)
                    where = [
                        [f.at(waiting, r * line + self._unit * f.lanes * i) for i in range(self.vectors)]
                        for r in range(part.rows)
                    ]
                    carried = [(v, "zeroinitializer")] * (part.rows * self.vectors)
                    with f.loop(0, again, 1, carried) as earlier:
                        earlier.next = [f.load(v, at) for row in where for at in row]
                    row = f.at(f.at(a_base, f.mul(m, a[Arg.LDA])), f.mul(step.index, self._unit))
                    near = (f.at(ahead, f.mul(tile, share)), pace)
                    return part._dense(f, a, row, b_at, count, part._tile(a).grid(earlier.vars), near)

                def ended(rows: str, tile: str, m: str) -> None:
                    with f.when(complete):
                        to, waiting = f.at(c_at, f.mul(m, a[Arg.LDC])), waits(tile, m)
                        self._end.finish_kept(f, rows, waiting, to, a[Arg.LDC], m, operands)

                def left(rows: int, tile: str, m: str) -> None:
                    waiting = waits(tile, m)
                    self._end.keep(f, summed(rows, waiting, tile, m), waiting)

                def one(rows: int, tile: str, m: str) -> None:
                    waiting = waits(tile, m)
                    sums = summed(rows, waiting, tile, m)
                    with f.when(partial):
                        self._end.keep(f, sums, waiting)
                    with f.when(complete):
                        to = f.at(c_at, f.mul(m, a[Arg.LDC]))
                        self._end.finish(f, sums, to, a[Arg.LDC], m, operands, None, stack)

                tiles.each(f, first, end, one, (left, ended))

    @property
    def _end(self) -> TileEnd:
        return TileEnd(self.vectors, self.expr, self.operands, self.element)

    # ---- sums

    def _tile(self, a: dict[Arg, str]) -> Tile:
        near = a[Arg.NEAR] if self.near == ANY else self.near
        held = "float32" if self.blocked else self.weights
        return Tile(self.rows, self.vectors, self.unroll, self.tail, near, self.element, held)

    def _dense(
        self,
        f: Emitter,
        a: dict[Arg, str],
        row: str,
        b_at: str,
        count: str,
        sums: Sums,
        near: tuple[str, str] | None = None,
        mask: str | None = None,
    ) -> Sums:
        tile = self._tile(a)
        return tile.added(
            f, tile.lines(f, row, a[Arg.LDA]), b_at, count, sums, a[Arg.LDB] if self.direct else None, near, mask
        )[0]

    def _gathered(
        self, f: Emitter, a: dict[Arg, str], a_base: str, b_at: str, tile: str, near: tuple[str, str] | None
    ) -> Sums:
        v = f.vec(self._type)
        per_tile = f.mul(a[Arg.TAPS], 4 * self.rows)
        table = f.at(a[Arg.TABLE], f.mul(tile, per_tile))
        carried = [(v, "zeroinitializer")] * (self.rows * self.vectors)
        far = near[0] if near else b_at
        with f.loop(0, a[Arg.TAPS], carried=[(PTR, b_at), (PTR, far), *carried]) as tap:
            entry = f.at(table, f.mul(tap.index, 4 * self.rows))
            rows = []
            for r in range(self.rows):
                offset = f.value(f"sext i32 {f.load(I32, f.at(entry, 4 * r))} to i64")
                pointer = f.at(a_base, f.mul(offset, self._unit))
                rows.append(f.select(f.less(offset, 0), PTR, a[Arg.ZEROS], pointer))
            near = (tap.vars[1], near[1]) if near else None
            sums, b, far = self._tile(a).added(
                f, rows, tap.vars[0], a[Arg.K], self._tile(a).grid(tap.vars[2:]), None, near
            )
            tap.next = [b, far, *(s for row in sums for s in row)]
        return self._tile(a).grid(tap.vars[2:])
