"""Products and convolutions, in both forms, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opencl_models import PROVIDER, needs_device, one_node, reference, run

import onnxplug as ort
from onnxplug_ep_opencl.kernels import transposed

pytestmark = needs_device
FORMS = ("register", "local")
rng = np.random.default_rng(11)

SHAPES = [
    ((5, 7), (7, 3)),
    ((64, 70), (70, 50)),
    ((1, 33), (33, 100)),
    ((2, 3, 17, 20), (2, 3, 20, 19)),
    ((2, 1, 13, 9), (3, 9, 40)),
    ((4, 6, 8), (8, 16)),
    ((9,), (9, 5)),
    ((3, 6, 9), (9,)),
    ((7,), (7,)),
]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def close(got: np.ndarray, want: np.ndarray, magnitude: np.ndarray, depth: int) -> None:
    """|error| <= depth * eps * sum |a||b|: each addition rounds once, whatever its order."""
    assert got.shape == want.shape
    assert np.all(np.abs(got - want) <= (depth + 4) * np.finfo(got.dtype).eps * magnitude)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_products(a: tuple[int, ...], b: tuple[int, ...], constant: bool, form: str) -> None:
    x, w = normal(*a), normal(*b)
    model = one_node("MatMul", {"x": x, "w": w}, constants=("w",) if constant else ())
    (got,) = run(model, {"x": x, "w": w}, kernel_shape=form)
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    close(got, wide @ weights, np.abs(wide) @ np.abs(weights), a[-1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", [(), (21,), (13, 1), (13, 21)])
def test_scaled_products_with_a_sum(turned: tuple[int, int], bias: tuple[int, ...], constant: bool, form: str) -> None:
    a, b, c = normal(13, 30), normal(30, 21), normal(*bias)
    feeds = {"a": a.T.copy() if turned[0] else a, "b": b.T.copy() if turned[1] else b, "c": c}
    model = one_node(
        "Gemm", feeds, constants=("b", "c") if constant else (), transA=turned[0], transB=turned[1], alpha=0.5, beta=2.0
    )
    (got,) = run(model, feeds, kernel_shape=form)
    wide = [v.astype(np.float64) for v in (a, b, c)]
    close(got, 0.5 * wide[0] @ wide[1] + 2 * wide[2], 0.5 * np.abs(wide[0]) @ np.abs(wide[1]) + 2 * np.abs(wide[2]), 30)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_deep_products(dtype: Any, constant: bool, turned: tuple[int, int]) -> None:
    """Multiplied part by part; work-items take several panels of columns, the last of which is not whole."""
    a, b = (rng.integers(-9, 9, shape) / 8 for shape in ((29, 700), (700, 150)))
    if dtype == np.int32:
        a, b = a * 8, b * 8
    feeds = {"a": (a.T if turned[0] else a).astype(dtype), "b": (b.T if turned[1] else b).astype(dtype)}
    model = one_node("Gemm", feeds, constants=("b",) if constant else (), transA=turned[0], transB=turned[1])
    (got,) = run(model, feeds)
    np.testing.assert_array_equal(got, (a @ b).astype(dtype))  # sums of eighths, exact in float32


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 80, 7, 19), (21, 80, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 500, 3, 5), (9, 500, 1, 1), {}),
        ((2, 800, 9, 9), (14, 400, 1, 1), {"group": 2, "strides": [2, 2]}),
        ((1, 100, 4, 5, 6), (7, 100, 2, 2, 2), {}),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_deep_convolutions(constant: bool, x: Any, w: Any, attributes: dict[str, Any]) -> None:
    feeds = {"x": normal(*x), "w": normal(*w), "b": normal(w[0])}
    model = one_node("Conv", feeds, constants=("w", "b") if constant else (), **attributes)
    (got,) = run(model, feeds)
    want = reference("Conv", feeds, **attributes)
    magnitude = reference("Conv", {n: np.abs(a) for n, a in feeds.items()}, **attributes)
    close(got, want, magnitude, int(np.prod(w[1:])))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint64])
def test_products_of_other_types(dtype: Any, form: str) -> None:
    if np.issubdtype(dtype, np.integer):
        x, w = rng.integers(0, 100, (9, 20)).astype(dtype), rng.integers(0, 100, (20, 35)).astype(dtype)
    else:
        x, w = normal(9, 20, dtype=dtype), normal(20, 35, dtype=dtype)
    for constants in ((), ("w",)):
        (got,) = run(one_node("MatMul", {"x": x, "w": w}, constants=constants), {"x": x, "w": w}, kernel_shape=form)
        assert got.dtype == dtype
        if np.issubdtype(dtype, np.integer):
            np.testing.assert_array_equal(got, x @ w)
        else:
            wide, weights = x.astype(np.float64), w.astype(np.float64)
            close(got, wide @ weights, np.abs(wide) @ np.abs(weights), 20)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("constants", [(), ("w",)])
@pytest.mark.parametrize(
    ("a", "b"), [((0, 5), (5, 3)), ((4, 0), (0, 3)), ((3,), (0, 3, 0)), ((0,), (0,)), ((2, 0, 3), (2, 3, 4))]
)
def test_products_of_nothing(a: tuple[int, ...], b: tuple[int, ...], constants: Any, form: str) -> None:
    x, w = normal(*a), normal(*b)
    (got,) = run(one_node("MatMul", {"x": x, "w": w}, constants=constants), {"x": x, "w": w}, kernel_shape=form)
    assert got.shape == (x @ w).shape and not got.any()


CONVOLUTIONS = [
    ((2, 3, 20, 19), (8, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 5, 30, 28), (13, 5, 3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
    ((1, 4, 17, 33), (6, 4, 5, 3), {"dilations": [2, 3], "strides": [1, 3]}),
    ((2, 8, 14, 14), (12, 8, 1, 1), {}),
    ((1, 8, 15, 15), (12, 8, 1, 1), {"strides": [2, 2]}),
    ((1, 8, 3, 3), (12, 8, 1, 1), {"strides": [2, 2], "pads": [0, 0, 3, 3]}),  # as large as the image
    ((2, 6, 16, 40), (12, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    ((1, 7, 18, 41), (7, 1, 3, 3), {"group": 7, "pads": [1, 1, 1, 1]}),
    ((1, 7, 18, 70), (14, 1, 3, 3), {"group": 7, "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((2, 4, 50), (9, 4, 7), {"auto_pad": "SAME_UPPER", "strides": [3]}),
    ((2, 3, 64, 49), (7, 3, 16, 16), {"strides": [16, 16]}),
    ((1, 2, 40, 60), (5, 2, 6, 5), {"strides": [7, 12], "dilations": [3, 5], "pads": [2, 0, 1, 9]}),
    ((1, 2, 6, 7, 8), (5, 2, 3, 2, 3), {"pads": [1, 0, 1, 1, 1, 2]}),
    ((1, 1, 3, 2), (4, 1, 3, 3), {"pads": [2, 2, 2, 2]}),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_convolutions(x: Any, w: Any, attributes: dict[str, Any], bias: bool, form: str) -> None:
    feeds = {"x": normal(*x), "w": normal(*w)} | ({"b": normal(w[0])} if bias else {})
    want, magnitude = (
        reference("Conv", values, **attributes) for values in (feeds, {n: np.abs(a) for n, a in feeds.items()})
    )
    for constants in ((), ("w", "b") if bias else ("w",)):
        (got,) = run(one_node("Conv", feeds, constants=constants, **attributes), feeds, kernel_shape=form)
        close(got, want, magnitude, int(np.prod(w[1:])))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_convolutions_of_groups(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    window, steps, gaps = ([data.draw(st.integers(1, top)) for _ in range(rank)] for top in (3, 3, 2))
    pads = [data.draw(st.integers(0, 3)) for _ in range(2 * rank)]
    spatial = [data.draw(st.integers(7, 75)) for _ in range(rank)]
    groups, own, each = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 4))
    type_ = data.draw(st.sampled_from([np.float32, np.float16, np.float64]))
    feeds = {
        "x": normal(2, groups * own, *spatial).astype(type_),
        "w": normal(groups * each, own, *window).astype(type_),
        "b": normal(groups * each).astype(type_),
    }
    attributes = {"group": groups, "strides": steps, "dilations": gaps, "pads": pads}
    (got,) = run(one_node("Conv", feeds, constants=("w",), **attributes), feeds, kernel_shape="register")
    wide = {n: a.astype(np.float64) for n, a in feeds.items()}
    want, magnitude = (reference("Conv", v, **attributes) for v in (wide, {n: np.abs(a) for n, a in wide.items()}))
    # sums in float32 or wider, rounded once to the result's type
    error = (own * np.prod(window) + 2) * np.finfo(np.promote_types(type_, np.float32)).eps * magnitude
    assert np.all(np.abs(got - want) <= error + np.finfo(type_).eps * np.abs(want))


def test_many_rows_of_single_channels() -> None:
    feeds = {"x": normal(1, 2, 300, 200), "w": normal(2, 1, 5, 5), "b": normal(2)}
    attributes = {"group": 2, "pads": [2, 2, 2, 2]}
    (got,) = run(one_node("Conv", feeds, **attributes), feeds, kernel_shape="register")
    magnitude = reference("Conv", {n: np.abs(a) for n, a in feeds.items()}, **attributes)
    close(got, reference("Conv", feeds, **attributes), magnitude, 25)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 3, 5, 6), (3, 4, 3, 3), {}),
        ((2, 4, 5, 6), (4, 3, 3, 2), {"strides": [2, 3], "group": 2, "output_padding": [1, 1]}),
        ((1, 2, 7), (2, 3, 4), {"strides": [2], "pads": [1, 1], "dilations": [2]}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 2, 3, 2, 4), (2, 3, 2, 3, 2), {"strides": [2, 1, 3], "pads": [0, 1, 0, 1, 1, 2]}),
        ((3, 2, 40, 50), (2, 40, 3, 3), {"strides": [2, 2]}),  # columns of one image at a time
    ],
)
@pytest.mark.parametrize("constants", [(), ("w",)])
@pytest.mark.parametrize("form", FORMS)
def test_transposed_convolutions(
    x: Any, w: Any, attributes: dict[str, Any], constants: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transposed, "_COLUMNS", 1 << 20)
    feeds = {"x": normal(*x), "w": normal(*w), "b": normal(w[1] * attributes.get("group", 1))}
    want, magnitude = (
        reference("ConvTranspose", v, **attributes) for v in (feeds, {n: np.abs(a) for n, a in feeds.items()})
    )
    (got,) = run(one_node("ConvTranspose", feeds, constants=constants, **attributes), feeds, kernel_shape=form)
    close(got, want, magnitude, int(x[1] * np.prod(w[2:])))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("MaxPool", {"kernel_shape": [2, 3], "dilations": [2, 2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1, "strides": [2, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER", "ceil_mode": 0}),
        ("AveragePool", {"kernel_shape": [19, 45], "strides": [2, 2]}),
        ("AveragePool", {"kernel_shape": [19, 45], "pads": [0, 0, 1, 0], "count_include_pad": 1, "strides": [2, 1]}),
        ("LpPool", {"kernel_shape": [3, 3], "p": 2}),
        ("LpPool", {"kernel_shape": [3, 3], "p": 3, "strides": [3, 2]}),
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
    ],
)
def test_pooling(operator: str, attributes: dict[str, Any], form: str) -> None:
    feeds = {"x": normal(2, 3, 19, 45)}
    (got,) = run(one_node(operator, feeds, **attributes), feeds, kernel_shape=form)
    # ``reference`` computes in double precision; a window has at most 45 * 19 elements
    close(
        got,
        reference(operator, feeds, **attributes),
        np.float64(4.0),
        9 if max(attributes.get("kernel_shape", [45])) < 9 else 19 * 45,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 50), {"kernel_shape": [3]}),
        ((1, 2, 7, 67), {"kernel_shape": [3, 5], "strides": [1, 2], "pads": [1, 2, 1, 2]}),
        ((1, 2, 9, 80), {"kernel_shape": [2, 3], "strides": [2, 3], "dilations": [1, 2]}),
        ((1, 1, 5, 2100), {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 2, 0, 1]}),
        ((2, 1, 4, 23), {"kernel_shape": [3, 9], "strides": [1, 1], "pads": [2, 8, 2, 8], "dilations": [1, 2]}),
        ((1, 2, 5, 4, 33), {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 0, 1, 0]}),
    ],
)
def test_maxima_of_strips(shape: tuple[int, ...], attributes: dict[str, Any], dtype: Any) -> None:
    """Rows of several strips, of which those in the middle are vectors: the same numbers as in float64; NaN is the largest."""
    x = (rng.integers(0, 100, shape) + (0 if dtype == np.uint8 else -50)).astype(dtype)
    if x.dtype.kind == "f":
        x[..., 20] = np.nan
    (got,) = run(one_node("MaxPool", {"x": x}, **attributes), {"x": x})
    want = reference("MaxPool", {"x": x.astype(np.float64)}, **attributes)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_positions_of_maxima(storage_order: int) -> None:
    feeds = {"x": normal(2, 3, 9, 33)}
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "storage_order": storage_order}
    got, places = run(one_node("MaxPool", feeds, outputs=2, **attributes), feeds)
    planes = feeds["x"].reshape(6, 9, 33)
    order = planes.swapaxes(1, 2) if storage_order else planes
    np.testing.assert_array_equal(order.reshape(-1)[places], got)


@pytest.mark.parametrize(("beta", "owner"), [(3.0, PROVIDER), (0.25, "CPUExecutionProvider")])
def test_integers_are_scaled_by_whole_numbers(beta: float, owner: str) -> None:
    """Others the next provider takes, which scales in double precision."""
    a, b, c = (rng.integers(-9, 10, (3, 3)).astype(np.int32) for _ in range(3))
    model = one_node("Gemm", {"a": a, "b": b, "c": c}, alpha=2.0, beta=beta)
    session = ort.InferenceSession(model, providers=[PROVIDER, "CPUExecutionProvider"])
    assert [*session.placement().values()] == [owner]
    reasons = session.explain().nodes[0]["reasons"]
    assert owner == PROVIDER or reasons[PROVIDER] == "alpha and beta of integers are whole numbers only"
    (got,) = session.run(None, {"a": a, "b": b, "c": c})
    np.testing.assert_array_equal(got, np.trunc(2.0 * (a @ b) + beta * c).astype(np.int32))


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [
        ("ibh,hnd->ibnd", (5, 2, 12), (12, 3, 4)),
        ("ibnd,jbnd->bnij", (5, 2, 3, 8), (7, 2, 3, 8)),
        ("bhwc,wkc->bhwk", (2, 3, 4, 8), (4, 5, 8)),
        ("ibnd,hnd->ibh", (5, 2, 3, 4), (6, 3, 4)),
        ("...ij,...kj", (2, 1, 3, 4), (1, 5, 6, 4)),
        ("iid,jd->ji", (3, 3, 4), (5, 4)),
        ("ij,jk->ikj", (3, 4), (4, 5)),
        ("i,i->", (7,), (7,)),
    ],
)
def test_einsum(equation: str, a: Any, b: Any, form: str) -> None:
    rng = np.random.default_rng(0)
    inputs = {"a": rng.standard_normal(a).astype(np.float32), "b": rng.standard_normal(b).astype(np.float32)}
    (got,) = run(one_node("Einsum", inputs, equation=equation), inputs, kernel_shape=form)
    right = reference("Einsum", inputs, equation=equation)
    assert got.shape == right.shape
    np.testing.assert_allclose(got, right, rtol=0, atol=16 * 2.0**-23 * np.abs(right).max())


def test_einsum_of_other_kinds() -> None:
    x = {"a": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    np.testing.assert_array_equal(run(one_node("Einsum", x, equation="abc->cab"), x)[0], x["a"].transpose(2, 0, 1))
    whole = {"a": np.arange(6).reshape(2, 3).astype(np.int32), "b": np.arange(12).reshape(3, 4).astype(np.int32)}
    np.testing.assert_array_equal(
        run(one_node("Einsum", whole, equation="ij,jk->ik"), whole)[0], whole["a"] @ whole["b"]
    )
    for equation, reason in (("ijk->ij", "k of one operand"), ("ijk->k", "of one operand is summed up")):
        session = ort.InferenceSession(
            one_node("Einsum", x, equation=equation), providers=[PROVIDER, "CPUExecutionProvider"]
        )
        assert reason in session.explain().nodes[0]["reasons"][PROVIDER]


def test_depthwise_windows_of_many_elements() -> None:
    """All of which are in the text, under names that must be no types of it."""
    inputs = {
        "x": rng.standard_normal((1, 2, 9, 20)).astype(np.float32),
        "w": rng.standard_normal((2, 1, 7, 7)).astype(np.float32),
    }
    model = one_node("Conv", inputs, constants=["w"], group=2, pads=[3, 3, 3, 3])
    (got,) = run(model, inputs, kernel_shape="register")
    right = reference("Conv", inputs, group=2, pads=[3, 3, 3, 3])
    np.testing.assert_allclose(got, right, rtol=0, atol=49 * 2.0**-23 * np.abs(right).max())


@pytest.mark.parametrize("depth", [5, 700])
@pytest.mark.parametrize("columns", [9, 17, 40])
def test_panels_with_few_columns(columns: int, depth: int) -> None:
    """Of the last panel only half the vectors are computed where that is enough."""
    a, b = ((rng.integers(-9, 9, shape) / 8).astype(np.float32) for shape in ((19, depth), (depth, columns)))
    for constants in ((), ("a",), ("b",)):
        (got,) = run(one_node("MatMul", {"a": a, "b": b}, constants=constants), {"a": a, "b": b})
        np.testing.assert_array_equal(got, a @ b)  # sums of eighths, exact in float32
    feeds = {"x": b.reshape(1, depth, 1, columns), "w": a[..., None, None]}
    (got,) = run(one_node("Conv", feeds, constants=("w",)), feeds)
    np.testing.assert_array_equal(got[0, :, 0], a @ b)
