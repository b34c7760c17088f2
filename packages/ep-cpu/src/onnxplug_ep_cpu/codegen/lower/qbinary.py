"""Sums and products of two quantized tensors, quantized again: the operators that say so, and floats that come to the same.

Scales and zero points are brought together first, as MLAS does (qladd_avx2.cpp, qlmul.cpp), to which onnxruntime leaves both forms; the
zero point of the result is added before rounding, so that numbers halfway between two go the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qgemm import LIMITS
from onnxplug_ep_cpu.codegen.tensor import Tensor

Number = tuple[int, float, int]
"""A quantized tensor: its leaf, its scale, and the zero point that is yet to be taken from it."""


def remaining(tensor: Tensor, zero: int) -> int:
    """The zero point that is yet to be taken from a tensor: none from int16."""
    return 0 if tensor.element == "int16" else zero


def combined(op: str, numbers: Sequence[Number], step: float, zero: int, element: str, wide: bool) -> ex.Expr:
    """The sum ("add") or product ("mul") of two numbers by the scale ``step`` and a zero point; ``wide``: less the zero point."""
    build = ex.Build()
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # of scales that are none
        value = (_sum if op == "add" else _product)(build, numbers, np.float32(step), zero)
    limits = (build("const", float(limit)) for limit in LIMITS[element])
    return build.finish(build("quantize", value, *limits, build("int32", -zero if wide else 0)))


def _sum(build: ex.Build, numbers: Sequence[Number], step: np.float32, zero: int) -> int:
    """(a - zero point) * scale + (b - zero point) * scale, over ``step``, plus ``zero``: two products and one constant."""
    (a, a_scale, a_zero), (b, b_scale, b_zero) = ((leaf, np.float32(s) / step, point) for leaf, s, point in numbers)
    fixed = np.float32(zero) - np.float32(float(a_scale) * a_zero + float(b_scale * np.float32(b_zero)))
    value = build("fma", build("leaf", b), build("const", float(b_scale)), build("const", float(fixed)))
    return build("fma", build("leaf", a), build("const", float(a_scale)), value)


def _product(build: ex.Build, numbers: Sequence[Number], step: np.float32, zero: int) -> int:
    """(a - zero point) * (b - zero point), exact, times one factor, plus ``zero``."""
    less = []
    for leaf, _, point in numbers:
        value = build("leaf", leaf)
        less.append(build("sub", value, build("const", float(point))) if point else value)
    (_, a_scale, _), (_, b_scale, _) = numbers
    factor = np.float32(a_scale) * np.float32(b_scale) / step
    value = build("mul", build("mul", *less), build("const", float(factor)))
    return build("add", value, build("const", float(zero))) if zero else value


def recombined(held: object, step: float, zero: int, element: str, wide: bool) -> ex.Expr | None:
    """A pending sum or product of two dequantized uint8 tensors that is about to be quantized to that, quantized; None for anything else.
    Of int8, onnxruntime computes it in floats."""
    if not isinstance(held, Pending) or held.anchor is not None or held.expr[-1][0] not in ("add", "mul"):
        return None
    if element != "uint8":
        return None
    op, *operands = held.expr[-1]
    found = [_dequantized(held, operand, element) for operand in operands]
    if any(each is None for each in found):
        return None
    return combined(op, [each for each in found if each is not None], step, zero, element, wide)


def _dequantized(held: Pending, at: int, element: str) -> Number | None:
    """The quantized tensor that an instruction dequantizes."""
    op, *operands = held.expr[at]
    if op != "mul" or held.expr[operands[1]][0] != "const":
        return None
    scale, zero = held.expr[operands[1]][1], 0.0
    inner = held.expr[operands[0]]
    if inner[0] == "sub" and held.expr[inner[2]][0] == "const":
        zero, inner = held.expr[inner[2]][1], held.expr[inner[1]]
    leaf = held.leaves[inner[1]] if inner[0] == "leaf" else None
    if leaf is None or leaf.element not in (element, "int16"):
        return None
    return inner[1], float(scale), int(zero)
