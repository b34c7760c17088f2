"""The register tile of matrix products: sums that stay in registers while k runs (Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008)."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES, widen

Sums = list[list[str]]
"""Rows of vectors."""
FEW = 3
"""Passes over a panel, from two on, in which the next one comes to the second-level cache: it comes from memory all the time then, and
more lines can be on their way there than to the first-level cache. In a single pass it is read too soon for that."""
CHAINS = 8
"""Sums under way at once that hide the latency of a product."""


@record(frozen=True, slots=True)
class Tile:
    """``rows`` x ``vectors * lanes`` sums. A turn of the loop does ``unroll`` steps of k; with ``tail`` there may be steps left
    behind. ``near``: cache lines that a turn brings near, where it is told which; by name where the number is an argument."""

    rows: int
    vectors: int
    unroll: int
    tail: bool
    near: int | str = 1
    element: str = "float32"
    weights: str = "float32"
    """What B holds where that is not ``element``: numbers of 16 bits, which are widened in registers."""

    def zeros(self) -> Sums:
        """The sums before any product."""
        return [["zeroinitializer"] * self.vectors for _ in range(self.rows)]

    def grid(self, flat: list[str]) -> Sums:
        """Sums that were carried through a loop one behind the other."""
        return [flat[i : i + self.vectors] for i in range(0, len(flat), self.vectors)]

    def product(self, f: Emitter, row: str, step: str, b: str, count: str, ldb: str | None = None) -> Sums:
        """``count`` steps of k for rows of A that lie ``step`` bytes apart."""
        return self.added(f, self.lines(f, row, step), b, count, self.zeros(), ldb)[0]

    def widened(self, f: Emitter, b: str, count: str, to: str) -> str:
        """``count`` steps of a panel as the sums' numbers; returns where."""
        v, lies, unit = f.vec(MEMORY[self.element]), SIZES[self.weights] * f.lanes, SIZES[self.element] * f.lanes
        with f.loop(0, f.mul(count, self.vectors)) as step:
            raw = f.load(f.vec(MEMORY[self.weights]), f.at(b, f.mul(step.index, lies)), SIZES[self.weights])
            f.store(v, widen(f, self.weights, raw), f.at(to, f.mul(step.index, unit)))
        return to

    def lines(self, f: Emitter, row: str, step: str) -> list[str]:
        """Addresses of rows that lie ``step`` bytes apart."""
        rows = [row]
        for _ in range(1, self.rows):
            rows.append(f.at(rows[-1], step))
        return rows

    def added(
        self,
        f: Emitter,
        rows: list[str],
        b: str,
        count: str,
        sums: Sums,
        ldb: str | None = None,
        near: tuple[str, str] | None = None,
        mask: str | None = None,
    ) -> tuple[Sums, str, str]:
        """``count`` steps of k added to ``sums``, and B's address behind them. B is a panel of the tile's width, or has rows
        ``ldb`` bytes apart. ``near`` is what to bring near, and the bytes it moves on in a turn of the loop; where it has come to
        is the third result. ``mask``: the columns that rows of a B narrower than the tile have."""
        v = f.vec(MEMORY[self.element])
        far, pace = near or (b, "0")
        ways = max(1, min(self.unroll, CHAINS // (self.rows * self.vectors)))
        more = [["zeroinitializer"] * self.vectors * self.rows for _ in range(ways - 1)]
        whole = f.mul(f.div(count, self.unroll), self.unroll) if self.tail else count
        flat = [s for row in sums for s in row]
        carried = [(PTR, b), *((v, s) for s in flat), *((v, s) for way in more for s in way)]
        with f.loop(0, whole, self.unroll, [*carried, (PTR, far)] if near else carried) as loop:
            sets = [loop.vars[1 + w * len(flat) : 1 + (w + 1) * len(flat)] for w in range(ways)]
            if near:
                self._bring(f, loop.vars[-1])
            b_now = self._steps(f, rows, loop.index, loop.vars[0], self.unroll, sets, ldb, mask)
            loop.next = [b_now, *(s for way in sets for s in way), *([f.at(loop.vars[-1], pace)] if near else [])]
        far = loop.vars[-1] if near else far
        sets = [loop.vars[1 + w * len(flat) : 1 + (w + 1) * len(flat)] for w in range(ways)]
        flat = sets[0]
        for way in sets[1:]:
            flat = [f.value(f"fadd {v} {x}, {y}") for x, y in zip(flat, way, strict=True)]
        b = loop.vars[0]
        if self.tail:
            with f.loop(whole, count, 1, [(PTR, b), *((v, s) for s in flat)]) as loop:
                last = [loop.vars[1:]]
                b_now = self._steps(f, rows, loop.index, loop.vars[0], 1, last, ldb, mask)
                loop.next = [b_now, *last[0]]
            b, flat = loop.vars[0], loop.vars[1:]
        return self.grid(flat), b, far

    def _bring(self, f: Emitter, far: str) -> None:
        """Bring the next lines near."""
        lines = self.unroll * self.vectors * f.lanes * SIZES[self._held] // 64
        if isinstance(self.near, int):
            for line in range(self.near):
                f.prefetch(f.at(far, 64 * line), level=2 if self.near < lines <= FEW * self.near else 1)
            return
        share = f.select(f.less(self.near, lines), "i64", self.near, "0")
        second = f.select(f.less(lines - 1, f.mul(share, FEW)), "i64", self.near, "0")
        for level, count in ((1, f.sub(self.near, second)), (2, second)):
            with f.loop(0, count) as more:
                f.prefetch(f.at(far, f.shl(more.index, 6)), level=level)

    @property
    def _held(self) -> str:
        return self.element if self.weights == "float32" else self.weights

    def _steps(
        self, f: Emitter, rows: list[str], k: str, b: str, steps: int, sets: list[list[str]], ldb: str | None,
        mask: str | None,
    ) -> str:  # fmt: skip
        """``steps`` steps of k, in place on ``sets``; returns B's address behind them."""
        type_, unit = MEMORY[self.element], SIZES[self.element]
        held = self._held
        lies, offset = SIZES[held], f.mul(k, unit)
        starts = [f.at(row, offset) for row in rows]
        for j in range(steps):
            if ldb is not None:
                places = [f.at(b, lies * f.lanes * i) for i in range(self.vectors)]
                loaded = [widen(f, held, f.load_masked(MEMORY[held], at, mask, lies)) for at in places]
                b = f.at(b, ldb)
            else:
                places = [f.at(b, lies * f.lanes * (j * self.vectors + i)) for i in range(self.vectors)]
                loaded = [widen(f, held, f.load(f.vec(MEMORY[held]), at, lies)) for at in places]
            sums = sets[j % len(sets)] = list(sets[j % len(sets)])
            for r, start in enumerate(starts):
                x = f.splat(f.load(type_, f.at(start, unit * j)), type_)
                for i in range(self.vectors):
                    at = r * self.vectors + i
                    sums[at] = f.fma(x, loaded[i], sums[at], type_)
        return b if ldb is not None else f.at(b, lies * f.lanes * self.vectors * steps)
