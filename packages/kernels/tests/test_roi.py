"""Where the bins of regions end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_kernels.ops.roi import max_roi_pool, roi_align


def test_bins_end_where_float32_has_it() -> None:
    """29 rows in 7 bins: in float64 the last one would reach a row beyond the region. Regions outside of the image have no pixels."""
    x = np.arange(38, dtype=np.float32).reshape(1, 1, 38, 1)
    rois = np.array([[0, 0, 8, 0, 36], [0, 0, 50, 0, 60]], np.float32)
    y = max_roi_pool(np, x, rois, pooled_shape=[7, 1])
    assert y[0, 0, :, 0].tolist() == [12, 16, 20, 24, 28, 32, 36]
    assert not y[1].any()


def test_corners_are_rounded_away_from_zero() -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 1, 6)
    y = max_roi_pool(np, x, np.array([[0, -5, 0, 5, 0]], np.float32), pooled_shape=[1, 2], spatial_scale=0.5)
    assert y.reshape(-1).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("pixel", "region", "ratio", "expected"),
    [
        ((3, 3), [0, 0, 2, 2], 1, [[1, 1], [1, 1]]),
        ((3, 3), [1, 1, 3, 3], 2, [[1, 1], [1, math.inf]]),
        ((1, 1), [0, 0, 2, 2], 2, [[math.nan, math.nan], [math.nan, math.inf]]),
        ((0, 2), [0, 0, 2, 2], 1, [[1, math.nan], [1, 1]]),
    ],
)
def test_an_infinity_is_in_the_means_of_the_bins_that_see_it(
    pixel: tuple[int, int], region: list[int], ratio: int, expected: list[Any]
) -> None:
    """As in onnxruntime: NaN where a sample sees it with weight 0."""
    x = np.ones((1, 1, 4, 4), np.float32)
    x[0, 0][pixel] = math.inf
    rois = np.array([region], np.float32)
    y = roi_align(np, x, rois, np.array([0]), output_height=2, output_width=2, sampling_ratio=ratio)
    np.testing.assert_array_equal(y[0, 0], expected)


@pytest.mark.parametrize("odd", [math.inf, -math.inf])
def test_an_infinity_that_weighs_nothing_is_not_the_largest(odd: float) -> None:
    """As in onnxruntime, which passes over the NaN of its product."""
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    expected = x.copy()
    expected[0, 0, 2, 3] = max(odd, 0)
    x[0, 0, 2, 3] = odd
    rois = np.array([[0, 0, 6, 6]], np.float32)
    y = roi_align(np, x, rois, np.array([0]), mode="max", output_height=6, output_width=6, sampling_ratio=1)
    np.testing.assert_array_equal(y, expected)
