"""Element-wise expressions: what a fused loop, or the end of a matrix product, computes for each element.

An expression is a tuple of instructions, each a tuple of its operator and the positions of earlier instructions; the last
one is the result. ``("leaf", i)`` is operand ``i``; ``("const", x)`` a float32 constant (beside a float64 one of that type),
``("float64", x)``, ``("int32", x)``, ``("int64", x)`` and ``("bool", x)`` the others. Expressions are hashable: kernels are keyed
by them. Values are vectors of float32, float64, int32, int64 or bool (masks); an instruction's kind follows from its operands',
which are of one kind, and only ``to_...`` convert. Of float64 there are the functions in ``approx64``. ``ratio`` is a quotient by a
constant (see ``lower.quantized``). ``("given", i)`` and ``("given_int32", i)`` are constants that are put in when the code is loaded
(see ``shared``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_ep_cpu.codegen import angles, approx, approx64
from onnxplug_ep_cpu.codegen.emit import F32, F64, I32, I64, Emitter, double_text
from onnxplug_ep_cpu.codegen.kernels.half import from_half, to_half
from onnxplug_ep_cpu.codegen.quotient import quotient

Instruction = tuple[Any, ...]
Expr = tuple[Instruction, ...]

IDENTITY: Expr = (("leaf", 0),)

CONSTANTS = ("const", "float64", "int32", "int64", "bool", "given", "given_int32")
_OPERANDS = ("leaf", *CONSTANTS)

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARE = {"less": "olt", "greater": "ogt", "less_equal": "ole", "greater_equal": "oge", "equal": "oeq"}
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
}
"""Of float32; ``half`` rounds to what float16 holds."""
_FUNCTIONS64: dict[str, Callable[..., str]] = {
    "exp": approx64.exp,
    "expm1": approx64.expm1,
    "log": approx64.log,
    "tanh": approx64.tanh,
    "sigmoid": approx64.sigmoid,
}
_CONVERT = {
    "to_float32": "float32",
    "to_float64": "float64",
    "to_int32": "int32",
    "to_int64": "int64",
    "to_bool": "bool",
    "nearest_int32": "int32",
    "quantize": "int32",
}
_KINDS = {"const": "float32", "given": "float32", "given_int32": "int32"}
_FLOATS = ("float32", "float64")
_TYPES = {"float32": F32, "float64": F64, "int32": I32, "int64": I64, "bool": "i1", "bits8": "i8", "bits16": "i16"}

_COST = {
    "exp": 20, "expm1": 20, "log": 28, "log1p": 36, "tanh": 18, "erf": 20, "sigmoid": 26, "div": 4, "ratio": 4, "sqrt": 6, "pow": 64,
    "sin": 48, "cos": 48, "atan": 30, "half": 4, "quotient": 16,
}  # fmt: skip


class Build:
    """Builds an expression; equal instructions are written once."""

    def __init__(self) -> None:
        self._code: list[Instruction] = []
        self._at: dict[Instruction, int] = {}

    def __call__(self, op: str, *operands: object) -> int:
        """The position of an instruction."""
        if op in ("const", "float64") and operands[0] == 0 and math.copysign(1.0, float(str(operands[0]))) < 0:
            operands = ("-0.0",)  # equal to 0.0, which is another constant
        instruction = (op, *operands)
        if instruction not in self._at:
            self._at[instruction] = len(self._code)
            self._code.append(instruction)
        return self._at[instruction]

    def include(self, expr: Expr, leaves: Sequence[int]) -> int:
        """The position of another expression's result with ``leaves`` for its operands."""
        begun = len(self._code)
        if list(leaves) == list(range(begun)) and list(expr[:begun]) == self._code == [("leaf", i) for i in leaves]:
            self._code = list(expr)  # the expression that grows, operands and all
            self._at = {instruction: position for position, instruction in enumerate(expr)}
            return len(expr) - 1
        at: list[int] = []
        for op, *operands in expr:
            if op == "leaf":
                at.append(leaves[operands[0]])
            elif op in CONSTANTS:
                at.append(self(str(op), *operands))
            else:
                at.append(self(str(op), *(at[o] for o in operands)))
        return at[-1]

    def finish(self, result: int) -> Expr:
        """The expression that computes ``result`` and nothing else."""
        code = self._code
        read = {result}.union(*[instruction[1:] for instruction in code if instruction[0] not in _OPERANDS])
        if result == len(code) - 1 and len(read) == len(code):
            return tuple(code)
        needed = {result}
        for position in range(result, -1, -1):
            op, *operands = self._code[position]
            if position in needed and op not in _OPERANDS:
                needed.update(operands)
        number = {old: new for new, old in enumerate(sorted(needed))}
        return tuple(
            (op, *operands) if op in _OPERANDS else (op, *(number[o] for o in operands))
            for op, *operands in (self._code[old] for old in sorted(needed))
        )


def leaf_count(expr: Expr) -> int:
    """How many operands an expression reads, the highest numbered included."""
    return 1 + max((int(i[1]) for i in expr if i[0] == "leaf"), default=-1)


@functools.lru_cache(maxsize=1024)
def cost(expr: Expr) -> int:
    """Roughly the vector instructions of an expression."""
    return sum(_COST.get(str(op), 1) for op, *_ in expr if op not in _OPERANDS)


def kind_of(expr: Expr, leaves: Sequence[str]) -> str:
    """The kind of the result for operands of these kinds."""
    kinds: list[str] = []
    for op, *operands in expr:
        if op == "leaf":
            kinds.append(leaves[operands[0]])
        elif op in CONSTANTS:
            kinds.append(_KINDS.get(str(op), str(op)))
        else:
            kinds.append(_kind(str(op), [kinds[o] for o in operands]))
    return kinds[-1]


def emit(f: Emitter, expr: Expr, leaves: Sequence[str], kinds: Sequence[str] | None = None) -> str:
    """Write an expression; returns the vector of the result. ``kinds`` are the operands', float32 by default."""
    done: list[tuple[str, str]] = []
    for op, *operands in expr:
        if op == "leaf":
            done.append((leaves[operands[0]], "float32" if kinds is None else kinds[operands[0]]))
        elif op in CONSTANTS:
            done.append((constant(f, (op, *operands)), _KINDS.get(str(op), str(op))))
        else:
            given = [done[o] for o in operands]
            if any(k == "float64" for _, k in given):
                given = [
                    (constant(f, ("float64", expr[o][1])), "float64") if expr[o][0] == "const" else done[o]
                    for o in operands
                ]
            done.append((_emit(f, str(op), [v for v, _ in given], given[-1][1]), _kind(str(op), [k for _, k in given])))
    return done[-1][0]


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


def shared(expr: Expr) -> tuple[Expr, tuple[float | int, ...]]:
    """An expression that a kernel of many layers can have, and what is this layer's own: scales, limits and zero points of a
    quantization are "given". Code differs by whether there is a zero point, and by bounds, which are compared without a thought of NaN."""
    if all(op != "quantize" for op, *_ in expr):
        return expr, ()
    bounds = {o for op, *operands in expr if op in ("max", "min") for o in operands}
    made: list[Instruction] = []
    values: list[float | int] = []
    for position, instruction in enumerate(expr):
        op, *operands = instruction
        if position not in bounds and (op == "const" or (op == "int32" and operands[0] != 0)):
            instruction = ("given" if op == "const" else "given_int32", len(values))
            values.append(float(operands[0]) if op == "const" else operands[0])
        made.append(instruction)
    return tuple(made), tuple(values)


def _kind(op: str, operands: Sequence[str]) -> str:
    if op in _CONVERT:
        return _CONVERT[op]
    if op in _COMPARE or op == "isnan":
        return "bool"
    return "float64" if "float64" in operands else operands[-1]


def _emit(f: Emitter, op: str, a: list[str], kind: str) -> str:
    """One instruction; ``kind`` is that of its last operand."""
    if op == "nearest_int32":  # of a float below 2**22: adding 1.5 * 2**23 leaves the integer in the low bits
        rounded = f.value(f"fadd {f.vec()} {a[0]}, {f.constant(12582912.0)}")
        return f.value(
            f"sub {f.vec(I32)} {f.value(f'bitcast {f.vec()} {rounded} to {f.vec(I32)}')}, splat (i32 1262485504)"
        )
    if op == "quantize":
        # value, limits and zero point: round(value) + zero point within the limits plus zero point; NaN is the lower one
        held = approx.smaller(f, approx.larger(f, a[1], a[0]), a[2])
        return f.value(f"add {f.vec(I32)} {_emit(f, 'nearest_int32', [held], 'float32')}, {a[3]}")
    if op in _CONVERT:
        return _convert(f, a[0], kind, _CONVERT[op])
    v = f.vec(_TYPES[kind])
    if op == "where":
        return f.value(f"select {f.vec('i1')} {a[0]}, {v} {a[1]}, {v} {a[2]}")
    if op in ("and", "or", "xor"):
        return f.value(f"{op} {v} {a[0]}, {a[1]}")
    if op == "not":
        return f.value(f"xor {v} {a[0]}, splat (i1 true)")
    if kind in ("float32", "float64"):
        return _emit_float(f, _TYPES[kind], op, a)
    return _emit_integer(f, v, op, a)


def _emit_float(f: Emitter, element: str, op: str, a: list[str]) -> str:
    v, suffix = f.vec(element), f"v{f.lanes}{'f32' if element == F32 else 'f64'}"
    if op in _BINARY:
        return f.value(f"{_BINARY[op]} {v} {a[0]}, {a[1]}")
    if op in _COMPARE:
        return f.value(f"fcmp {_COMPARE[op]} {v} {a[0]}, {a[1]}")
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


def _emit_integer(f: Emitter, v: str, op: str, a: list[str]) -> str:
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


def _convert(f: Emitter, a: str, source: str, target: str) -> str:
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
