"""Products with weights of few bits by instructions that add four products of bytes: numbers are signed digits to the base 256.

Within a block, which has one scale and zero point a column, numbers are multiples of one unit. With three digits that is a power of
two, as 23 bits and a sign have room for the largest; so the products are those of floats, but for what is small beside the block's
largest number. With one digit it is the largest number's 127th part, as onnxruntime and ggml round operands to bytes. Weights are
bytes as they lie: successive ones of a column have their bits at the places 0, ``bits``, 2 ``bits``, ... of a word, so a mask leaves
every 8 / ``bits``-th in a byte of its own, and the numbers lie in that order.
"""

from __future__ import annotations

import math
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I8, I32, I64, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels.bytedots import I16, add_pairs, add_quads, products, quad_form
from onnxplug_ep_cpu.codegen.kernels.nbits import VECTORS
from onnxplug_ep_cpu.codegen.target import Target

DIGITS = 3
"""Digits of a number that is as exact as a float, the lowest first."""
ROUGH = 1
"""Digits of a number of which 8 bits are enough."""
CHUNK = 16
"""Numbers that are taken apart at a time."""
HEAD = 32
"""Bytes of what is known of a block of a row: unit, unit times the sum of all multiples, and of each digit what its sums begin with."""
AHEAD = 2048
"""Bytes from a weight to the one that is brought near meanwhile: what processors do by themselves ends with a page."""
_BITS = 22
"""Bits behind the first of the largest number of a block."""
_ROUGHEST = 127.0
"""The largest multiple of one digit."""
_MAGNITUDE = 0x7FFFFFFF
"""The bits of a float without its sign."""
_HEADROOM = 1 + 2.0**-7
"""No multiple may be so large that rounding its lower digits leaves too much for the highest."""


def most(bits: int) -> int:
    """Weights of a block so many that sums of products of two digits fit an int32."""
    return (1 << 31) // (1 << bits + 15)


class DigitArg(IntEnum):
    """Slots of the arguments of ``Digits``."""

    A = 0
    PLANES = 1  # [row][digit][k] of bytes
    HEADS = 2  # [row][block][HEAD]
    BLOCKS = 3  # of a row


@record(frozen=True, slots=True)
class Digits:
    """Takes blocks of rows apart; an item is a block. ``zero``: the zero point of all weights, None where they have their own."""

    bits: int
    block: int
    zero: int | None
    digits: int

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, I64 if slot is DigitArg.BLOCKS else PTR) for slot in DigitArg}
        size = f.mul(a[DigitArg.BLOCKS], self.block)
        with f.items() as item:
            source = f.at(a[DigitArg.A], f.mul(item, 4 * self.block))
            row, at = f.div(item, a[DigitArg.BLOCKS]), f.mul(f.rem(item, a[DigitArg.BLOCKS]), self.block)
            plane = f.at(a[DigitArg.PLANES], f.add(f.mul(row, f.mul(size, self.digits)), at))
            unit, inverse = self._unit(f, source)
            sums = self._take_apart(f, source, plane, size, inverse)
            self._tell(f, f.at(a[DigitArg.HEADS], f.mul(item, HEAD)), unit, sums)

    def _unit(self, f: Emitter, source: str) -> tuple[str, str]:
        """What multiples are of, and its inverse; the unit is no number where one of the block's is none."""
        ints = f.vec(I32, CHUNK)
        with f.loop(0, self.block, CHUNK, [(ints, "zeroinitializer")]) as at:
            bits = f.load(ints, f.at(source, f.shl(at.index, 2)))
            # Positive floats are ordered as their bits are, and what is no number comes last.
            size = f.value(f"and {ints} {bits}, splat (i32 {_MAGNITUDE})")
            at.next = [f.intrinsic(f"llvm.umax.v{CHUNK}i32", ints, (ints, at.vars[0]), (ints, size))]
        peak = f.intrinsic(f"llvm.vector.reduce.umax.v{CHUNK}i32", I32, (ints, at.vars[0]))
        largest = f.value(f"bitcast i32 {peak} to float")
        wrong = f.value(f"fmul float {largest}, {float_text(0.0)}")
        if self.digits == ROUGH:
            unit = f.value(f"fdiv float {largest}, {float_text(_ROUGHEST)}")
            # Infinite for zeros, which any multiple of 0 is right for.
            inverse = f.value(f"fdiv float {float_text(_ROUGHEST)}, {largest}")
            return f.value(f"fadd float {unit}, {wrong}"), inverse
        widened = f.value(f"fmul float {largest}, {float_text(_HEADROOM)}")
        exponent = f.value(f"lshr i32 {f.value(f'bitcast float {widened} to i32')}, 23")
        exponent = f.intrinsic("llvm.umax.i32", I32, (I32, exponent), (I32, str(_BITS + 1)))
        exponent = f.intrinsic("llvm.umin.i32", I32, (I32, exponent), (I32, "254"))
        unit = _power(f, f.value(f"sub i32 {exponent}, {_BITS}"))
        return f.value(f"fadd float {unit}, {wrong}"), _power(f, f.value(f"sub i32 {2 * 127 + _BITS}, {exponent}"))

    def _take_apart(self, f: Emitter, source: str, plane: str, size: str, inverse: str) -> list[str]:
        """Write the digits of a block; the sum of each."""
        v, ints, bytes_ = f.vec(F32, CHUNK), f.vec(I32, CHUNK), f.vec(I8, CHUNK)
        scale, bound = f.splat(inverse, F32, CHUNK), _ROUGHEST if self.digits == ROUGH else 2.0**23 - 2.0**16
        order = f"<{CHUNK} x i32> <{', '.join(f'i32 {lane}' for lane in self._order())}>"
        with f.loop(0, self.block, CHUNK, [(ints, "zeroinitializer")] * self.digits) as at:
            x = f.value(f"fmul {v} {f.load(v, f.at(source, f.shl(at.index, 2)))}, {scale}")
            x = f.intrinsic(f"llvm.minnum.v{CHUNK}f32", v, (v, x), (v, f"splat (float {float_text(bound)})"))
            x = f.intrinsic(f"llvm.maxnum.v{CHUNK}f32", v, (v, x), (v, f"splat (float {float_text(-bound)})"))
            left = f.value(f"fptosi {v} {f.intrinsic(f'llvm.rint.v{CHUNK}f32', v, (v, x))} to {ints}")
            at.next = []
            for number, total in enumerate(at.vars):
                digit = f.value(f"trunc {ints} {left} to {bytes_}")
                place = f.at(f.at(plane, f.mul(size, number)), at.index)
                sorted_ = f.value(f"shufflevector {bytes_} {digit}, {bytes_} poison, {order}")
                f.store(bytes_, sorted_, place, 1)
                wide = f.value(f"sext {bytes_} {digit} to {ints}")
                at.next.append(f.value(f"add {ints} {total}, {wide}"))
                left = f.value(f"ashr {ints} {f.value(f'sub {ints} {left}, {wide}')}, splat (i32 8)")
        return [f.intrinsic(f"llvm.vector.reduce.add.v{CHUNK}i32", I32, (ints, total)) for total in at.vars]

    def _order(self) -> list[int]:
        """The numbers of a chunk as the bytes of masked words lie."""
        values, steps = 32 // self.bits, 8 // self.bits
        within = [step + steps * byte for step in range(steps) for byte in range(4)]
        return [first + at for first in range(0, CHUNK, values) for at in within]

    def _tell(self, f: Emitter, head: str, unit: str, sums: list[str]) -> None:
        """Write what is known of a block."""
        f.store(F32, unit, head)
        f.store(F32, f.value(f"fmul float {unit}, {_joined(f, sums)}"), f.at(head, 4))
        for number, total in enumerate(sums):
            first = f.value(f"mul i32 {total}, {-(self.zero or 0)}")
            f.store(I32, first, f.at(head, 8 + 4 * number))


class DigitsArg(IntEnum):
    """Slots of the arguments of ``NBitsDigits``; strides are in bytes."""

    PLANES = 0
    HEADS = 1
    B = 2  # as ``nbits.Arg`` has it, and so are scales and offsets
    SCALES = 3
    OFFSETS = 4  # not read where all weights have one zero point
    C = 5
    BLOCKS = 6
    LDC = 7
    PANEL = 8
    M = 9


@record(frozen=True, slots=True)
class NBitsDigits:
    """Rows times the weights; an item is a panel of columns. ``rows`` of them, at most as many as there are, go together: the last ones
    again with some before them. ``zeros``: blocks have zero points of their own."""

    bits: int
    block: int
    rows: int
    zeros: bool
    digits: int

    def emit(self, f: Emitter) -> None:
        width = VECTORS * f.lanes
        a = {slot: f.arg(slot, PTR if slot < DigitsArg.BLOCKS else I64) for slot in DigitsArg}
        # Vectors whose sums there are registers for.
        together = VECTORS if self.rows * self.digits <= most_rows(f.target) else 1
        with f.items() as panel:
            packed = f.at(a[DigitsArg.B], f.mul(panel, a[DigitsArg.PANEL]))
            at = f.mul(f.mul(panel, a[DigitsArg.BLOCKS]), 4 * width)
            scales, offsets = f.at(a[DigitsArg.SCALES], at), f.at(a[DigitsArg.OFFSETS], at)
            c = f.at(a[DigitsArg.C], f.mul(panel, 4 * width))
            with f.loop(0, a[DigitsArg.M], self.rows) as m:
                row = f.smallest(m.index, f.sub(a[DigitsArg.M], self.rows))
                for first in range(0, VECTORS, together):
                    self._columns(f, a, row, (packed, scales, offsets, c), range(first, first + together))

    def _columns(
        self, f: Emitter, a: dict[DigitsArg, str], first: str, memory: tuple[str, str, str, str], vectors: range
    ) -> None:
        """The sums of some vectors of a panel, of rows from the ``first`` on."""
        packed, scales, offsets, c = memory
        v, step = f.vec(), 4 * f.lanes
        size = f.mul(a[DigitsArg.BLOCKS], self.block)
        rows = [f.add(first, r) for r in range(self.rows)]
        all_heads = [f.at(a[DigitsArg.HEADS], f.mul(f.mul(a[DigitsArg.BLOCKS], row), HEAD)) for row in rows]
        planes = [
            f.at(a[DigitsArg.PLANES], f.mul(size, f.add(f.mul(row, self.digits), n)))
            for row in rows
            for n in range(self.digits)
        ]
        with f.loop(0, a[DigitsArg.BLOCKS], carried=[(v, "zeroinitializer")] * (self.rows * len(vectors))) as block:
            here = f.mul(block.index, VECTORS * step)
            words = f.at(packed, f.mul(block.index, self.block * self.bits // 8 * VECTORS * f.lanes))
            heads = [f.at(head, f.mul(block.index, HEAD)) for head in all_heads]
            digits = [f.at(plane, f.mul(block.index, self.block)) for plane in planes]
            sums = self._block(f, words, heads, digits, vectors)
            block.next = []
            for r, head in enumerate(heads):
                unit, whole = f.splat(f.load(F32, head)), f.splat(f.load(F32, f.at(head, 4)))
                for at, i in enumerate(vectors):
                    number = r * len(vectors) + at
                    scale = f.load(v, f.at(f.at(scales, here), step * i))
                    product = _joined(f, sums[number * self.digits : (number + 1) * self.digits], f.lanes)
                    total = f.fma(product, f.value(f"fmul {v} {scale}, {unit}"), block.vars[number])
                    if self.zeros:
                        total = f.fma(f.load(v, f.at(f.at(offsets, here), step * i)), whole, total)
                    block.next.append(total)
        for r, row in enumerate(rows):
            to = f.at(c, f.mul(a[DigitsArg.LDC], row))
            for at, i in enumerate(vectors):
                f.store(v, block.vars[r * len(vectors) + at], f.at(to, step * i))

    def _block(self, f: Emitter, words: str, heads: list[str], digits: list[str], vectors: range) -> list[str]:
        """[row][vector][digit] sums of a block's products."""
        form = quad_form(f.target)
        assert form is not None and multiplies(form, self.bits), "a target without such products of bytes"
        ints, bytes_ = f.vec(I32), f.vec(I8, 4 * f.lanes)
        starts = []
        for head in heads:
            firsts = [f.splat(f.load(I32, f.at(head, 8 + 4 * n)), I32) for n in range(self.digits)]
            starts += firsts * len(vectors)
        values, steps = 32 // self.bits, 8 // self.bits
        unrolled = math.gcd(self.block, 8 * values)
        with f.loop(0, self.block, unrolled, [(ints, start) for start in starts]) as k:
            sums = [QuadSum(f, form, start, self.bits) for start in k.vars]
            at = f.at(words, f.mul(k.index, 4 * VECTORS * f.lanes // values))
            here = [f.at(place, k.index) for place in digits]
            for word in range(0, unrolled, values):
                for i_at, i in enumerate(vectors):
                    place = f.at(at, 4 * f.lanes * (VECTORS * (word // values) + i))
                    loaded = f.load(ints, place)
                    f.prefetch(f.at(place, AHEAD))
                    for step in range(steps):
                        moved = f.value(f"lshr {ints} {loaded}, splat (i32 {self.bits * step})") if step else loaded
                        mask = (2**self.bits - 1) * 0x01010101
                        kept = f.value(f"and {ints} {moved}, splat (i32 {mask})") if steps > 1 else moved
                        weights = f.value(f"bitcast {ints} {kept} to {bytes_}")
                        for r in range(self.rows):
                            for n in range(self.digits):
                                four = f.load(I32, f.at(here[r * self.digits + n], word + 4 * step), 4)
                                x = f.value(f"bitcast {ints} {f.splat(four, I32)} to {bytes_}")
                                sums[(r * len(vectors) + i_at) * self.digits + n].add(weights, x)
            k.next = [total.value() for total in sums]
        return k.vars


class QuadSum:
    """int32 to which products of weights' bytes and digits are added; those of pairs stay int16 as long as they fit."""

    def __init__(self, f: Emitter, form: str, start: str, bits: int) -> None:
        self._f, self._form, self._total = f, form, start
        self._most = 0x7FFF // (2 * (2**bits - 1) * 128)
        self._pairs, self._count = "", 0

    def add(self, weights: str, x: str) -> None:
        """Four more products in each lane."""
        if self._form != "pairs":
            self._total = add_quads(self._f, self._form, self._total, weights, x)
            return
        if self._count == self._most:
            self._total, self._count = self.value(), 0
        made, v = products(self._f, weights, x), self._f.vec(I16, 2 * self._f.lanes)
        self._pairs = self._f.value(f"add {v} {self._pairs}, {made}") if self._count else made
        self._count += 1

    def value(self) -> str:
        """The sum."""
        return add_pairs(self._f, self._total, self._pairs, "splat (i16 1)") if self._count else self._total


def multiplies(form: str | None, bits: int) -> bool:
    """Whether products of weights and digits are right: those of pairs saturate where weights have 8 bits."""
    return form == "vnni" or (form == "pairs" and bits < 8)


def most_rows(target: Target) -> int:
    """Rows whose integer and floating sums of a panel, weights and a mask there are registers for."""
    return max(1, (target.registers - 4) // (2 * VECTORS))


def _power(f: Emitter, exponent: str) -> str:
    """Two to a biased exponent."""
    return f.value(f"bitcast i32 {f.value(f'shl i32 {exponent}, 23')} to float")


def _joined(f: Emitter, digits: list[str], lanes: int = 0) -> str:
    """The float that sums of digits make: a vector of so many lanes, or a number."""
    ints, v = (f.vec(I32, lanes), f.vec(F32, lanes)) if lanes else (I32, F32)
    many = "splat (i32 8)" if lanes else "8"
    if len(digits) == ROUGH:
        return f.value(f"sitofp {ints} {digits[0]} to {v}")
    low, middle, high = digits
    upper = f.value(f"add {ints} {f.value(f'shl {ints} {high}, {many}')}, {middle}")
    floats = [f.value(f"sitofp {ints} {part} to {v}") for part in (upper, low)]
    factor = f"splat (float {float_text(256.0)})" if lanes else float_text(256.0)
    return f.value(f"fadd {v} {f.value(f'fmul {v} {floats[0]}, {factor}')}, {floats[1]}")
