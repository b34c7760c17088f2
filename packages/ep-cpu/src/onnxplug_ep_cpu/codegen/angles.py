"""Trigonometric functions of float32 vectors, exact to a few units in the last place for any angle."""

from __future__ import annotations

import functools
import struct

from onnxplug_ep_cpu.codegen.approx import horner
from onnxplug_ep_cpu.codegen.emit import I32, I64, Emitter

# Cephes' single precision polynomials.
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


def sin(f: Emitter, x: str) -> str:
    """Sine of any finite angle."""
    return _turned(f, x, 0)


def cos(f: Emitter, x: str) -> str:
    """Cosine of any finite angle."""
    return _turned(f, x, 1)


def atan(f: Emitter, x: str) -> str:
    """Arc tangent."""
    v, bools = f.vec(), f.vec("i1")
    size = f.intrinsic(f"llvm.fabs.v{f.lanes}f32", v, (v, x))
    steep = f.value(f"fcmp ogt {v} {size}, {f.constant(2.414213562373095)}")
    middle = f.value(f"fcmp ogt {v} {size}, {f.constant(0.4142135623730950)}")
    inverse = f.value(f"fdiv {v} {f.constant(-1.0)}, {size}")
    quotient = f.value(
        f"fdiv {v} {f.value(f'fsub {v} {size}, {f.constant(1.0)}')}, {f.value(f'fadd {v} {size}, {f.constant(1.0)}')}"
    )
    r = f.value(f"select {bools} {middle}, {v} {quotient}, {v} {size}")
    r = f.value(f"select {bools} {steep}, {v} {inverse}, {v} {r}")
    base = f.value(f"select {bools} {middle}, {v} {f.constant(0.7853981633974483)}, {v} {f.constant(0.0)}")
    base = f.value(f"select {bools} {steep}, {v} {f.constant(1.5707963267948966)}, {v} {base}")
    square = f.value(f"fmul {v} {r}, {r}")
    p = f.value(f"fmul {v} {horner(f, square, _ATAN)}, {square}")
    y = f.value(f"fadd {v} {base}, {f.fma(p, r, r)}")
    return f.intrinsic(f"llvm.copysign.v{f.lanes}f32", v, (v, y), (v, x))


def _turned(f: Emitter, x: str, quarters: int) -> str:
    """sin(x + quarters pi / 2). The angle in quarter turns is its 24-bit mantissa times an entry, by exponent, of a table of
    2^e 2 / pi modulo 4 in two parts, the first short enough for an exact product (Payne and Hanek's idea)."""
    n = f.lanes
    v, ints, bools, doubles = f.vec(), f.vec(I32), f.vec("i1"), f.vec("double")
    bits = f.value(f"bitcast {v} {x} to {ints}")
    exponent = f.value(f"and {ints} {f.value(f'lshr {ints} {bits}, splat (i32 23)')}, splat (i32 255)")
    mantissa = f.value(f"or {ints} {f.value(f'and {ints} {bits}, splat (i32 8388607)')}, splat (i32 8388608)")
    m = f.value(f"uitofp {ints} {mantissa} to {doubles}")
    high, low = _gathered(f, exponent, 0), _gathered(f, exponent, 1)
    turns = f.value(f"fmul {doubles} {m}, {high}")
    rounding = "splat (double 0x4338000000000000)"  # 1.5 * 2**52
    rounded = f.value(f"fadd {doubles} {turns}, {rounding}")
    rest = f.value(f"fsub {doubles} {turns}, {f.value(f'fsub {doubles} {rounded}, {rounding}')}")
    rest = f.value(f"fadd {doubles} {rest}, {f.value(f'fmul {doubles} {m}, {low}')}")
    angle = f.value(f"fmul {doubles} {rest}, splat (double 0x3FF921FB54442D18)")
    r = f.value(f"fptrunc {doubles} {angle} to {v}")
    low_bits = f.value(f"trunc {f.vec(I64)} {f.value(f'bitcast {doubles} {rounded} to {f.vec(I64)}')} to {ints}")
    # sin(-x) = -sin(x), cos(-x) = cos(x): the sign of x turns the sine only
    quadrant = f.value(f"add {ints} {low_bits}, splat (i32 {quarters})")
    square = f.value(f"fmul {v} {r}, {r}")
    sine = f.fma(f.value(f"fmul {v} {horner(f, square, _SIN)}, {square}"), r, r)
    cosine = f.fma(square, f.constant(-0.5), f.constant(1.0))
    cosine = f.fma(f.value(f"fmul {v} {square}, {square}"), horner(f, square, _COS), cosine)
    odd = f.value(f"icmp ne {ints} {f.value(f'and {ints} {quadrant}, splat (i32 1)')}, zeroinitializer")
    y = f.value(f"select {bools} {odd}, {v} {cosine}, {v} {sine}")
    sign = f.value(f"shl {ints} {f.value(f'and {ints} {quadrant}, splat (i32 2)')}, splat (i32 30)")
    if quarters == 0:
        sign = f.value(f"xor {ints} {sign}, {f.value(f'and {ints} {bits}, splat (i32 -2147483648)')}")
    flipped = f.value(f"xor {ints} {f.value(f'bitcast {v} {y} to {ints}')}, {sign}")
    y = f.value(f"bitcast {ints} {flipped} to {v}")
    if quarters == 0:
        size = f.intrinsic(f"llvm.fabs.v{n}f32", v, (v, x))
        tiny = f.value(f"fcmp olt {v} {size}, {f.constant(1e-4)}")
        y = f.value(f"select {bools} {tiny}, {v} {x}, {v} {y}")
    endless = f.value(f"icmp eq {ints} {exponent}, splat (i32 255)")
    return f.value(f"select {bools} {endless}, {v} {f.constant(float('nan'))}, {v} {y}")


def _gathered(f: Emitter, index: str, part: int) -> str:
    """Entries of a part of the table of quarter turns."""
    n, doubles, pointers = f.lanes, f.vec("double"), f.vec("ptr")
    name = f"@quarters{part}"
    entries = ", ".join(f"double 0x{struct.unpack('<Q', struct.pack('<d', e[part]))[0]:016X}" for e in _quarters())
    f.declared.setdefault(name, f"{name} = private unnamed_addr constant [256 x double] [{entries}]")
    at = f.value(
        f"getelementptr double, ptr {name}, {f.vec(I64)} {f.value(f'zext {f.vec(I32)} {index} to {f.vec(I64)}')}"
    )
    return f.intrinsic(
        f"llvm.masked.gather.v{n}f64.v{n}p0", doubles,
        (pointers, at), (I32, "8"), (f.vec("i1"), "splat (i1 true)"), (doubles, "zeroinitializer"),
    )  # fmt: skip


@functools.cache
def _quarters() -> tuple[tuple[float, float], ...]:
    """For each biased exponent e: 2^(e - 150) 2 / pi, less a multiple of 4, as a double of at most 29 bits and the rest."""
    from fractions import Fraction

    entries = []
    turn = Fraction(*_two_over_pi())
    for exponent in range(256):
        value = turn * Fraction(2) ** (exponent - 150) % 4
        value -= 4 * (value > 2)
        scale = Fraction(2) ** (28 - max(-200, value.numerator.bit_length() - value.denominator.bit_length()))
        high = round(value * scale) / scale
        entries.append((float(high), float(value - high)))
    return tuple(entries)


def _two_over_pi() -> tuple[int, int]:
    """2 / pi as a quotient, to more than 300 bits, by Machin's formula."""
    bits = 400

    def arctan_of_inverse(x: int) -> int:
        term = total = (1 << bits) // x
        k, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return 2 << bits, pi
