"""What the provider puts in the place of CuPy's functions, over NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_cuda_products import cublas

from onnxplug_ep_cuda.kernels.products import factors
from onnxplug_ep_cuda.namespace import Namespace

XP = Namespace(np)
BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = np.array([[1.5, -0.0, np.nan], [2.5, -3.5, 1e-40]], BF16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: type) -> None:
    rng = np.random.default_rng(0)
    edges = [(5, np.inf), (-5, np.inf), (5, -np.inf), (0.0, -3), (-0.0, 3), (np.inf, 2), (1, 0), (np.nan, 1), (6, -3)]
    a = np.array([*(rng.standard_normal(500) * 10.0 ** rng.integers(-5, 9, 500)), *(x for x, _ in edges)], dtype)
    b = np.array([*rng.standard_normal(500), *(y for _, y in edges)], dtype)
    with np.errstate(all="ignore"):
        got, wanted = XP.remainder(a, b), np.remainder(a, b)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got)[wanted == 0], np.signbit(wanted)[wanted == 0])
    np.testing.assert_array_equal(XP.remainder(np.array([7, -7]), np.array([3, 3])), [1, 2])


def test_choices_of_bfloat16_are_bits() -> None:
    mask = np.array([[True], [False]])
    got = XP.where(mask, HALVES, np.asarray(2.0, BF16))
    assert got.dtype == BF16 and got[0].tobytes() == HALVES[0].tobytes() and (got[1] == 2).all()
    assert XP.where(mask, HALVES, 0.0).dtype == BF16
    assert XP.tril(HALVES, k=0)[1].tolist()[:2] == [2.5, -3.5] and XP.triu(HALVES, k=1)[1, 2] == HALVES[1, 2]
    assert XP.round(HALVES).dtype == BF16 and XP.round(HALVES)[1].tolist() == [2.0, -4.0, 0.0]
    assert XP.argsort(np.array([3, 1, 2], BF16)).tolist() == [1, 2, 0]


SHAPES = [
    ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)),
    ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((1, 3, 4), (7, 4, 5)), ((2, 3, 3, 4), (3, 4, 5)), ((4,), (4,)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_factors_of_any_layout_are_one_call(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for turned in range(4):
        a, b = (
            x if x.ndim < 2 or not turn else np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
            for x, turn in ((rng.standard_normal(left), turned & 1), (rng.standard_normal(right), turned & 2))
        )
        made = factors(np, a, b)
        assert made is not None
        x, y, call = made
        got = cublas(call, (np.ascontiguousarray(x), np.ascontiguousarray(y)))
        np.testing.assert_allclose(got, (a @ b).reshape(-1))
    assert factors(np, np.empty((0, 4)), np.empty((4, 5))) is None
