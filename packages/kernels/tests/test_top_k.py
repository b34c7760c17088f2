"""The few best of long lines, against all of them in order."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug_kernels.ops.gather import PARTED, top_k


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "uint64"])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.99], ids=["no NaN", "some NaN", "most NaN"])
@pytest.mark.parametrize("values", [5, 100], ids=["many equal", "few equal"])
def test_few_of_many(kind: str, largest: bool, share: float, values: int) -> None:
    """Of equal elements, zeros of either sign among them, the first comes first; NaN is greater than all else."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, values, (3, 200, 5)).astype(kind)
    assert x.size > PARTED
    if np.issubdtype(x.dtype, np.floating):
        x -= 2
        x[rng.random(x.shape) < 0.1] = -0.0
        x[rng.random(x.shape) < share] = np.nan
    got, places = top_k(np, x, np.array([7]), axis=1, largest=int(largest))
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
    rank = np.unique(np.where(missing, 1000, x.astype(np.float64)) + 0.0, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-rank if largest else rank, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(got, np.take_along_axis(x, order, axis=1))
    assert places.dtype == np.int64
    assert got.dtype == x.dtype
