"""Elementary functions of float64 vectors, without branches, to an ulp or two.

The logarithm is that of Sun's fdlibm (a quotient whose even part is a polynomial); the exponential is its own series, which needs no
fit at this length. Errors are asserted in ``tests/test_codegen_expr64.py``. NaN goes through every function, as in ``approx``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug_ep_cpu.codegen.approx import larger, smaller
from onnxplug_ep_cpu.codegen.emit import F64, I64, Emitter, double_text

_EXP = tuple(1 / math.factorial(n) for n in range(13, 1, -1))
"""e^r = 1 + r + r^2 p(r): for |r| <= log(2) / 2 what is left out is below 5e-18."""
_LOG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
"""log 2 as a number of few bits, whose multiples are exact, and the rest."""
_ROUNDING = 1.5 * 2.0**52  # adding it rounds to an integer, found in the low bits


def constant(value: float) -> str:
    """A float64 constant in every lane, as an operand."""
    return f"splat (double {double_text(value)})"


def horner(f: Emitter, x: str, coefficients: Sequence[float]) -> str:
    """The polynomial with the highest power first."""
    value = constant(coefficients[0])
    for coefficient in coefficients[1:]:
        value = f.fma(value, x, constant(coefficient), F64)
    return value


def exp(f: Emitter, x: str) -> str:
    """e to the x; what is subnormal is rounded once, 0 below -745.2, infinite above 709.78."""
    v = f.vec(F64)
    r, n = _reduced(f, smaller(f, larger(f, x, constant(-746.0), F64), constant(710.0), F64))
    half = f.value(f"ashr {f.vec(I64)} {n}, splat (i64 1)")
    rest = f.value(f"sub {f.vec(I64)} {n}, {half}")
    e = f.value(f"fmul {v} {horner(f, r, (*_EXP, 1.0, 1.0))}, {_power(f, half)}")
    return f.value(f"fmul {v} {e}, {_power(f, rest)}")


def expm1(f: Emitter, x: str) -> str:
    """e to the x less one, without cancellation near 0; x above 700 counts as 700."""
    v = f.vec(F64)
    r, n = _reduced(f, smaller(f, larger(f, x, constant(-60.0), F64), constant(700.0), F64))
    p = f.fma(horner(f, r, _EXP), f.value(f"fmul {v} {r}, {r}"), r, F64)
    power = _power(f, n)
    return f.fma(p, power, f.value(f"fsub {v} {power}, {constant(1.0)}"), F64)


def _reduced(f: Emitter, x: str) -> tuple[str, str]:
    """(r, n as int64) with x = n log 2 + r, |r| <= log(2) / 2."""
    v, ints = f.vec(F64), f.vec(I64)
    rounded = f.fma(x, constant(1 / math.log(2)), constant(_ROUNDING), F64)
    n = f.value(f"fsub {v} {rounded}, {constant(_ROUNDING)}")
    r = f.fma(n, constant(-_LN2[1]), f.fma(n, constant(-_LN2[0]), x, F64), F64)
    bits = f.value(f"bitcast {v} {rounded} to {ints}")
    return r, f.value(f"sub {ints} {bits}, splat (i64 {0x4338000000000000})")


def _power(f: Emitter, n: str) -> str:
    """2 to the n, of int64 within the exponents of normal numbers."""
    ints = f.vec(I64)
    bits = f.value(f"shl {ints} {f.value(f'add {ints} {n}, splat (i64 1023)')}, splat (i64 52)")
    return f.value(f"bitcast {ints} {bits} to {f.vec(F64)}")


def log(f: Emitter, x: str) -> str:
    """Natural logarithm; -inf at 0, NaN below."""
    v, ints, bools = f.vec(F64), f.vec(I64), f.vec("i1")
    tiny = f.value(f"fcmp olt {v} {x}, {constant(2.0**-1022)}")
    held = f.value(f"select {bools} {tiny}, {v} {f.value(f'fmul {v} {x}, {constant(2.0**54)}')}, {v} {x}")
    # subtracting the bits of sqrt(1/2) leaves the exponent of a mantissa within [sqrt(1/2), sqrt(2)) at the top
    bits = f.value(f"bitcast {v} {held} to {ints}")
    over = f.value(f"sub {ints} {bits}, splat (i64 {0x3FE6A09E667F3BCD})")
    exponent = f.value(f"ashr {ints} {over}, splat (i64 52)")
    m = f.value(f"sub {ints} {bits}, {f.value(f'shl {ints} {exponent}, splat (i64 52)')}")
    less = f.value(f"select {bools} {tiny}, {ints} splat (i64 54), {ints} zeroinitializer")
    e = f.value(f"sitofp {ints} {f.value(f'sub {ints} {exponent}, {less}')} to {v}")
    r = f.value(f"fsub {v} {f.value(f'bitcast {ints} {m} to {v}')}, {constant(1.0)}")
    s = f.value(f"fdiv {v} {r}, {f.value(f'fadd {v} {r}, {constant(2.0)}')}")
    z = f.value(f"fmul {v} {s}, {s}")
    even = f.value(f"fmul {v} {z}, {horner(f, z, _LOG)}")
    half = f.value(f"fmul {v} {constant(0.5)}, {f.value(f'fmul {v} {r}, {r}')}")
    small = f.fma(e, constant(_LN2[1]), f.value(f"fmul {v} {s}, {f.value(f'fadd {v} {half}, {even}')}"), F64)
    small = f.value(f"fsub {v} {f.value(f'fsub {v} {half}, {small}')}, {r}")
    y = f.value(f"fsub {v} {f.value(f'fmul {v} {e}, {constant(_LN2[0])}')}, {small}")
    for test, operand, result in (
        ("oeq", math.inf, x), ("oeq", 0.0, constant(-math.inf)), ("ult", 0.0, constant(math.nan)),
    ):  # fmt: skip
        found = f.value(f"fcmp {test} {v} {x}, {constant(operand)}")
        y = f.value(f"select {bools} {found}, {v} {result}, {v} {y}")
    return y


def tanh(f: Emitter, x: str) -> str:
    """Hyperbolic tangent: (e^2|x| - 1) / (e^2|x| + 1) with the sign of x."""
    v = f.vec(F64)
    size = f.intrinsic(f"llvm.fabs.v{f.lanes}f64", v, (v, x))
    size = smaller(f, size, constant(22.0), F64)  # where it is 1
    e = expm1(f, f.value(f"fadd {v} {size}, {size}"))
    y = f.value(f"fdiv {v} {e}, {f.value(f'fadd {v} {e}, {constant(2.0)}')}")
    return f.intrinsic(f"llvm.copysign.v{f.lanes}f64", v, (v, y), (v, x))


def sigmoid(f: Emitter, x: str) -> str:
    """1 / (1 + exp(-x))."""
    v, one = f.vec(F64), constant(1.0)
    e = exp(f, f.value(f"fneg {v} {x}"))
    return f.value(f"fdiv {v} {one}, {f.value(f'fadd {v} {one}, {e}')}")
