"""Positions as operands of element-wise loops."""

from __future__ import annotations

import functools

import numpy as np

from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.tensor import Tensor


def counted(b: Lowering, count: int, rows: bool = False) -> Tensor:
    """0, 1, ... as int32, along the keys or along the queries."""
    room = 64
    while room < count:  # a part of few tables, so that programs for other lengths use the same
        room *= 2
    table = b.tensor_of(_numbers(room))
    return table.viewed((count, 1), (1, 0)) if rows else table.viewed((count,), (1,))


@functools.cache
def _numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)
