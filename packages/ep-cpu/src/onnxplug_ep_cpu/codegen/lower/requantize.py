"""How what an integer product sums up becomes the bytes of a result: scaled once, rounded, saturated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.instructions import Instruction
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qgemm import saturated
from onnxplug_ep_cpu.codegen.lower.quantized import constant_numbers, wants_wide, zero_of
from onnxplug_ep_cpu.codegen.tensor import Tensor


def scaled(
    b: Lowering,
    y: ValueView,
    pending: Pending,
    scale: np.ndarray,
    y_zero: ValueView | None,
    spread: Callable[[Tensor], Tensor] = lambda vector: vector,
) -> Pending:
    """``y`` as the pending sums times ``scale`` (one, or one for each column or channel), quantized. ``spread`` shapes a vector to
    broadcast against the sums."""
    zero = zero_of(y_zero)
    assert zero is not None
    build = ex.Build()
    factor: Instruction = ("const", float(scale.reshape(-1)[0]))
    if scale.size != 1:
        pending.leaves.append(spread(constant_numbers(b, scale.reshape(-1))))
        factor = ("leaf", 1)
    return as_bytes(b, y, pending, build, build("mul", build("to_float32", build("leaf", 0)), build(*factor)), zero)


def rescaled(b: Lowering, held: Pending, step: float) -> Pending | None:
    """Pending sums times a scale, perhaps with a Relu behind, over ``step``: times one factor, as ``scaled`` has it and onnxruntime,
    since two roundings put some numbers on the other side of a half. None for anything else."""
    expr, product = held.expr, len(held.expr) - 1
    op, *operands = expr[product]
    relu = op == "max" and expr[operands[1]] == ("const", 0.0)
    if relu:
        product = operands[0]
        op, *operands = expr[product]
    if (
        op != "mul"
        or len(expr) != (6 if relu else 4)
        or expr[operands[0]] != ("to_float32", 0)
        or expr[0] != ("leaf", 0)
    ):
        return None
    (kind, number), leaves = expr[operands[1]], list(held.leaves)
    if kind == "const":
        changed = list(expr)
        changed[operands[1]] = ("const", float(np.float32(number) / np.float32(step)))
        return replace(held, expr=tuple(changed))
    vector = leaves[number] if kind == "leaf" else None
    if vector is None or vector.buffer.array is None or vector.element != "float32":
        return None
    numbers = constant_numbers(b, vector.buffer.array / np.float32(step))
    leaves[number] = replace(numbers, shape=vector.shape, strides=vector.strides)
    return replace(held, leaves=leaves)


def as_bytes(b: Lowering, y: ValueView, pending: Pending, build: ex.Build, value: int, zero: int) -> Pending:
    """``y`` as ``value``, an expression over the pending sums, quantized; kept less its zero point as int16 where its readers want it
    so."""
    wide = wants_wide(b, y, zero)
    pending.expr = build.finish(saturated(build, value, zero, b.element(y), wide))
    pending.element = "int16" if wide else b.element(y)
    return pending
