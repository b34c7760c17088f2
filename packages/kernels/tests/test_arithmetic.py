"""What the backend data leaves out: operators' older versions, half precision, integer limits, empty tensors."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find
from onnxplug_kernels.special import erf


def run(op_type: str, version: int, *inputs: Any, domain: str = "", **attributes: Any) -> Any:
    entry = find(domain, op_type, version)
    assert entry is not None
    with np.errstate(all="ignore"):
        return entry.function(np, *inputs, **attributes)


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize(
    ("shape", "axis", "aligned"),
    [
        ((), None, ()),
        ((1, 1), None, (1, 1)),
        ((5,), None, (5,)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((4,), -2, (4, 1)),
    ],
)
def test_limited_broadcasting(version: int, shape: tuple[int, ...], axis: int | None, aligned: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=shape)
    np.testing.assert_array_equal(
        run("Sub", version, a, b, broadcast=1, axis=axis), a - np.reshape(b, aligned), strict=True
    )


def test_integer_division_rounds_toward_zero() -> None:
    low = np.iinfo(np.int32).min
    a, b = np.array([-7, 7, -7, 7, 6, -6, low], np.int32), np.array([2, -2, -2, 2, 3, 3, -1], np.int32)
    np.testing.assert_array_equal(run("Div", 14, a, b), np.array([-3, -3, 3, 3, 2, -2, low], np.int32), strict=True)
    np.testing.assert_array_equal(run("Mod", 13, a, b), np.array([1, -1, -1, 1, 0, 0, 0], np.int32), strict=True)
    truncated = np.array([-1, 1, -1, 1, 0, 0, 0], np.int32)
    np.testing.assert_array_equal(run("Mod", 13, a, b, fmod=1), truncated, strict=True)
    for op_type, attributes in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})):
        with pytest.raises(ValueError, match="Integer division by zero"):
            run(op_type, 13, a, np.array([2, 0, 1, 1, 1, 1, 1], np.int32), **attributes)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("bits", [8, 23, 31])
def test_products_of_integers_are_exact_or_wrap(dtype: Any, bits: int) -> None:
    """Sums that floats hold exactly are BLAS's; the largest ones that may come are no larger than the sums that do."""
    low, high = (0 if dtype is np.uint32 else -(1 << bits)), (1 << bits) - 1
    rng = np.random.default_rng(bits)
    a, b = (rng.integers(low, high, shape, endpoint=True).astype(dtype) for shape in ((2, 16, 32), (32, 24)))
    a[0, 0], b[:, 0] = high, high
    exact = a.astype(object) @ b.astype(object)
    limits = np.iinfo(dtype)
    wrapped = (exact - limits.min) % 2**limits.bits + limits.min
    np.testing.assert_array_equal(run("MatMul", 13, a, b), wrapped.astype(dtype), strict=True)


def test_float_remainders_at_zero_and_infinity() -> None:
    a = np.array([-4.0, 4.0, -1.0, 1.0, math.inf, 1.0])
    b = np.array([2.0, -2.0, math.inf, -math.inf, 2.0, 0.0])
    np.testing.assert_array_equal(run("Mod", 28, a, b), [0.0, -0.0, math.inf, -math.inf, math.nan, math.nan])
    truncated = run("Mod", 28, a, b, fmod=1)
    np.testing.assert_array_equal(truncated, [-0.0, 0.0, -1.0, 1.0, math.nan, math.nan])
    assert np.signbit(truncated[0])


def test_power_keeps_the_type_of_the_base() -> None:
    base, exponent = np.array([2, -1, -1, 1, 3, 2], np.int32), np.array([-1, -2, -3, -4, 2, 33], np.int64)
    np.testing.assert_array_equal(run("Pow", 15, base, exponent), np.array([0, 1, -1, 1, 9, 0], np.int32), strict=True)
    np.testing.assert_array_equal(
        run("Pow", 15, np.array([2, 9], np.int64), np.array([0.5, 0.5], np.float32)), np.array([1, 3]), strict=True
    )
    half = np.array([3], ml_dtypes.bfloat16)
    assert run("Pow", 15, half, np.array([2.0])).dtype == half.dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("op_type", "version", "attributes", "want"),
    [
        ("ReduceSum", 13, {}, 5000.0),
        ("ReduceL1", 18, {}, 5000.0),
        ("ReduceL2", 18, {}, math.sqrt(5000)),
        ("ReduceMean", 18, {}, 1.0),
        ("ReduceLogSumExp", 18, {}, 1 + math.log(5000)),
    ],
)
def test_half_precision_is_summed_in_float32(
    dtype: Any, op_type: str, version: int, attributes: dict[str, Any], want: float
) -> None:
    got = run(op_type, version, np.ones(5000, dtype), **attributes)
    np.testing.assert_array_equal(got, np.array([want]).astype(dtype), strict=True)


def test_half_precision_product_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4, 300)).astype(np.float16), rng.normal(size=(300, 5)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_almost_equal_nulp(run("MatMul", 13, a, b), exact.astype(np.float16), 1)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("op_type", "version", "dtype", "want"),
    [
        ("ReduceMax", 20, np.float32, -math.inf),
        ("ReduceMax", 20, np.int8, -128),
        ("ReduceMax", 20, np.bool_, False),
        ("ReduceMin", 20, np.float16, math.inf),
        ("ReduceMin", 20, np.uint8, 255),
        ("ReduceMin", 20, np.bool_, True),
        ("ReduceSum", 13, np.int32, 0),
        ("ReduceProd", 18, np.int64, 1),
        ("ReduceMean", 18, np.float32, 0),
        ("ReduceMean", 18, np.int32, 0),
        ("ReduceLogSum", 18, np.float64, -math.inf),
        ("ReduceLogSumExp", 18, np.float32, -math.inf),
    ],
)
def test_reduction_of_nothing(op_type: str, version: int, dtype: Any, want: Any, keepdims: int) -> None:
    got = run(op_type, version, np.zeros((2, 0, 3), dtype), np.array([-2]), keepdims=keepdims)
    np.testing.assert_array_equal(got, np.full((2, 1, 3) if keepdims else (2, 3), want, dtype), strict=True)


@pytest.mark.parametrize("op_type", ["ReduceL2", "ReduceLogSumExp"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_a_norm_beyond_its_type_is_the_largest_number(op_type: str, dtype: type) -> None:
    most = np.iinfo(dtype).max
    assert run(op_type, 18, np.full((1, 4), most, dtype), np.array([1]), keepdims=0).tolist() == [most]


def test_parts_of_which_the_last_would_be_less_than_nothing() -> None:
    assert [part.tolist() for part in run("Split", 18, np.arange(4), num_outputs=3, n_outputs=3)] == [
        [0, 1],
        [2, 3],
        [],
    ]
    with pytest.raises(ValueError, match="Split size 2 exceeds the remaining size of the selected axis, 1"):
        run("Split", 18, np.arange(5), num_outputs=4, n_outputs=4)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_the_place_in_a_scalar(op_type: str, last: int) -> None:
    np.testing.assert_array_equal(run(op_type, 13, np.array(2.0), select_last_index=last), np.int64(0), strict=True)


def test_no_axes_is_all_axes_or_none() -> None:
    x, none = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([], np.int64)
    assert run("ReduceSum", 13, x, none, keepdims=0) == 10
    assert run("ReduceSum", 1, x, keepdims=0) == 10
    np.testing.assert_array_equal(run("ReduceSumSquare", 18, x, none, noop_with_empty_axes=1), x * x)
    np.testing.assert_array_equal(run("ReduceSumSquare", 18, x, noop_with_empty_axes=1), x * x)


@pytest.mark.parametrize("version", [1, 11])
def test_softmax_over_a_matrix(version: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_allclose(run("Softmax", version, x).reshape(2, -1).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(run("LogSoftmax", version, x, axis=0)).sum(), 1)
    assert run("Hardmax", version, x, axis=1).sum() == 2
    assert run("Hardmax", 13, x, axis=1).sum() == 8


def test_clip_by_attributes() -> None:
    x = np.array([-math.inf, -2, 0, 2, math.inf, math.nan], np.float16)
    np.testing.assert_array_equal(run("Clip", 6, x), x, strict=True)
    np.testing.assert_array_equal(
        run("Clip", 1, x, min=-1.0, max=0.5), np.array([-1, -1, 0, 0.5, 0.5, math.nan], np.float16), strict=True
    )


def test_dropout_through_the_versions() -> None:
    x = np.ones((50, 50), np.float32)
    y, mask = run("Dropout", 6, x, is_test=1, n_outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == x.dtype
    y, mask = run("Dropout", 1, x, ratio=0.75, n_outputs=2)
    np.testing.assert_array_equal(y, mask * 4)
    assert 0.15 < mask.mean() < 0.35
    assert run("Dropout", 10, x, n_outputs=2)[1].dtype == bool
    training = (x, np.array(0.5), np.array(True))
    np.testing.assert_array_equal(run("Dropout", 22, *training, seed=7), run("Dropout", 13, *training, seed=7))
    assert not np.array_equal(run("Dropout", 22, *training), run("Dropout", 22, *training))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8])
def test_sign_of_a_negative_zero(dtype: Any) -> None:
    got = run("Sign", 13, np.array([-3, -0.0, 0, 2], dtype))
    assert got.astype(float).tolist() == [-1, 0, 0, 1]
    assert not np.signbit(got.astype(float)[1])


def test_attributes_do_not_set_the_time() -> None:
    x = np.ones((1, 3, 4), np.float32)
    np.testing.assert_allclose(run("LRN", 13, x, size=2**62), 1, rtol=1e-6)
    y = run("AveragePool", 22, x, kernel_shape=[3], auto_pad="SAME_UPPER", count_include_pad=0)
    np.testing.assert_array_equal(y, x)
    grams = {
        "mode": "TF",
        "ngram_counts": [0, 1],
        "ngram_indexes": [0, 1],
        "pool_int64s": [5, 5, 6],
        "max_skip_count": 2**62,
    }
    y = run("TfIdfVectorizer", 9, np.array([5, 7, 6]), min_gram_length=1, max_gram_length=2**62, **grams)
    assert y.tolist() == [1, 1]


def test_normalizing_nothing_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    run("LayerNormalization", 17, np.ones((2, 0), np.float32), np.ones(0, np.float32))
    assert not recwarn.list


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float64, 2), (np.float32, 8)])
def test_erf(dtype: Any, ulps: int) -> None:
    x = np.concatenate([np.linspace(-7, 7, 5001), np.geomspace(1e-30, 1, 500), [-0.0, math.inf, -math.inf]]).astype(
        dtype
    )
    got = erf(np, x)
    np.testing.assert_array_max_ulp(got, np.array([math.erf(v) for v in x], dtype), ulps)
    assert np.signbit(got[-3])
    assert np.isnan(erf(np, np.array([math.nan], dtype))[0])


@pytest.mark.parametrize("a_zero_point", [np.array(7, np.uint8), np.array([7, 8, 9], np.uint8)])
def test_integer_product_is_exact(a_zero_point: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (3, 70000), np.uint8), rng.integers(-128, 128, (70000, 2), np.int8)
    b_zero_point = np.array([-3, 5], np.int8)
    exact = (a.astype(int) - a_zero_point.reshape(-1, 1)) @ (b.astype(int) - b_zero_point)
    got = run("MatMulInteger", 10, a, b, a_zero_point, b_zero_point)
    np.testing.assert_array_equal(got, exact.astype(np.int32), strict=True)


def test_ignored_labels_do_not_count() -> None:
    scores = np.array([[math.log(0.25), math.log(0.75)], [-1.0, -1.0], [-math.inf, 0.0]], np.float32)
    labels = np.array([1, -1, -1])
    loss, log_probabilities = run("SoftmaxCrossEntropyLoss", 13, scores, labels, ignore_index=-1)
    np.testing.assert_allclose(loss, -math.log(0.75), rtol=1e-6)
    np.testing.assert_allclose(log_probabilities[::2], scores[::2], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
def test_distinct_elements_alone_are_those_with_places(dtype: Any) -> None:
    x = np.array([[3, 1, 0], [3, 0, 2]]).astype(dtype)
    if dtype is np.float32:
        x[0, 2] = -0.0
    (alone,), every = (run("Unique", 11, x, n_outputs=n)[: 1 if n == 1 else None] for n in (1, 4))
    np.testing.assert_array_equal(alone, every[0], strict=True)
    np.testing.assert_array_equal(np.signbit(alone), np.signbit(every[0]))


@pytest.mark.parametrize("shape", [(300,), (20, 30), (3, 1, 9, 40), (2, 0, 900)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_places_of_what_is_not_zero(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    if dtype == "float32":
        x[x == 1] *= np.nan
        x *= -1
    np.testing.assert_array_equal(run("NonZero", 13, x), np.stack(np.nonzero(x)), strict=True)


@pytest.mark.parametrize("length", [0, 2, 5, 9])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_conditions_of_any_length_compress(axis: int | None, length: int) -> None:
    x, condition = np.arange(30).reshape(5, 6)[::-1], np.arange(length) % 3 > 0
    seen = condition[: x.size if axis is None else x.shape[axis]]
    wanted = np.take(x, np.nonzero(seen)[0], axis=axis)
    np.testing.assert_array_equal(run("Compress", 11, x, condition, axis=axis), wanted, strict=True)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("sorted_", [0, 1])
def test_slices_of_a_vector_are_its_elements(axis: int, sorted_: int) -> None:
    x = np.array([2, np.nan, -0.0, 2, 0, -1, np.nan], np.float32)
    found, wanted = (run("Unique", 11, x, n_outputs=4, sorted=sorted_, axis=each) for each in (axis, None))
    for mine, each in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, each, strict=True)
    assert found[1].tolist() == ([5, 2, 0, 1] if sorted_ else [0, 1, 2, 5])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gelu_of_the_largest_number_is_finite(dtype: str, approximate: str) -> None:
    x = np.array([ml_dtypes.finfo(dtype).max], dtype)
    np.testing.assert_array_equal(run("Gelu", 20, x, approximate=approximate), x, strict=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_bound_of_clip_that_is_left_out_is_the_largest_finite_number(dtype: str) -> None:
    x, largest = np.array([-np.inf, np.inf, np.nan], dtype), ml_dtypes.finfo(dtype).max
    assert run("Clip", 13, x).tobytes() == np.array([-largest, largest, np.nan], dtype).tobytes()
