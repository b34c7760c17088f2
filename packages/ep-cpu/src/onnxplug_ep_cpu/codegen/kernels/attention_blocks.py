"""Attention to many keys: a block of them at a time, with a softmax that is corrected as larger scores come up.

Of each row are kept the largest score so far, the sum of exp(score - largest) and the sum of those times the values. Where a
block brings a larger score, both sums are multiplied by exp(old largest - new largest) before its own are added (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). So the scores, keys and values
in use stay in the second-level cache however many keys there are.
"""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import approx
from onnxplug_ep_cpu.codegen.emit import F32, float_text
from onnxplug_ep_cpu.codegen.kernels.attention import Attention, Block
from onnxplug_ep_cpu.codegen.kernels.attention_slots import Arg


@record(frozen=True, slots=True)
class AttentionInBlocks(Attention):
    """``Attention`` whose items pass over blocks of STEP keys, a multiple of a panel's."""

    def _item(self, w: Block, pointers: tuple[str, str, str, str], operands: list[tuple[str, str]]) -> None:
        q, k, v, c = pointers
        f = w.f
        self._begin(w)
        for_all = self._last_seen(w) if self.causal else w.a[Arg.S]
        with f.loop(0, for_all, w.a[Arg.STEP]) as block:
            w.start, w.keys = block.index, f.smallest(f.sub(w.a[Arg.S], block.index), w.a[Arg.STEP])
            self._scores(w, q, k, operands)
            self._softmax(w)
            self._add(w, v)
        self._end(w, c)

    def _last_seen(self, w: Block) -> str:
        """Keys that the item's last row sees."""
        f = w.f
        last = f.smallest(f.mul(w.end, self.rows), w.a[Arg.M])
        return self._seen(w, f.sub(last, 1))

    def _begin(self, w: Block) -> None:
        """No scores and empty sums."""
        f = w.f
        with f.loop(0, f.mul(f.sub(w.end, w.first), self.rows)) as row:
            at = f.at(f.at(w.slot, w.a[Arg.ROOM]), f.shl(row.index, 2))
            f.store(F32, float_text(float("-inf")), at)
            f.store(F32, float_text(0.0), f.at(at, w.a[Arg.ROOM]))
        with self._panels(w) as (panel, _), self._tiles(w):
            for row_of in self._places(w, panel):
                for place in row_of:
                    f.store(f.vec(), "zeroinitializer", place)

    def _softmax(self, w: Block) -> None:
        """Scores become exp(score - largest so far); what earlier sums are multiplied by lies at the start of the slot."""
        f = w.f
        with self._tiles(w) as (m, line), f.loop(0, self.rows) as r:
            factor_at = f.at(w.slot, f.shl(self._local(w, r.index), 2))
            largest_at = f.at(factor_at, w.a[Arg.ROOM])
            sum_at = f.at(largest_at, w.a[Arg.ROOM])
            before = f.load(F32, largest_at)
            at = f.at(line, f.mul(r.index, w.a[Arg.LINE]))
            taken, nothing, total = self._exponentials(w, at, m, r.index, before)
            factor = approx.exp(f, f.splat(f.value(f"fsub float {before}, {taken}")))
            factor = f.value(f"extractelement {f.vec()} {factor}, i32 0")
            f.store(F32, factor, factor_at)
            f.store(F32, f.select(nothing, F32, float_text(float("-inf")), taken), largest_at)
            kept = f.value(f"fmul float {f.load(F32, sum_at)}, {factor}")
            f.store(F32, f.value(f"fadd float {kept}, {total}"), sum_at)

    def _add(self, w: Block, v: str) -> None:
        """The block's weights times its values, added to what there is once they are summed up: weights that are small beside all
        earlier ones are not when they are added to each other."""
        f, vec = w.f, w.f.vec()
        with self._panels(w) as (panel, columns):
            b = self._values_at(w, v, panel, columns)
            with self._tiles(w) as (m, line):
                sums = self._weighted(w, m, line, b)
                factors = f.at(w.slot, f.shl(self._local(w, "0"), 2))
                for number, (totals, row) in enumerate(zip(sums, self._places(w, panel), strict=True)):
                    factor = f.splat(f.load(F32, f.at(factors, 4 * number)))
                    for total, place in zip(totals, row, strict=True):
                        f.store(vec, f.fma(f.load(vec, place), factor, total), place)

    def _end(self, w: Block, c: str) -> None:
        """Results are the sums over the sums of the weights."""
        f, a = w.f, w.a
        with f.loop(0, f.mul(f.sub(w.end, w.first), self.rows)) as row:
            factor_at = f.at(w.slot, f.shl(row.index, 2))
            total = f.load(F32, f.at(factor_at, f.shl(a[Arg.ROOM], 1)))
            nothing = f.value(f"fcmp oeq float {total}, {float_text(0.0)}")
            f.store(F32, self._inverse(f, total, nothing), factor_at)
        mask = f.lanes_below(a[Arg.E]) if self.narrow[1] else None
        with self._panels(w) as (panel, columns), self._tiles(w) as (m, _):
            sums = [[f.load(f.vec(), place) for place in row] for row in self._places(w, panel)]
            self._write(w, sums, f.at(f.at(c, f.mul(m, a[Arg.CR])), f.shl(columns, 2)), mask)

    def _places(self, w: Block, panel: str) -> list[list[str]]:
        """Where the sums of a tile and panel wait."""
        f, line = w.f, 4 * self.values * w.f.lanes
        rows = f.mul(w.a[Arg.BLOCK], self.rows)
        at = f.at(f.at(w.slot, w.a[Arg.PARTS]), f.mul(f.add(f.mul(panel, rows), self._local(w, "0")), line))
        return [[f.at(at, r * line + 4 * w.f.lanes * i) for i in range(self.values)] for r in range(self.rows)]
