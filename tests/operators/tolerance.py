"""How far a result may lie from the float64 evaluation, by error analysis of the operator, and the exceptions with reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """|got - want| <= ``ulps`` ulp(want) + eps (``sums`` magnitude + ``scaled`` max|want|) + ``floor``.

    The ulp is the output type's; eps is that of the arithmetic, float32 for half precision. The magnitude of an element is the operator
    applied to the absolute values of its inputs, which bounds the rounding errors of a sum of products. Half precision results may be
    ``halves`` ulp from the correctly rounded one, whatever ``ulps`` says of wider types, and ``halves_scaled`` ulp of the largest
    result where steps in between round to half precision. ``zeros``: the signs of zeros must agree.
    ``single``: onnx.reference computes in float32 whatever the type.
    """

    ulps: float = 0
    sums: float = 0
    scaled: float = 0
    halves: float = 1
    halves_scaled: float = 0
    floor: float = 0
    zeros: bool = True
    single: bool = False
    reason: str = ""


EXACT = Tolerance(reason="moves, compares or selects elements, or rounds once")
ELEMENTWISE = Tolerance(ulps=4, reason="a few correctly rounded operations or one library function on each element")


def eps(dtypes: Iterable[Any]) -> float:
    """The spacing of numbers at 1 in the arithmetic done for operands of these types: float32 unless all floats are double."""
    single = any(dtype != np.float64 for dtype in dtypes)
    return float(np.finfo(np.float32 if single else np.float64).eps)


def ulp(values: np.ndarray, dtype: Any) -> np.ndarray:
    """The spacing of numbers of ``dtype`` at ``values`` (float64)."""
    info = ml_dtypes.finfo(dtype)
    size = np.where(np.isfinite(values), np.abs(values), 0)
    exponent = np.floor(np.log2(np.maximum(size, float(info.smallest_normal))))
    return np.exp2(exponent) * float(info.eps)


def allowed(
    tolerance: Tolerance, want: np.ndarray, magnitude: np.ndarray | None, dtype: Any, precision: float
) -> np.ndarray:
    """The largest error allowed for each element of ``want``, which holds numbers of ``dtype``, in arithmetic of that eps."""
    exact = want.astype(np.float64)
    ulps = tolerance.halves if dtype.itemsize == 2 else tolerance.ulps
    spacing = dtype if dtype.itemsize == 2 or precision < 1e-10 else np.float32
    error = ulps * ulp(exact, spacing) + tolerance.floor
    finite = np.abs(exact[np.isfinite(exact)])
    scale = float(finite.max()) if finite.size else 0.0
    error = error + precision * tolerance.scaled * scale
    if dtype.itemsize == 2:
        error = error + tolerance.halves_scaled * ulp(np.array(scale), dtype)
    if tolerance.sums and magnitude is not None:
        error = error + precision * tolerance.sums * np.nan_to_num(np.abs(magnitude), posinf=0)
    return error
