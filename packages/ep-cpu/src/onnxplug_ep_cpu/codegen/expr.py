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
from collections.abc import Sequence

from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.instructions import COMPARE, CONVERT, Instruction, constant, emit_instruction

Expr = tuple[Instruction, ...]

IDENTITY: Expr = (("leaf", 0),)

CONSTANTS = ("const", "float64", "int32", "int64", "bool", "given", "given_int32")
_OPERANDS = ("leaf", *CONSTANTS)

_KINDS = {"const": "float32", "given": "float32", "given_int32": "int32"}

_COST = {
    "exp": 20, "expm1": 20, "log": 28, "log1p": 36, "tanh": 18, "erf": 20, "sigmoid": 26, "div": 4, "ratio": 4, "sqrt": 6, "pow": 64,
    "sin": 48, "cos": 48, "atan": 30, "half": 4, "bfloat": 6, "quotient": 16,
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
            done.append(
                (
                    emit_instruction(f, str(op), [v for v, _ in given], given[-1][1]),
                    _kind(str(op), [k for _, k in given]),
                )
            )
    return done[-1][0]


def shared(expr: Expr, dequantizes: bool = False) -> tuple[Expr, tuple[float | int, ...]]:
    """An expression that a kernel of many layers can have, and what is this layer's own: scales, limits and zero points of a
    quantization are "given", and those by which a kernel ``dequantizes`` sums of integers, in which nothing is float64. Code differs by
    whether there is a zero point, and by bounds, which are compared without a thought of NaN."""
    if not dequantizes and all(op != "quantize" for op, *_ in expr):
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
    if op in CONVERT:
        return CONVERT[op]
    if op in COMPARE or op == "isnan":
        return "bool"
    return "float64" if "float64" in operands else operands[-1]
