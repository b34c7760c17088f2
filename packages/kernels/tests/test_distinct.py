"""The different elements of vectors, against NumPy's own function."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_kernels.distinct import distinct, occurrences


@pytest.mark.parametrize("values", [[], [3], [2, 2, 2], [5, -1, 5, 0, -1, 7], [0.5, -0.0, 0.0, -3.0, 0.5]])
def test_elements_and_where_each_is_first(values: list[float]) -> None:
    given = np.array(values, np.float64)
    for mine, wanted in zip(distinct(given), np.unique(given, return_index=True), strict=True):
        np.testing.assert_array_equal(mine, wanted)
        assert mine.dtype == wanted.dtype


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32", "float64", "O"])
@pytest.mark.parametrize("length", [0, 1, 2, 60])
def test_where_and_how_often_elements_occur(dtype: str, length: int) -> None:
    random = np.random.default_rng(length)
    values = random.integers(0, 5, length).astype(str if dtype == "O" else dtype).astype(dtype)
    if values.dtype.kind == "f":
        values[random.random(length) < 0.2], values[random.random(length) < 0.2] = np.nan, -0.0
    _, *wanted = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    for mine, each in zip(occurrences(values), wanted, strict=True):
        np.testing.assert_array_equal(mine, each, strict=True)
