"""What cuBLAS is asked to multiply, checked against MatMul by a model of its column-major arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxplug_ep_cuda.kernels.products import TRANSPOSED, Product, compute_type, product


def matrix(flat: np.ndarray, offset: int, rows: int, columns: int, lead: int, operation: int) -> np.ndarray:
    """op(X) of a (rows, columns) result, X stored column by column with leading dimension ``lead``."""
    stored = (columns, rows) if operation == TRANSPOSED else (rows, columns)
    places = offset + np.arange(stored[0])[:, None] + np.arange(stored[1])[None, :] * lead
    return flat[places].T if operation == TRANSPOSED else flat[places]


def cublas(p: Product, operands: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The batched product as cuBLAS documents it, on flat memory."""
    y = np.empty(p.batch * p.m * p.n)
    left, right = operands[p.left].reshape(-1), operands[p.right].reshape(-1)
    for number in range(p.batch):
        a = matrix(left, number * p.left_stride, p.m, p.k, p.left_lead, p.left_op)
        b = matrix(right, number * p.right_stride, p.k, p.n, p.right_lead, p.right_op)
        y[number * p.m * p.n : (number + 1) * p.m * p.n] = (a @ b).T.reshape(-1)
    return y


SIZES = st.integers(1, 4)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a machine under load
@given(
    st.lists(SIZES, max_size=2), st.lists(SIZES, max_size=2), SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.integers(0, 99)
)  # fmt: skip
def test_products_of_any_shapes(
    batch_a: list[int], batch_b: list[int], m: int, k: int, n: int, trans_a: bool, trans_b: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((*batch_a, m, k)), rng.standard_normal((*batch_b, k, n))
    try:
        wanted = a @ b
    except ValueError:
        return
    given_a = np.ascontiguousarray(a.swapaxes(-1, -2)) if trans_a else a
    given_b = np.ascontiguousarray(b.swapaxes(-1, -2)) if trans_b else b
    found = product(given_a.shape, given_b.shape, trans_a=trans_a, trans_b=trans_b)
    if found is None:
        assert batch_a != batch_b  # broadcast axis by axis
        return
    np.testing.assert_allclose(cublas(found, (given_a, given_b)), wanted.reshape(-1))


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2))]
)
def test_vectors(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = np.arange(np.prod(a)).reshape(a) * 1.0, np.arange(np.prod(b)).reshape(b) + 1.0
    found = product(a, b)
    assert found is not None
    np.testing.assert_allclose(cublas(found, (x, y)), (x @ y).reshape(-1))


def test_weights_make_one_product_of_all_rows() -> None:
    found = product((8, 128, 768), (768, 3072))
    assert found is not None and (found.batch, found.n) == (1, 8 * 128)


def test_tf32_is_for_float32_only() -> None:
    import ml_dtypes

    f32, f16, f64, bf16 = map(np.dtype, (np.float32, np.float16, np.float64, ml_dtypes.bfloat16))
    assert (compute_type(f32, True), compute_type(f32, False)) == (77, 68)
    assert compute_type(f16, True) == compute_type(bf16, True) == 68 and compute_type(f64, True) == 70
    assert compute_type(np.dtype(np.int8), True) is None


@pytest.mark.parametrize(
    ("a", "b", "turned"),
    [
        ((2, 3), (4, 5), {}),
        ((3,), (4, 5), {}),
        ((6, 2, 3), (6, 4, 5), {}),
        ((3, 2), (2, 5), {"trans_a": True, "trans_b": True}),
    ],
)
def test_factors_that_do_not_go_together_are_no_product(
    a: tuple[int, ...], b: tuple[int, ...], turned: dict[str, bool]
) -> None:
    """cuBLAS, which knows no shapes, would read beside them."""
    assert product(a, b, **turned) is None
