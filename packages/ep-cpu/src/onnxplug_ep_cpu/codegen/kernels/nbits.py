"""Products with weights of few bits, one scale and zero point for each block of a column.

Some blocks of a panel are turned into floats on the stack, all rows of A multiplied by them, then the next ones: weights are read
once, as they are stored, and never unpacked as a whole.
"""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter, float_text

VECTORS = 2
"""Vectors across a panel."""
UNROLLED = 4
"""Weights of a column that a turn of a loop takes."""


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    A = 0
    B = 1  # [panel][k / values][vector][lane] of 32 bits, ``values`` successive weights of a column each
    SCALES = 2  # [panel][block][vector][lane]
    OFFSETS = 3  # as SCALES: -zero point * scale; not read where all weights have one zero point
    C = 4
    M = 5
    K = 6
    LDA = 7
    LDC = 8
    PANEL = 9  # bytes of a panel of B
    BLOCKS = 10  # of a column


_POINTERS = frozenset({Arg.A, Arg.B, Arg.SCALES, Arg.OFFSETS, Arg.C})


@record(frozen=True, slots=True)
class NBits:
    """One kernel; an item is a panel of columns. ``depth`` weights of each column are on the stack at a time, a multiple of
    ``block``, which have a scale in common. C has whole panels of columns. ``zero``: the zero point of all weights, None where blocks
    have their own. With a ``table`` of 16 numbers weights of 4 bits are places in it, and there are no offsets. Weights of 32 bits are
    floats, used where they lie."""

    bits: int
    block: int
    depth: int
    rows: int
    zero: int | None = None
    table: tuple[float, ...] = ()

    def emit(self, f: Emitter) -> None:
        width = VECTORS * f.lanes
        held = f.value(f"alloca [{self.depth * width} x float], align 64")
        a = {slot: f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg}
        last = f.sub(a[Arg.M], f.rem(a[Arg.M], self.rows))
        with f.items() as panel:
            packed = f.at(a[Arg.B], f.mul(panel, a[Arg.PANEL]))
            scaled = f.mul(f.mul(panel, a[Arg.BLOCKS]), 4 * width)
            scales, offsets = f.at(a[Arg.SCALES], scaled), f.at(a[Arg.OFFSETS], scaled)
            c = f.at(a[Arg.C], f.mul(panel, 4 * width))
            ranges = [(self.rows, "0", last), (1, last, a[Arg.M])]
            self.columns(f, a, held, (packed, scales, offsets), a[Arg.A], c, ranges)

    def columns(
        self,
        f: Emitter,
        a: dict[Arg, str],
        held: str,
        panel: tuple[str, str, str],
        x: str,
        c: str,
        ranges: list[tuple[int, str, str]],
        bias: str | None = None,
    ) -> None:
        """Rows of A times a panel, of which weights, scales and offsets are given, plus the panel's part of a ``bias``. ``ranges`` are
        the rows of a tile and from where to where they go. K, LDA and LDC are read of ``a``."""
        packed, scales, offsets = panel
        with f.loop(0, a[Arg.K], self.depth) as k:
            count = f.smallest(f.sub(a[Arg.K], k.index), self.depth)
            if self.bits == 32:
                weights = f.at(packed, f.mul(k.index, 4 * VECTORS * f.lanes))
            else:
                weights = held
                self._unpack(f, held, packed, scales, offsets, k.index, count)
            start = f.value(f"icmp eq i64 {k.index}, 0")
            here = f.at(x, f.shl(k.index, 2))
            for rows, first, end in ranges:
                with f.loop(first, end, rows) as m:
                    row, to = f.at(here, f.mul(m.index, a[Arg.LDA])), f.at(c, f.mul(m.index, a[Arg.LDC]))
                    self._tile(f, a, rows, weights, row, to, count, start, bias)

    def _unpack(self, f: Emitter, held: str, packed: str, scales: str, offsets: str, k: str, count: str) -> None:
        """``count`` weights of each column from ``k`` on as floats, whole blocks at a time."""
        v, ints, values, width = f.vec(), f.vec(I32), 32 // self.bits, VECTORS * f.lanes
        with f.loop(0, count, self.block) as block:
            here = f.add(k, block.index)
            at = f.mul(f.div(here, self.block), 4 * width)
            scale = [f.load(v, f.at(f.at(scales, at), 4 * f.lanes * i)) for i in range(VECTORS)]
            offset = [self._offset(f, scale[i], f.at(f.at(offsets, at), 4 * f.lanes * i)) for i in range(VECTORS)]
            source = f.at(packed, f.mul(f.div(here, values), 4 * width))
            to = f.at(held, f.mul(block.index, 4 * width))
            with f.loop(0, self.block, values) as word:
                words = f.at(source, f.mul(word.index, 4 * width // values))
                floats = f.at(to, f.mul(word.index, 4 * width))
                for i in range(VECTORS):
                    loaded = f.load(ints, f.at(words, 4 * f.lanes * i))
                    for j in range(values):
                        moved = f.value(f"lshr {ints} {loaded}, splat (i32 {self.bits * j})") if j else loaded
                        kept = f.value(f"and {ints} {moved}, splat (i32 {2**self.bits - 1})")
                        if self.table:
                            weight = f.value(f"fmul {v} {self._found(f, kept)}, {scale[i]}")
                        else:
                            weight = f.fma(f.value(f"sitofp {ints} {kept} to {v}"), scale[i], offset[i])
                        f.store(v, weight, f.at(floats, 4 * (j * width + i * f.lanes)))

    def _offset(self, f: Emitter, scale: str, place: str) -> str:
        if self.zero is None:
            return f.load(f.vec(), place)
        return f.value(f"fmul {f.vec()} {scale}, {f.constant(-self.zero)}")

    def _found(self, f: Emitter, places: str) -> str:
        """The table's numbers at these places."""
        v, ints = f.vec(), f.vec(I32)
        rows = [
            "<" + ", ".join(f"float {float_text(x)}" for x in self.table[at : at + f.lanes]) + ">"
            for at in range(0, 16, f.lanes)
        ]
        if f.target.name == "avx512":
            return f.intrinsic("llvm.x86.avx512.permvar.sf.512", v, (v, rows[0]), (ints, places))
        if f.target.name == "avx2":
            upper = f.value(f"icmp ugt {ints} {places}, splat (i32 7)")
            low, high = (f.intrinsic("llvm.x86.avx2.permps", v, (v, row), (ints, places)) for row in rows)
            return f.value(f"select <{f.lanes} x i1> {upper}, {v} {high}, {v} {low}")
        found = [f.splat(float_text(x)) for x in self.table]
        for bit in range(4):
            set_ = f.value(f"and {ints} {places}, splat (i32 {1 << bit})")
            odd = f.value(f"icmp ne {ints} {set_}, zeroinitializer")
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [f.value(f"select <{f.lanes} x i1> {odd}, {v} {y}, {v} {x}") for x, y in pairs]
        return found[0]

    def _tile(
        self,
        f: Emitter,
        a: dict[Arg, str],
        rows: int,
        held: str,
        x: str,
        c: str,
        count: str,
        start: str,
        bias: str | None,
    ) -> None:
        """C = (bias) or += rows of A times the weights held."""
        v = f.vec()
        xs, cs = [x], [c]
        for _ in range(1, rows):
            xs.append(f.at(xs[-1], a[Arg.LDA]))
            cs.append(f.at(cs[-1], a[Arg.LDC]))
        first = ["zeroinitializer" if bias is None else f.load(v, f.at(bias, 4 * f.lanes * i)) for i in range(VECTORS)]
        before = []
        for where in cs:
            for i in range(VECTORS):
                stored = f.load(v, f.at(where, 4 * f.lanes * i))
                before.append(f.select(start, v, first[i], stored))
        ways = UNROLLED if rows == 1 else 1  # sums enough to hide the latency of a product
        zeros = [(v, "zeroinitializer")] * (len(before) * (ways - 1))
        whole = f.and_(count, -UNROLLED)
        with f.loop(0, whole, UNROLLED, [*((v, s) for s in before), *zeros]) as k:
            sums = list(k.vars)
            weights = f.at(held, f.mul(k.index, 4 * VECTORS * f.lanes))
            here = [f.at(x, f.shl(k.index, 2)) for x in xs]
            for j in range(UNROLLED):
                self._step(f, here, weights, j, sums, j % ways * len(before))
            k.next = sums
        total = k.vars[: len(before)]
        for way in range(1, ways):
            part = k.vars[way * len(before) : (way + 1) * len(before)]
            total = [f.value(f"fadd {v} {s}, {t}") for s, t in zip(total, part, strict=True)]
        with f.loop(whole, count, 1, [(v, s) for s in total]) as k:
            sums = list(k.vars)
            weights = f.at(held, f.mul(k.index, 4 * VECTORS * f.lanes))
            self._step(f, [f.at(x, f.shl(k.index, 2)) for x in xs], weights, 0, sums, 0)
            k.next = sums
        total = k.vars
        for r, where in enumerate(cs):
            for i in range(VECTORS):
                f.store(v, total[r * VECTORS + i], f.at(where, 4 * f.lanes * i))

    @staticmethod
    def _step(f: Emitter, xs: list[str], weights: str, k: int, sums: list[str], first: int) -> None:
        loaded = [f.load(f.vec(), f.at(weights, 4 * f.lanes * (k * VECTORS + i))) for i in range(VECTORS)]
        for r, row in enumerate(xs):
            x = f.splat(f.load(F32, f.at(row, 4 * k)))
            for i, w in enumerate(loaded):
                at = first + r * VECTORS + i
                sums[at] = f.fma(x, w, sums[at])


class FewArg(IntEnum):
    """Slots of the arguments of ``NBitsFew``; strides are in bytes."""

    A = 0
    SCALED = 1  # A times the power of two that undoes where a weight lies in its half of a word
    B = 2
    SCALES = 3
    OFFSETS = 4
    C = 5
    BLOCKS = 6
    LDA = 7
    LDC = 8
    PANEL = 9


@record(frozen=True, slots=True)
class NBitsFew:
    """As ``NBits`` for so few rows that weights need not be kept: a weight is masked where it lies, taken for an integer and
    multiplied; scale and zero point are applied to the sums of a block. An item is a panel of columns."""

    bits: int
    block: int
    rows: int
    zero: int | None

    def emit(self, f: Emitter) -> None:
        v, width = f.vec(), VECTORS * f.lanes
        a = {slot: f.arg(slot, PTR if slot < FewArg.BLOCKS else "i64") for slot in FewArg}
        with f.items() as panel:
            packed = f.at(a[FewArg.B], f.mul(panel, a[FewArg.PANEL]))
            at = f.mul(f.mul(panel, a[FewArg.BLOCKS]), 4 * width)
            scales, offsets = f.at(a[FewArg.SCALES], at), f.at(a[FewArg.OFFSETS], at)
            c = f.at(a[FewArg.C], f.mul(panel, 4 * width))
            size = self.rows * VECTORS
            with f.loop(0, a[FewArg.BLOCKS], carried=[(v, "zeroinitializer")] * size) as block:
                k = f.mul(block.index, 4 * self.block)
                rows, scaled = (
                    [self._row(f, a[base], r, a[FewArg.LDA], k) for r in range(self.rows)]
                    for base in (FewArg.A, FewArg.SCALED)
                )
                sums = self._block(f, f.at(packed, f.mul(block.index, self.block * self.bits * width // 8)), scaled)
                here = f.mul(block.index, 4 * width)
                block.next = []
                for r, row in enumerate(rows):
                    whole = f.splat(self._sum(f, row))
                    if self.zero is not None:
                        whole = f.value(f"fmul {v} {whole}, {f.constant(-self.zero)}")
                    for i in range(VECTORS):
                        scale = f.load(v, f.at(f.at(scales, here), 4 * f.lanes * i))
                        own = self.zero is None
                        offset = f.load(v, f.at(f.at(offsets, here), 4 * f.lanes * i)) if own else scale
                        total = f.fma(scale, sums[r * VECTORS + i], block.vars[r * VECTORS + i])
                        block.next.append(f.fma(offset, whole, total))
            for r in range(self.rows):
                for i in range(VECTORS):
                    f.store(
                        v, block.vars[r * VECTORS + i], f.at(self._row(f, c, r, a[FewArg.LDC], "0"), 4 * f.lanes * i)
                    )

    @staticmethod
    def _row(f: Emitter, base: str, r: int, stride: str, k: str) -> str:
        return f.at(f.at(base, f.mul(stride, r)) if r else base, k)

    def _sum(self, f: Emitter, row: str) -> str:
        """The sum of a row's part of a block."""
        v = f.vec()
        parts = [f.load(v, f.at(row, 4 * at)) for at in range(0, self.block, f.lanes)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [f.value(f"fadd {v} {x}, {y}") for x, y in zip(parts[:half], parts[half:], strict=True)]
        return f.reduce("add", parts[0])

    def _block(self, f: Emitter, packed: str, scaled: list[str]) -> list[str]:
        """[row][vector] sums of a block's weights as they are stored."""
        size, values = self.rows * VECTORS, 32 // self.bits
        ways = max(1, 4 // size)
        step = min(self.block, 4 * values)
        with f.loop(0, self.block, step, [(f.vec(), "zeroinitializer")] * (size * ways)) as loop:
            loop.next = list(loop.vars)
            words = f.at(packed, f.mul(loop.index, 4 * VECTORS * f.lanes // values))
            here = [f.at(row, f.shl(loop.index, 2)) for row in scaled]
            for k in range(0, step, values):
                at = f.at(words, 4 * VECTORS * f.lanes * k // values)
                self._word(f, at, [f.at(row, 4 * k) for row in here], loop.next, ways)
        total = loop.vars[:size]
        for way in range(1, ways):
            part = loop.vars[way * size : (way + 1) * size]
            total = [f.value(f"fadd {f.vec()} {s}, {t}") for s, t in zip(total, part, strict=True)]
        return total

    def _word(self, f: Emitter, words: str, rows: list[str], sums: list[str], ways: int) -> None:
        """Add the weights of one word of each column."""
        v, ints, values = f.vec(), f.vec(I32), 32 // self.bits
        size = self.rows * VECTORS
        loaded = [f.load(ints, f.at(words, 4 * f.lanes * i)) for i in range(VECTORS)]
        for j in range(values):
            if j == values // 2:
                loaded = [f.value(f"lshr {ints} {w}, splat (i32 16)") for w in loaded]
            mask = (2**self.bits - 1) << (self.bits * (j % (values // 2)))
            floats = [f.value(f"sitofp {ints} {f.value(f'and {ints} {w}, splat (i32 {mask})')} to {v}") for w in loaded]
            for r, row in enumerate(rows):
                x = f.splat(f.load(F32, f.at(row, 4 * j)))
                for i, weight in enumerate(floats):
                    at = (j % ways) * size + r * VECTORS + i
                    sums[at] = f.fma(x, weight, sums[at])
