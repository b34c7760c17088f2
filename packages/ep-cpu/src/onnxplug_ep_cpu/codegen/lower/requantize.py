"""How what an integer product sums up becomes the bytes of a result: scaled once, rounded, saturated."""

from __future__ import annotations

from collections.abc import Callable

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


def as_bytes(b: Lowering, y: ValueView, pending: Pending, build: ex.Build, value: int, zero: int) -> Pending:
    """``y`` as ``value``, an expression over the pending sums, quantized; kept less its zero point as int16 where its readers want it
    so."""
    wide = wants_wide(b, y, zero)
    pending.expr = build.finish(saturated(build, value, zero, b.element(y), wide))
    pending.element = "int16" if wide else b.element(y)
    return pending
