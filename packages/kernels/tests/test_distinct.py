"""The different elements of vectors, against NumPy's own function."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_kernels.distinct import distinct


@pytest.mark.parametrize("values", [[], [3], [2, 2, 2], [5, -1, 5, 0, -1, 7], [0.5, -0.0, 0.0, -3.0, 0.5]])
def test_elements_and_where_each_is_first(values: list[float]) -> None:
    given = np.array(values, np.float64)
    for mine, wanted in zip(distinct(given), np.unique(given, return_index=True), strict=True):
        np.testing.assert_array_equal(mine, wanted)
        assert mine.dtype == wanted.dtype
