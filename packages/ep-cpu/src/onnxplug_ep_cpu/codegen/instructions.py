"""One instruction of an element-wise expression as LLVM IR, over vectors of as many lanes as the target has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxplug_ep_cpu.codegen import angles, approx, approx64
from onnxplug_ep_cpu.codegen.emit import F32, F64, I32, I64, Emitter, double_text
from onnxplug_ep_cpu.codegen.kernels.half import from_bfloat, from_half, to_bfloat, to_half
from onnxplug_ep_cpu.codegen.quotient import quotient

Instruction = tuple[Any, ...]
"""The operator and its operands: see ``expr``."""

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
COMPARE = {"less": "olt", "greater": "ogt", "less_equal": "ole", "greater_equal": "oge", "equal": "oeq"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem"}
_INT_COMPARE = {"less": "slt", "greater": "sgt", "less_equal": "sle", "greater_equal": "sge", "equal": "eq"}
_UNARY = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc"}
_FUNCTIONS: dict[str, Callable[..., str]] = {
    "exp": approx.exp,
    "expm1": approx.expm1,
    "log": approx.log,
    "log1p": approx.log1p,
    "tanh": approx.tanh,
    "erf": approx.erf,
    "sigmoid": approx.sigmoid,
    "pow": approx.pow,
    "sin": angles.sin,
    "cos": angles.cos,
    "atan": angles.atan,
    "half": lambda f, x: from_half(f, to_half(f, x)),
    "bfloat": lambda f, x: from_bfloat(f, to_bfloat(f, x)),
}
"""Of float32; ``half`` and ``bfloat`` round to what float16 and bfloat16 hold."""
_FUNCTIONS64: dict[str, Callable[..., str]] = {
    "exp": approx64.exp,
    "expm1": approx64.expm1,
    "log": approx64.log,
    "tanh": approx64.tanh,
    "sigmoid": approx64.sigmoid,
}
CONVERT = {
    "to_float32": "float32",
    "to_float64": "float64",
    "to_int32": "int32",
    "to_int64": "int64",
    "to_bool": "bool",
    "nearest_int32": "int32",
    "quantize": "int32",
}
_FLOATS = ("float32", "float64")
_TYPES = {"float32": F32, "float64": F64, "int32": I32, "int64": I64, "bool": "i1", "bits8": "i8", "bits16": "i16"}


def constant(f: Emitter, instruction: Instruction) -> str:
    """A constant in every lane."""
    op, value = instruction
    if op == "const":
        return f.constant(float(value))
    if op == "float64":
        return f"splat (double {double_text(float(value))})"
    if op in ("given", "given_int32"):
        return f.given(value, F32 if op == "given" else I32)
    return f"splat (i1 {'true' if value else 'false'})" if op == "bool" else f"splat ({_TYPES[op]} {value})"


def emit_instruction(f: Emitter, op: str, a: list[str], kind: str) -> str:
    """The vector that operator ``op`` makes of the vectors ``a``; ``kind`` is that of the last of them."""
    if op == "nearest_int32":  # of a float below 2**22: adding 1.5 * 2**23 leaves the integer in the low bits
        rounded = f.value(f"fadd {f.vec()} {a[0]}, {f.constant(12582912.0)}")
        return f.value(
            f"sub {f.vec(I32)} {f.value(f'bitcast {f.vec()} {rounded} to {f.vec(I32)}')}, splat (i32 1262485504)"
        )
    if op == "quantize":
        # value, limits and zero point: round(value) + zero point within the limits plus zero point; NaN is the lower one
        held = approx.smaller(f, approx.larger(f, a[1], a[0]), a[2])
        return f.value(f"add {f.vec(I32)} {emit_instruction(f, 'nearest_int32', [held], 'float32')}, {a[3]}")
    if op in CONVERT:
        return _converted(f, a[0], kind, CONVERT[op])
    v = f.vec(_TYPES[kind])
    if op == "where":
        return f.value(f"select {f.vec('i1')} {a[0]}, {v} {a[1]}, {v} {a[2]}")
    if op in ("and", "or", "xor"):
        return f.value(f"{op} {v} {a[0]}, {a[1]}")
    if op == "not":
        return f.value(f"xor {v} {a[0]}, splat (i1 true)")
    if kind in ("float32", "float64"):
        return _float(f, _TYPES[kind], op, a)
    return _integer(f, v, op, a)


def _float(f: Emitter, element: str, op: str, a: list[str]) -> str:
    v, suffix = f.vec(element), f"v{f.lanes}{'f32' if element == F32 else 'f64'}"
    if op in _BINARY:
        return f.value(f"{_BINARY[op]} {v} {a[0]}, {a[1]}")
    if op in COMPARE:
        return f.value(f"fcmp {COMPARE[op]} {v} {a[0]}, {a[1]}")
    if op in _UNARY:
        return f.intrinsic(f"llvm.{_UNARY[op]}.{suffix}", v, (v, a[0]))
    if op in _FUNCTIONS:
        return (_FUNCTIONS if element == F32 else _FUNCTIONS64)[op](f, *a)
    if op == "fma":
        return f.intrinsic(f"llvm.fmuladd.{suffix}", v, *((v, x) for x in a))
    if op == "ratio":
        return _ratio(f, v, suffix, *a)
    if op == "neg":
        return f.value(f"fneg {v} {a[0]}")
    if op == "copysign":
        return f.intrinsic(f"llvm.copysign.{suffix}", v, (v, a[0]), (v, a[1]))
    if op == "isnan":
        return f.value(f"fcmp uno {v} {a[0]}, {a[0]}")
    assert op in ("max", "min"), op
    return _extreme(f, element, op, a)


def _ratio(f: Emitter, v: str, suffix: str, x: str, divisor: str, high: str, low: str) -> str:
    """x / divisor, correctly rounded, of a finite x and the two parts of the divisor's inverse: Markstein's correction of a quotient that
    is less than a unit in the last place off (IBM Journal of Research and Development 34, 1990)."""

    def fused(a: str, b: str, c: str) -> str:
        return f.intrinsic(f"llvm.fma.{suffix}", v, (v, a), (v, b), (v, c))

    near = fused(x, high, f.value(f"fmul {v} {x}, {low}"))
    return fused(fused(f.value(f"fneg {v} {near}"), divisor, x), high, near)


def _integer(f: Emitter, v: str, op: str, a: list[str]) -> str:
    """Integers wrap; the divisor of "div" and "rem" is a constant that is not zero. Masks compare as 0 and 1."""
    if op == "quotient":
        return quotient(f, a[0], a[1], v == f.vec(I64))
    if op in _INT_BINARY:
        return f.value(f"{_INT_BINARY[op]} {v} {a[0]}, {a[1]}")
    if op in _INT_COMPARE:
        return f.value(f"icmp {_INT_COMPARE[op]} {v} {a[0]}, {a[1]}")
    if op == "neg":
        return f.value(f"sub {v} zeroinitializer, {a[0]}")
    if op == "abs":
        below = f.value(f"icmp slt {v} {a[0]}, zeroinitializer")
        return f.value(f"select {f.vec('i1')} {below}, {v} {f.value(f'sub {v} zeroinitializer, {a[0]}')}, {v} {a[0]}")
    assert op in ("max", "min"), op
    first = f.value(f"icmp {'sgt' if op == 'max' else 'slt'} {v} {a[0]}, {a[1]}")
    return f.value(f"select {f.vec('i1')} {first}, {v} {a[0]}, {v} {a[1]}")


def _converted(f: Emitter, a: str, source: str, target: str) -> str:
    """As C and NumPy convert; a float that no integer is becomes the smallest one, as on x86."""
    if source == target:
        return a
    have, want = f.vec(_TYPES[source]), f.vec(_TYPES[target])
    if target == "bool":
        return f.value(
            f"fcmp une {have} {a}, zeroinitializer" if source in _FLOATS else f"icmp ne {have} {a}, zeroinitializer"
        )
    if source in _FLOATS and target in _FLOATS:
        return f.value(f"{'fptrunc' if target == 'float32' else 'fpext'} {have} {a} to {want}")
    if source in _FLOATS:
        bits = 63 if target == "int64" else 31
        high, low = (constant(f, ("const" if source == "float32" else source, x)) for x in (2.0**bits, -(2.0**bits)))
        if source == "float64" and target == "int32":  # doubles above it that are cut down to the smallest integer
            low = constant(f, (source, -(2.0**bits) - 1))
            fine = _between(f, have, a, "ogt", low, high)
            low = constant(f, (source, -(2.0**bits)))
        else:
            fine = _between(f, have, a, "oge", low, high)
        held = f.value(f"select {f.vec('i1')} {fine}, {have} {a}, {have} {low}")
        return f.value(f"fptosi {have} {held} to {want}")
    if target in _FLOATS:
        return f.value(f"{'uitofp' if source == 'bool' else 'sitofp'} {have} {a} to {want}")
    if source == "bool":
        return f.value(f"zext {have} {a} to {want}")
    return f.value(f"{'sext' if target == 'int64' else 'trunc'} {have} {a} to {want}")


def _between(f: Emitter, v: str, a: str, above: str, low: str, high: str) -> str:
    return f.value(
        f"and {f.vec('i1')} {f.value(f'fcmp olt {v} {a}, {high}')}, {f.value(f'fcmp {above} {v} {a}, {low}')}"
    )


def _extreme(f: Emitter, element: str, op: str, a: list[str]) -> str:
    """NaN if either operand is; a constant bound cannot be, which saves the second test."""
    v = f.vec(element)
    if a[0].startswith("splat"):
        a = a[::-1]
    kept = (approx.larger if op == "max" else approx.smaller)(f, a[0], a[1], element)
    if a[1].startswith("splat"):
        return kept
    unordered = f.value(f"fcmp uno {v} {a[1]}, {a[1]}")
    return f.value(f"select {f.vec('i1')} {unordered}, {v} {a[1]}, {v} {kept}")
