"""Attention: softmax(expr(Q K^T, operands...)) V for a block of query rows of one head at a time.

The scores of a block lie in a slot of scratch memory that later blocks of the same grab use again, so they stay in the
cache and no more of them exist at once. Both products use register tiles (``tile``). Keys are packed in transposed
panels, [panel][depth][width], or read row by row (a few query rows: decoding), each key's dot product along the depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import approx
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels.across import dots, spread_rows
from onnxplug_ep_cpu.codegen.kernels.attention_slots import POINTERS, Arg, Operand, operand_at
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.tile import Sums, Tile


@record(frozen=True, slots=True)
class Attention:
    """An item is (batch, head, block of row tiles).

    ``keys`` is the vectors across a panel of keys, 0 for keys read row by row; ``values`` those across a tile of the
    result. ``narrow``: there are fewer keys, or value columns, than a vector has lanes. ``causal``: row i sees the first
    SEEN + i keys. ``guarded``: a row whose softmax is NaN gives zeros. ``hidden``: so does one whose scores are all -inf.
    ``packed``: values lie in panels of a tile's columns, as keys do. ``held``: the element type of keys that are read row by row and of
    values that are not packed.
    """

    rows: int
    keys: int
    values: int
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[Operand, ...] = ()
    narrow: tuple[bool, bool] = (False, False)
    causal: bool = False
    guarded: bool = False
    hidden: bool = False
    packed: bool = False
    held: str = "float32"

    def emit(self, f: Emitter) -> None:
        a: dict[Arg, str] = {
            slot: f.arg(slot, PTR if slot in POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS
        }
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        tiles = f.div(f.add(a[Arg.M], self.rows - 1), self.rows)
        slot = f.at(a[Arg.SCRATCH], f.mul(f.div("%lo", a[Arg.GRAB]), a[Arg.SLOT]))
        scores = f.at(slot, a[Arg.SCORES])
        with f.items() as item:
            block, rest = f.rem(item, a[Arg.BLOCKS]), f.div(item, a[Arg.BLOCKS])
            head, batch = f.rem(rest, a[Arg.HEADS]), f.div(rest, a[Arg.HEADS])
            shared = f.div(head, a[Arg.GROUP])

            def base(pointer: str, s0: str, s1: str, inner: str) -> str:
                return f.at(pointer, f.add(f.mul(batch, s0), f.mul(inner, s1)))

            q = base(a[Arg.Q], a[Arg.Q0], a[Arg.Q1], head)
            k = base(a[Arg.K], a[Arg.K0], a[Arg.K1], shared)
            v = base(a[Arg.V], a[Arg.V0], a[Arg.V1], shared)
            c = base(a[Arg.C], a[Arg.C0], a[Arg.C1], head)
            operands = [(base(pointer, s0, s1, head), row) for pointer, s0, s1, row in extra]
            first = f.mul(block, a[Arg.BLOCK])
            work = Block(f, a, first, f.smallest(f.add(first, a[Arg.BLOCK]), tiles), slot, scores, a[Arg.S])
            self._item(work, (q, k, v, c), operands)

    def _item(self, w: Block, pointers: tuple[str, str, str, str], operands: list[tuple[str, str]]) -> None:
        """A block of rows; ``pointers`` are its queries, keys, values and results."""
        q, k, v, c = pointers
        self._scores(w, q, k, operands)
        self._softmax(w)
        self._results(w, v, c)

    def _tile(self, vectors: int, held: str = "float32") -> Tile:
        return Tile(self.rows, vectors, 4, True, weights=held)

    # ---- scores

    def _scores(self, w: Block, q: str, k: str, operands: list[tuple[str, str]]) -> None:
        f, a = w.f, w.a
        width = max(1, self.keys) * f.lanes
        mask = f.lanes_below(a[Arg.S]) if self.narrow[0] else None
        last = f.sub(a[Arg.S], width)
        before = f.div(w.start, width)
        with f.loop(0, f.div(f.add(w.keys, width - 1), width)) as panel:
            number = f.add(before, panel.index)
            n = "0" if self.narrow[0] else f.smallest(f.mul(number, width), last)
            to = f.shl(f.sub(n, w.start), 2)
            if self.keys:
                panel_at = f.at(k, f.mul(f.mul(number, a[Arg.D]), 4 * width))
            else:
                lines = spread_rows(f, k, a[Arg.KR], n, f.sub(a[Arg.S], 1) if self.narrow[0] else None)
            with self._tiles(w) as (m, line), self._if_seen(w, n, m):
                row = f.at(q, f.mul(m, a[Arg.QR]))
                if self.keys:
                    sums = self._tile(self.keys).product(f, row, a[Arg.QR], panel_at, a[Arg.D])
                else:
                    queries = (f.at(row, f.mul(a[Arg.QR], r)) for r in range(self.rows))
                    sums = [[dots(f, query, lines, a[Arg.D], self.held)] for query in queries]
                self._store(w, sums, m, n, f.at(line, to), operands, mask)

    def _store(
        self,
        w: Block,
        sums: list[list[str]],
        m: str,
        n: str,
        to: str,
        operands: list[tuple[str, str]],
        mask: str | None,
    ) -> None:
        f = w.f
        starts = []
        for (element, kind), (where, step) in zip(self.operands, operands, strict=True):
            at = f.at(where, f.mul(m, step))
            starts.append(f.at(at, f.mul(n, 4 if element == "float32" else 1)) if kind == "v" else at)
        kinds = ["float32", *(element for element, _ in self.operands)]
        for number, row in enumerate(sums):
            if number:
                to = f.at(to, w.a[Arg.LINE])
                starts = [f.at(s, step) for s, (_, step) in zip(starts, operands, strict=True)]
            for i, total in enumerate(row):
                leaves = [total]
                for operand, start in zip(self.operands, starts, strict=True):
                    leaves.append(operand_at(f, operand, start, i * f.lanes, mask))
                f.store(f.vec(), ex.emit(f, self.expr, leaves, kinds), f.at(to, 4 * f.lanes * i))

    # ---- softmax

    def _softmax(self, w: Block) -> None:
        """Scores become exp(score - largest); the reciprocal of each row's sum lies at the start of the slot."""
        f = w.f
        with self._tiles(w) as (m, line), f.loop(0, self.rows) as r:
            _, nothing, total = self._exponentials(w, f.at(line, f.mul(r.index, w.a[Arg.LINE])), m, r.index)
            f.store(F32, self._inverse(f, total, nothing), f.at(w.slot, f.shl(self._local(w, r.index), 2)))

    def _exponentials(self, w: Block, at: str, m: str, r: str, before: str = "") -> tuple[str, str, str]:
        """Row ``r`` of the tile at row ``m``: scores become exp(score - largest). Gives what was taken off, whether there was
        no score but -inf, and the sum. ``before``: the largest of earlier scores."""
        f, v = w.f, w.f.vec()
        low = f.constant(float("-inf"))
        count, end = w.keys, w.keys
        if self.causal:
            count, end = self._seen(w, f.add(m, r)), self._seen(w, f.add(m, self.rows - 1))
        whole = f.and_(count, -f.lanes)
        rest = f.lanes_below(f.sub(count, whole))
        tail = f.less(whole, count)
        with f.loop(0, whole, f.lanes, [(v, f.splat(before) if before else low)]) as loop:
            loop.next = [approx.larger(f, loop.vars[0], f.load(v, f.at(at, f.shl(loop.index, 2))))]
        ended = f.at(at, f.shl(whole, 2))
        left = f.load_masked(F32, ended, rest)
        left = f.value(f"select {f.vec('i1')} {rest}, {v} {left}, {v} {low}")
        largest = f.reduce("fmax", approx.larger(f, loop.vars[0], left))
        nothing = f.value(f"fcmp oeq float {largest}, {float_text(float('-inf'))}")
        taken = f.select(nothing, F32, float_text(0.0), largest) if self.hidden or before else largest
        most = f.splat(taken)
        with f.loop(0, whole, f.lanes, [(v, "zeroinitializer")]) as loop:
            where = f.at(at, f.shl(loop.index, 2))
            e = approx.exp_below(f, f.value(f"fsub {v} {f.load(v, where)}, {most}"))
            f.store(v, e, where)
            loop.next = [f.value(f"fadd {v} {loop.vars[0]}, {e}")]
        e = approx.exp_below(f, f.value(f"fsub {v} {left}, {most}"))
        e = f.value(f"select {f.vec('i1')} {rest}, {v} {e}, {v} zeroinitializer")
        with f.when(tail):
            f.store(v, e, ended)
        total = f.reduce("add", f.value(f"fadd {v} {loop.vars[0]}, {e}"))
        if self.causal:
            with f.loop(f.add(whole, f.select(tail, "i64", str(f.lanes), "0")), end, f.lanes) as loop:
                f.store(v, "zeroinitializer", f.at(at, f.shl(loop.index, 2)))
        return taken, nothing, total

    def _inverse(self, f: Emitter, total: str, nothing: str) -> str:
        """What a row's result is multiplied by in the end."""
        inverse = f.value(f"fdiv float 1.0, {total}")
        return f.select(nothing, F32, float_text(0.0), inverse) if self.hidden else inverse

    # ---- results

    def _results(self, w: Block, v: str, c: str) -> None:
        f, a = w.f, w.a
        mask = f.lanes_below(a[Arg.E]) if self.narrow[1] else None
        with self._panels(w) as (panel, columns):
            b = self._values_at(w, v, panel, columns)
            with self._tiles(w) as (m, line):
                to = f.at(f.at(c, f.mul(m, a[Arg.CR])), f.shl(columns, 2))
                self._write(w, self._weighted(w, m, line, b), to, mask)

    def _values_at(self, w: Block, v: str, panel: str, columns: str) -> str:
        """A tile's columns of the values at hand."""
        f = w.f
        if not self.packed:
            return f.at(f.at(v, f.mul(w.start, w.a[Arg.VR])), f.mul(columns, SIZES[self.held]))
        line = 4 * self.values * f.lanes
        return f.at(v, f.mul(f.add(f.mul(panel, w.a[Arg.S]), w.start), line))

    def _weighted(self, w: Block, m: str, line: str, b: str) -> Sums:
        """A tile's weights times its columns of the values at hand."""
        step = None if self.packed else w.a[Arg.VR]
        return self._tile(self.values, self.held).product(w.f, line, w.a[Arg.LINE], b, self._depth(w, m), step)

    @contextmanager
    def _panels(self, w: Block) -> Iterator[tuple[str, str]]:
        """The loop over tiles of columns: gives a tile's number and its first column."""
        f, width = w.f, self.values * w.f.lanes
        last = f.sub(w.a[Arg.E], width)
        with f.loop(0, "1" if self.narrow[1] else f.div(f.add(w.a[Arg.E], width - 1), width)) as panel:
            yield panel.index, "0" if self.narrow[1] else f.smallest(f.mul(panel.index, width), last)

    def _depth(self, w: Block, m: str) -> str:
        """Keys that the tile at row ``m`` sees."""
        return self._seen(w, w.f.add(m, self.rows - 1)) if self.causal else w.keys

    def _write(self, w: Block, sums: list[list[str]], to: str, mask: str | None) -> None:
        f, vec = w.f, w.f.vec()
        factors = f.at(w.slot, f.mul(f.sub(w.tile, w.first), 4 * self.rows))
        for number, row in enumerate(sums):
            to = f.at(to, w.a[Arg.CR]) if number else to
            factor = f.load(F32, f.at(factors, 4 * number))
            spread = f.splat(factor)
            for i, total in enumerate(row):
                result = f.value(f"fmul {vec} {total}, {spread}")
                if self.guarded:
                    result = f.select(f.value(f"fcmp uno float {factor}, {factor}"), vec, "zeroinitializer", result)
                where = f.at(to, 4 * f.lanes * i)
                f.store_masked(F32, result, where, mask)

    # ---- rows

    @contextmanager
    def _tiles(self, w: Block) -> Iterator[tuple[str, str]]:
        """The loop over an item's row tiles: gives the first query row and the first row of scores."""
        f = w.f
        with f.loop(w.first, w.end) as loop:
            w.tile = loop.index
            local = f.mul(f.sub(w.tile, w.first), self.rows)
            yield (
                f.smallest(f.mul(w.tile, self.rows), f.sub(w.a[Arg.M], self.rows)),
                f.at(w.scores, f.mul(local, w.a[Arg.LINE])),
            )

    def _local(self, w: Block, r: str) -> str:
        """Row ``r`` of a tile among those of the item."""
        return w.f.add(w.f.mul(w.f.sub(w.tile, w.first), self.rows), r)

    def _if_seen(self, w: Block, n: str, m: str) -> AbstractContextManager[None]:
        """Where the last row of a tile sees key ``n``."""
        if not self.causal:
            return nullcontext()
        return w.f.when(w.f.less(w.f.sub(n, w.start), self._seen(w, w.f.add(m, self.rows - 1))))

    def _seen(self, w: Block, row: str) -> str:
        """Keys at hand that a row sees, between none and all."""
        seen = w.f.sub(w.f.add(row, w.a[Arg.SEEN]), w.start)
        seen = w.f.select(w.f.less(seen, 0), "i64", "0", seen)
        return w.f.smallest(seen, w.keys)


@record(slots=True)
class Block:
    """An item being written: its tiles, its scratch memory, and the keys at hand: so many from ``start`` on."""

    f: Emitter
    a: dict[Arg, str]
    first: str
    end: str
    slot: str
    scores: str
    keys: str
    start: str = "0"
    tile: str = ""
