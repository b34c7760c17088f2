"""Conversions to types of few bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels.dtypes import ElementType
from onnxplug_kernels.ops.cast import cast_to


@pytest.mark.parametrize(
    ("to", "tie", "above"),
    [
        (ElementType.BFLOAT16, 1 + 2.0**-8, 1 + 2.0**-7),
        (ElementType.FLOAT16, 1 + 2.0**-11, 1 + 2.0**-10),
        (ElementType.FLOAT8E4M3FN, 1 + 2.0**-4, 1 + 2.0**-3),
        (ElementType.FLOAT8E5M2, 1 + 2.0**-3, 1 + 2.0**-2),
        (ElementType.FLOAT4E2M1, 1.25, 1.5),
    ],
)
def test_doubles_are_rounded_once(to: ElementType, tie: float, above: float) -> None:
    x = np.array([tie, tie + 2.0**-40, -tie - 2.0**-40, tie - 2.0**-40], np.float64)
    assert cast_to(np, x, to).astype(np.float64).tolist() == [1, above, -above, 1]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_are_rounded_once(dtype: Any) -> None:
    tie = 2**62 + 2**54
    x = np.array([tie, tie + 1, tie - 1], dtype)
    assert cast_to(np, x, ElementType.BFLOAT16).astype(np.float64).tolist() == [2.0**62, 2.0**62 + 2.0**55, 2.0**62]
    assert cast_to(np, np.array([2**53 + 1], dtype), ElementType.FLOAT8E8M0).astype(np.float64)[0] == 2.0**54


def test_what_is_no_number_or_beyond_all_stays_so() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -0.0])
    got = cast_to(np, x, ElementType.BFLOAT16).astype(np.float64)
    assert np.isnan(got[0]) and got[1:].tolist() == [np.inf, -np.inf, np.inf, 0] and np.signbit(got[4])
    least = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)  # type: ignore[no-untyped-call]
    assert (
        cast_to(np, np.array([np.nextafter(least + 2.0**119, 0)]), ElementType.BFLOAT16).astype(np.float64)[0] == least
    )
