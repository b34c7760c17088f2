"""Integer matrix products of 8-bit data as it lies, four of k at a time: C = expr(A B + bias, operands...), exact in int32.

Where the processor has an instruction that adds four products of bytes to an int32 (VNNI, NEON's dot products), that is all.
AVX2 and plain AVX-512 multiply unsigned by signed bytes and add *pairs* of products in int16, which saturates: exact only where
the weights of every pair of one sign sum to at most 128. Quads of k are therefore sorted, for each panel of columns, when weights
are packed: two of an octet whose sums of pairs can be added in int16 already, which spares one multiplication in four; those that
are exact as they are; those that are exact with the bytes of an octet paired otherwise; the few others, which are widened to int16
in registers.
"""

from __future__ import annotations

import itertools
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I8, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.bytedots import I16, add_pairs, add_quads, halves, products, quad_form, shuffled
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.qend import Edge, Where, edge_of, inside, read, write

PAIRINGS = tuple(
    (a, b, c, d)
    for a, b in itertools.combinations(range(8), 2)
    for c, d in itertools.combinations(range(a + 1, 8), 2)
    if b not in (c, d)
)
"""Two pairs of the bytes of an octet, by number."""
FOLDED, NATURAL, PAIRED, WIDENED = range(4)
CLASSES = 4
"""Classes of quads: four successive bytes, with those of the octet's other quad; by themselves; two of ``PAIRINGS``; four
successive bytes, widened."""
LARGEST_PAIR = 128  # 255 * 128 < 2**15 <= 255 * 129


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Operands follow, three slots each: address, row stride, batch stride."""

    A = 0
    B = 1  # [panel][quad][column][4], quads sorted by class
    C = 2
    M = 3
    N = 4
    QUADS = 5
    LDA = 6
    LDC = 7
    BLOCK = 8  # tiles of rows one item does
    BLOCKS = 9
    PANELS = 10
    A0 = 11
    C0 = 12
    ORDER = 13  # int32 [panel][quad]: where a quad begins in a row of A; paired: its octet, 256 times, and pairing
    ENDS = 14  # int32 [panel][class]: the first quad that does not belong to it
    BIAS = 15  # int32 along columns
    SUMS = 16  # int32 along columns: of the weights
    ZERO = 17  # the zero point of A, of A's type
    PLACES = 18  # PAIRINGS, a byte each; 0 where there is one class
    TABLE = 19  # int32 [tile][tap][row]: where a tap of a row begins in A; negative: padding
    TAPS = 20
    PADDING = 21  # a tap of A's zero points
    REST = 22  # int32 along columns: what is yet to be taken from the weights
    OPERANDS = 23


_POINTERS = frozenset(
    {
        Arg.A,
        Arg.B,
        Arg.C,
        Arg.ORDER,
        Arg.ENDS,
        Arg.BIAS,
        Arg.SUMS,
        Arg.ZERO,
        Arg.PLACES,
        Arg.TABLE,
        Arg.PADDING,
        Arg.REST,
    }
)


@record(frozen=True, slots=True)
class QDot:
    """One kernel; an item is (batch, block of row tiles, panel). ``element`` is A's type; ``expr``, ``operands`` and ``result``
    are as in ``QGemm``. ``masked``: C is narrower than a panel, ends in its last vector. ``gathered``: rows of A are taps found
    by a table. ``lifted``: weights less their zero points are no bytes; sums of rows, which cost a product for each, take off the
    rest. Both for k of whole octets, and not where quads are sorted."""

    rows: int
    vectors: int
    element: str
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[tuple[str, str], ...] = ()
    result: str = "int32"
    masked: bool = False
    gathered: bool = False
    lifted: bool = False

    @property
    def dequantizes(self) -> bool:
        """Whether sums become floats, by numbers that each layer has of its own."""
        return self.result == "float32"

    def emit(self, f: Emitter) -> None:
        form = quad_form(f.target)
        assert form is not None, "a target without products of bytes"
        a: dict[Arg, str] = {
            slot: f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS
        }
        extra = f.operands(Arg.OPERANDS, len(self.operands), 3)
        width = self.vectors * f.lanes
        last_m, last_n = f.sub(a[Arg.M], self.rows), f.sub(a[Arg.N], width)
        tiles = f.div(f.add(a[Arg.M], self.rows - 1), self.rows)
        zero = self._zero(f, form, a[Arg.ZERO])
        classes = range(CLASSES) if form == "pairs" else (NATURAL,)
        with f.items() as item:
            panel, rest = f.rem(item, a[Arg.PANELS]), f.div(item, a[Arg.PANELS])
            block, batch = f.rem(rest, a[Arg.BLOCKS]), f.div(rest, a[Arg.BLOCKS])
            n = "0" if self.masked else f.smallest(f.mul(panel, width), last_n)
            quads = f.mul(panel, a[Arg.QUADS])
            packed, order = f.at(a[Arg.B], f.mul(quads, 4 * width)), f.at(a[Arg.ORDER], f.shl(quads, 2))
            ends = f.at(a[Arg.ENDS], f.mul(panel, 4 * CLASSES))
            bounds = ["0", *(_index(f, f.at(ends, 4 * c)) for c in classes)]
            edge = edge_of(f, a[Arg.N], self.vectors) if self.masked else None
            operands: list[Where] = []
            for (kind, element), (pointer, stride, step) in zip(self.operands, extra, strict=True):
                where = f.at(pointer, f.mul(batch, step))
                if kind in ("column", "full"):
                    where = f.at(where, f.mul(n, SIZES[element]))
                operands.append((kind, element, where, stride))
            a_at = f.at(a[Arg.A], f.mul(batch, a[Arg.A0]))
            c_at = f.at(f.at(a[Arg.C], f.mul(batch, a[Arg.C0])), f.mul(n, SIZES[self.result]))
            start = self._start(f, a, n, zero, edge)
            first = f.mul(block, a[Arg.BLOCK])
            with f.loop(first, f.smallest(f.add(first, a[Arg.BLOCK]), tiles)) as tile:
                m = f.smallest(f.mul(tile.index, self.rows), last_m)
                sums = start * self.rows + ["zeroinitializer"] * (self.rows if self.lifted else 0)
                if self.gathered:
                    sums = self._taps(f, form, a, a_at, packed, tile.index, sums)
                else:
                    row = f.at(a_at, f.mul(m, a[Arg.LDA]))
                    sums = self._classes(f, form, a, row, packed, order, bounds, sums)
                if self.lifted:
                    sums = self._lowered(f, a, n, zero, edge, sums)
                c = f.at(c_at, f.mul(m, a[Arg.LDC]))
                write(f, self.expr, sums, self.vectors, c, a[Arg.LDC], self.result, m, operands, edge)

    def _classes(
        self,
        f: Emitter,
        form: str,
        a: dict[Arg, str],
        row: str,
        packed: str,
        order: str,
        bounds: list[str],
        sums: list[str],
    ) -> list[str]:
        """The sums with all quads of the rows from ``row`` on added, class by class."""
        rows = [row]
        for _ in range(1, self.rows):
            rows.append(f.at(rows[-1], a[Arg.LDA]))
        for number, (first, end) in enumerate(itertools.pairwise(bounds), 0 if form == "pairs" else NATURAL):
            for span in self._spans(f, form, number, first, end):
                with f.loop(*span, [(f.vec(I32), s) for s in sums]) as loop:
                    sums = loop.vars
                    for turn in range(1 if number == FOLDED else span[2]):
                        quad = f.add(loop.index, turn)
                        sums = self._added(f, form, number, a, rows, packed, order, quad, sums)
                    loop.next = sums
                sums = loop.vars
        return sums

    def _taps(
        self, f: Emitter, form: str, a: dict[Arg, str], a_at: str, packed: str, tile: str, sums: list[str]
    ) -> list[str]:
        """The sums with all taps of a tile's rows added."""
        entries = f.at(a[Arg.TABLE], f.mul(tile, f.mul(a[Arg.TAPS], 4 * self.rows)))
        count, unit = f.div(a[Arg.QUADS], a[Arg.TAPS]), 4 * self.vectors * f.lanes
        with f.loop(0, a[Arg.TAPS], carried=[(PTR, packed), *((f.vec(I32), s) for s in sums)]) as tap:
            entry, rows = f.at(entries, f.mul(tap.index, 4 * self.rows)), []
            for r in range(self.rows):
                offset = _index(f, f.at(entry, 4 * r))
                rows.append(f.select(f.less(offset, 0), PTR, a[Arg.PADDING], f.at(a_at, offset)))
            weights, *sums = tap.vars
            with f.loop(0, count, 2, [(f.vec(I32), s) for s in sums]) as loop:
                sums, at = loop.vars, f.at(weights, f.mul(loop.index, unit))
                for turn in range(2):
                    here = [f.at(row, f.shl(f.add(loop.index, turn), 2)) for row in rows]
                    sums = self._step(f, form, False, here, f.at(at, turn * unit), None, sums)
                loop.next = sums
            tap.next = [f.at(weights, f.mul(count, unit)), *loop.vars]
        return tap.vars[1:]

    def _spans(self, f: Emitter, form: str, number: int, first: str, end: str) -> list[tuple[str, str, int]]:
        """Loops over the quads of a class: first, end and how many a turn."""
        if number == WIDENED:
            return [(first, end, 1)]
        if number == FOLDED or form != "pairs":  # quads come in twos
            return [(first, end, 2)]
        twos = f.add(first, f.and_(f.sub(end, first), -2))
        return [(first, twos, 2), (twos, end, 1)]

    def _added(
        self, f: Emitter, form: str, number: int, a: dict[Arg, str], rows: list[str], packed: str, order: str, quad: str,
        sums: list[str],
    ) -> list[str]:  # fmt: skip
        """The sums with a quad of a class added; of folded ones an octet."""
        at = _index(f, f.at(order, f.shl(quad, 2))) if form == "pairs" else f.shl(quad, 2)
        places = None
        if number == PAIRED:
            where = f.at(a[Arg.PLACES], f.shl(f.and_(at, 255), 2))
            places = f.value(f"bitcast {f.vec(I32)} {f.splat(f.load(I32, where), I32)} to {f.vec(I8, 4 * f.lanes)}")
            at = f.value(f"lshr i64 {at}, 8")
        here = [f.at(row, at) for row in rows]
        weights = f.at(packed, f.mul(quad, 4 * self.vectors * f.lanes))
        if number == FOLDED:
            return self._octet(f, form, here, weights, sums)
        return self._step(f, form, number == WIDENED, here, weights, places, sums)

    def _zero(self, f: Emitter, form: str, where: str) -> str:
        """The zero point of the bytes as they are multiplied, in every lane: one sign is made the other by adding 128."""
        extend = "zext" if self.element == "uint8" else "sext"
        zero = f.value(f"{extend} i8 {f.load(I8, where, 1)} to i32")
        if self._turned(form):
            zero = f.value(f"add i32 {zero}, {-128 if form == 'dot' else 128}")
        return f.splat(zero, I32)

    def _turned(self, form: str) -> bool:
        """Whether A's bytes are not of the sign that the instruction takes."""
        return self.element == ("uint8" if form == "dot" else "int8")

    def _start(self, f: Emitter, a: dict[Arg, str], n: str, zero: str, edge: Edge | None) -> list[str]:
        """bias - zero point * sum of weights."""
        v, found = f.vec(I32), []
        for i in range(self.vectors):
            at = f.add(f.shl(n, 2), 4 * f.lanes * i)
            mask = inside(edge, i, self.vectors)
            bias, total = (read(f, "int32", f.at(a[slot], at), mask) for slot in (Arg.BIAS, Arg.SUMS))
            found.append(f.value(f"sub {v} {bias}, {f.value(f'mul {v} {zero}, {total}')}"))
        return found

    def _lowered(
        self, f: Emitter, a: dict[Arg, str], n: str, zero: str, edge: Edge | None, sums: list[str]
    ) -> list[str]:
        """The sums less what is yet to be taken from the weights, times the sums of the rows."""
        v, count = f.vec(I32), self.rows * self.vectors
        at = f.at(a[Arg.REST], f.shl(n, 2))
        rests = [
            read(f, "int32", f.at(at, 4 * f.lanes * i), inside(edge, i, self.vectors)) for i in range(self.vectors)
        ]
        depth = f.splat(f.value(f"trunc i64 {f.shl(a[Arg.QUADS], 2)} to i32"), I32)
        zeros, found = f.value(f"mul {v} {depth}, {zero}"), []
        for r, whole in enumerate(sums[count:]):
            whole = f.value(f"sub {v} {whole}, {zeros}")
            for total, rest in zip(sums[r * self.vectors : (r + 1) * self.vectors], rests, strict=True):
                found.append(f.value(f"sub {v} {total}, {f.value(f'mul {v} {whole}, {rest}')}"))
        return found

    def _step(
        self, f: Emitter, form: str, widened: bool, rows: list[str], packed: str, places: str | None, sums: list[str]
    ) -> list[str]:
        """The sums with a quad added."""
        bytes_ = f.vec(I8, 4 * f.lanes)
        weights = [f.load(bytes_, f.at(packed, 4 * f.lanes * i), 1) for i in range(self.vectors)]
        split = [halves(f, w, "ashr") for w in weights] if widened else []
        following, wholes = [], []
        for r, row in enumerate(rows):
            x = self._bytes(f, form, row, places)
            if self.lifted:
                wholes.append(add_quads(f, form, sums[self.rows * self.vectors + r], x, "splat (i8 1)"))
            wide = halves(f, x, "lshr") if widened else []
            for i, w in enumerate(weights):
                total = sums[r * self.vectors + i]
                if widened:
                    for x16, w16 in zip(wide, split[i], strict=True):
                        total = add_pairs(f, total, x16, w16)
                else:
                    total = add_quads(f, form, total, x, w)
                following.append(total)
        return following + wholes

    def _octet(self, f: Emitter, form: str, rows: list[str], packed: str, sums: list[str]) -> list[str]:
        """The sums with an octet added, whose quads are summed in int16."""
        bytes_, words, unit = f.vec(I8, 4 * f.lanes), f.vec(I16, 2 * f.lanes), 4 * f.lanes
        weights = [
            [f.load(bytes_, f.at(packed, unit * (quad * self.vectors + i)), 1) for quad in range(2)]
            for i in range(self.vectors)
        ]
        following = []
        for r, row in enumerate(rows):
            quads = [self._bytes(f, form, f.at(row, 4 * quad), None) for quad in range(2)]
            for i, pair in enumerate(weights):
                one, other = (products(f, x, w) for x, w in zip(quads, pair, strict=True))
                both = f.value(f"add {words} {one}, {other}")
                following.append(add_pairs(f, sums[r * self.vectors + i], both, "splat (i16 1)"))
        return following

    def _bytes(self, f: Emitter, form: str, row: str, places: str | None) -> str:
        """Four bytes of a row for every column, as the instruction takes them: successive ones, or at ``places`` of eight."""
        bytes_ = f.vec(I8, 4 * f.lanes)
        if places is None:
            x = f.value(f"bitcast {f.vec(I32)} {f.splat(f.load(I32, row, 1), I32)} to {bytes_}")
        else:
            octet = f.splat(f.load(I64, row, 1), I64, f.lanes // 2)
            x = shuffled(f, f.value(f"bitcast {f.vec(I64, f.lanes // 2)} {octet} to {bytes_}"), places)
        return f.value(f"xor {bytes_} {x}, splat (i8 -128)") if self._turned(form) else x


def _index(f: Emitter, where: str) -> str:
    return f.value(f"sext i32 {f.load(I32, where)} to i64")
