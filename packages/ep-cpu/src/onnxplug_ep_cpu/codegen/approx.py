"""Elementary functions of float32 vectors, without branches.

The polynomial of log is Cephes' single precision one; tanh and erf are Eigen's rational approximations. Worst errors against
float64 are asserted in ``tests/test_codegen_expr.py``. NaN goes through every function: ranges are kept by compare and select,
which leave a NaN alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_ep_cpu.codegen.emit import F32, I32, Emitter

# e^r = 1 + r + r^2 p(r) for |r| <= log(2) / 2, fitted to a relative error of 3e-9 and, shorter, of 1.1e-7.
_EXP = (1.3814540079377098e-3, 8.368745212747664e-3, 4.166839079294798e-2, 1.6666520398167842e-1, 4.999999343206677e-1)
_EXP_SHORT = (8.312501488952509e-3, 4.189033233499806e-2, 1.6667115389492607e-1, 4.999923030371253e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
    6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_ONE = 9.625  # where the quotient is above 1, however it is rounded
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_ROUNDING = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, found in the low bits
_LARGEST_LOG = 88.73  # just above the logarithm of the largest float32


def horner(f: Emitter, x: str, coefficients: Sequence[float]) -> str:
    """The polynomial with the highest power first."""
    value = f.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        value = f.fma(value, x, f.constant(coefficient))
    return value


def clamp(f: Emitter, x: str, low: float | str, high: float | str) -> str:
    """``x`` within [low, high]; NaN stays."""
    low, high = (f.constant(b) if isinstance(b, float) else b for b in (low, high))
    return smaller(f, larger(f, x, low), high)


def larger(f: Emitter, x: str, bound: str, element: str = F32) -> str:
    """The larger of the two, ``x`` where either is NaN; one instruction on x86."""
    v = f.vec(element)
    above = f.value(f"fcmp ogt {v} {bound}, {x}")
    return f.value(f"select {f.vec('i1')} {above}, {v} {bound}, {v} {x}")


def smaller(f: Emitter, x: str, bound: str, element: str = F32) -> str:
    """The smaller of the two, ``x`` where either is NaN."""
    v = f.vec(element)
    below = f.value(f"fcmp olt {v} {bound}, {x}")
    return f.value(f"select {f.vec('i1')} {below}, {v} {bound}, {v} {x}")


def exp(f: Emitter, x: str) -> str:
    """e to the x; 0 below -87, infinite above 88.72."""
    v = f.vec()
    # 2 e^r 2^(n-1): 2^n itself is no float32 at n = 128
    r, power = _reduced(f, clamp(f, x, -87.3, _LARGEST_LOG), 126)
    return f.value(f"fmul {v} {horner(f, r, [2 * c for c in (*_EXP, 1.0, 1.0)])}, {power}")


def exp_below(f: Emitter, x: str) -> str:
    """e to the x <= 0, for sums: the error is 2e-7 and grows by 2e-8 |x|; 0 below -87.7."""
    v = f.vec()
    r, power = _reduced(f, larger(f, x, f.constant(-88.0)), 127, exact=False)  # where the power of two is 0
    return f.value(f"fmul {v} {horner(f, r, (*_EXP_SHORT, 1.0, 1.0))}, {power}")


def expm1(f: Emitter, x: str) -> str:
    """e to the x less one, without cancellation near 0; x above 88 counts as 88."""
    v = f.vec()
    r, power = _reduced(f, clamp(f, x, -80.0, 88.0), 127)
    p = f.fma(horner(f, r, _EXP), f.value(f"fmul {v} {r}, {r}"), r)
    return f.fma(p, power, f.value(f"fsub {v} {power}, {f.constant(1.0)}"))


def _reduced(f: Emitter, x: str, bias: int, sign: float = 1.0, exact: bool = True) -> tuple[str, str]:
    """(r, 2^(n + bias - 127)) with x = ``sign`` n log 2 + r, |r| <= log(2) / 2; not ``exact``: r is off by up to 2e-8 n."""
    v, ints = f.vec(), f.vec(I32)
    shift = f.constant(_ROUNDING + bias)  # the low bits of the sum are n + bias, a biased exponent
    rounded = f.fma(x, f.constant(sign * 1.44269504088896341), shift)
    n = f.value(f"fsub {v} {rounded}, {shift}")
    if exact:
        r = f.fma(n, f.constant(sign * -0.693359375), x)
        r = f.fma(n, f.constant(sign * 2.12194440e-4), r)
    else:
        r = f.fma(n, f.constant(sign * -0.6931471805599453), x)
    bits = f.value(f"shl {ints} {f.value(f'bitcast {v} {rounded} to {ints}')}, splat (i32 23)")
    return r, f.value(f"bitcast {ints} {bits} to {v}")


def log(f: Emitter, x: str) -> str:
    """Natural logarithm; -inf at 0, NaN below."""
    v, ints, bools = f.vec(), f.vec(I32), f.vec("i1")
    tiny = f.value(f"fcmp olt {v} {x}, {f.constant(1.17549435e-38)}")
    held = f.value(f"select {bools} {tiny}, {v} {f.value(f'fmul {v} {x}, {f.constant(2.0**25)}')}, {v} {x}")
    bits = f.value(f"bitcast {v} {held} to {ints}")
    less = f.value(f"select {bools} {tiny}, {ints} splat (i32 151), {ints} splat (i32 126)")
    exponent = f.value(f"sub {ints} {f.value(f'lshr {ints} {bits}, splat (i32 23)')}, {less}")
    mantissa = f.value(f"or {ints} {f.value(f'and {ints} {bits}, splat (i32 8388607)')}, splat (i32 1056964608)")
    m = f.value(f"bitcast {ints} {mantissa} to {v}")
    e = f.value(f"sitofp {ints} {exponent} to {v}")
    small = f.value(f"fcmp olt {v} {m}, {f.constant(0.707106781186547524)}")
    e = f.value(f"fsub {v} {e}, {f.value(f'select {bools} {small}, {v} {f.constant(1.0)}, {v} {f.constant(0.0)}')}")
    m = f.value(f"fadd {v} {m}, {f.value(f'select {bools} {small}, {v} {m}, {v} {f.constant(0.0)}')}")
    r = f.value(f"fsub {v} {m}, {f.constant(1.0)}")
    square = f.value(f"fmul {v} {r}, {r}")
    y = f.value(f"fmul {v} {f.value(f'fmul {v} {horner(f, r, _LOG)}, {r}')}, {square}")
    y = f.fma(e, f.constant(-2.12194440e-4), y)
    y = f.fma(square, f.constant(-0.5), y)
    y = f.fma(e, f.constant(0.693359375), f.value(f"fadd {v} {r}, {y}"))
    infinite = f.value(f"fcmp oeq {v} {x}, {f.constant(float('inf'))}")
    y = f.value(f"select {bools} {infinite}, {v} {x}, {v} {y}")
    zero = f.value(f"fcmp oeq {v} {x}, {f.constant(0.0)}")
    y = f.value(f"select {bools} {zero}, {v} {f.constant(float('-inf'))}, {v} {y}")
    invalid = f.value(f"fcmp ult {v} {x}, {f.constant(0.0)}")
    return f.value(f"select {bools} {invalid}, {v} {f.constant(float('nan'))}, {v} {y}")


def log1p(f: Emitter, x: str) -> str:
    """log(1 + x) for x >= 0, finite, without losing small x: log(w) x / (w - 1) with w = 1 + x rounded."""
    v, bools = f.vec(), f.vec("i1")
    w = f.value(f"fadd {v} {x}, {f.constant(1.0)}")
    rounded = f.value(f"fsub {v} {w}, {f.constant(1.0)}")
    nothing = f.value(f"fcmp oeq {v} {rounded}, {f.constant(0.0)}")
    divisor = f.value(f"select {bools} {nothing}, {v} {f.constant(1.0)}, {v} {rounded}")
    y = f.value(f"fmul {v} {log(f, w)}, {f.value(f'fdiv {v} {x}, {divisor}')}")
    return f.value(f"select {bools} {nothing}, {v} {x}, {v} {y}")


def tanh(f: Emitter, x: str) -> str:
    """Hyperbolic tangent."""
    held = clamp(f, x, -_TANH_ONE, _TANH_ONE)
    return clamp(f, _odd_quotient(f, held, _TANH_P, _TANH_Q), -1.0, 1.0)


def erf(f: Emitter, x: str) -> str:
    """The error function."""
    held = clamp(f, x, -4.0, 4.0)
    return clamp(f, _odd_quotient(f, held, _ERF_P, _ERF_Q), -1.0, 1.0)


def sigmoid(f: Emitter, x: str) -> str:
    """1 / (1 + exp(-x)); 0 below -88.4, where the power of two is infinite."""
    v = f.vec()
    r, power = _reduced(f, clamp(f, x, -89.0, 87.3), 127, -1.0)
    signs = (-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0)[-len(_EXP) - 2 :]
    e = horner(f, r, [s * c for s, c in zip(signs, (*_EXP, 1.0, 1.0), strict=True)])  # of -r
    one = f.constant(1.0)
    return f.value(f"fdiv {v} {one}, {f.fma(e, power, one)}")


def _odd_quotient(f: Emitter, x: str, p: Sequence[float], q: Sequence[float]) -> str:
    """x (p / q), both polynomials of x squared. Divided first: p is small, and its product with a subnormal x has few digits."""
    v = f.vec()
    square = f.value(f"fmul {v} {x}, {x}")
    slope = f.value(f"fdiv {v} {horner(f, square, p)}, {horner(f, square, q)}")
    return f.value(f"fmul {v} {slope}, {x}")


def pow(f: Emitter, x: str, y: str) -> str:
    """x to the y by exp(y log |x|), with C's special cases."""
    v, bools = f.vec(), f.vec("i1")
    one, zero = f.constant(1.0), f.constant(0.0)
    size = f.intrinsic(f"llvm.fabs.v{f.lanes}f32", v, (v, x))
    power = exp(f, f.value(f"fmul {v} {y}, {log(f, size)}"))
    whole = f.intrinsic(f"llvm.floor.v{f.lanes}f32", v, (v, y))
    integral = f.value(f"fcmp oeq {v} {whole}, {y}")
    half = f.value(f"fmul {v} {y}, {f.constant(0.5)}")
    odd = f.value(f"fcmp one {v} {f.intrinsic(f'llvm.floor.v{f.lanes}f32', v, (v, half))}, {half}")
    odd = f.value(f"and {bools} {odd}, {integral}")
    turned = f.intrinsic(f"llvm.copysign.v{f.lanes}f32", v, (v, power), (v, x))
    power = f.value(f"select {bools} {odd}, {v} {turned}, {v} {power}")
    below = f.value(f"fcmp olt {v} {x}, {zero}")
    broken = f.value(f"and {bools} {below}, {f.value(f'xor {bools} {integral}, splat (i1 true)')}")
    finite = f.value(f"fcmp one {v} {x}, {f.constant(float('-inf'))}")
    broken = f.value(f"and {bools} {broken}, {finite}")
    power = f.value(f"select {bools} {broken}, {v} {f.constant(float('nan'))}, {v} {power}")
    ones = f.value(f"or {bools} {f.value(f'fcmp oeq {v} {x}, {one}')}, {f.value(f'fcmp oeq {v} {y}, {zero}')}")
    minus = f.value(f"fcmp oeq {v} {x}, {f.constant(-1.0)}")
    endless = f.value(f"fcmp oeq {v} {f.intrinsic(f'llvm.fabs.v{f.lanes}f32', v, (v, y))}, {f.constant(float('inf'))}")
    ones = f.value(f"or {bools} {ones}, {f.value(f'and {bools} {minus}, {endless}')}")
    return f.value(f"select {bools} {ones}, {v} {one}, {v} {power}")
