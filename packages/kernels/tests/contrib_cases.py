"""What the tests of ``com.microsoft``'s operators are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from one_node import Case, by_kernel

MS = "com.microsoft"
RNG = np.random.default_rng(5)
F = np.float32


def normal(*shape: int, dtype: Any = F) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def uniform(low: float, high: float, *shape: int) -> np.ndarray:
    return RNG.uniform(low, high, size=shape).astype(F)


def integers(dtype: Any, *shape: int, low: int | None = None, high: int | None = None) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(
        limits.min if low is None else low, limits.max + 1 if high is None else high, size=shape
    ).astype(dtype)


def flags(*shape: int) -> np.ndarray:
    return RNG.integers(0, 2, size=shape).astype(np.int32)


def case(
    op_type: str,
    inputs: list[Any],
    outputs: int | list[str] = 1,
    label: str = "",
    atol: float = 1e-5,
    domain: str = MS,
    release: tuple[int, int] = (1, 31),
    **attributes: Any,
) -> Case:
    return Case(domain, op_type, inputs, attributes, outputs, 1, 1e-4, atol, label, release=release)


def run(op_type: str, inputs: list[Any], outputs: int | list[str] = 1, **attributes: Any) -> list[Any]:
    return by_kernel(case(op_type, inputs, outputs, **attributes))
