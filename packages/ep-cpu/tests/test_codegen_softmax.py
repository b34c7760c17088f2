"""Softmax and LogSoftmax of generated code."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_models import check, model, run_native
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

node = helper.make_node


def exact(x: np.ndarray, axis: int, log: bool) -> np.ndarray:
    x = x.astype(np.float64)
    shifted = x - x.max(axis, keepdims=True)
    e = np.exp(shifted)
    return shifted - np.log(e.sum(axis, keepdims=True)) if log else e / e.sum(axis, keepdims=True)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda s: np.prod(s) < 20000),
    st.integers(-4, 3),
    st.booleans(),
    st.randoms(),
)
def test_any_axis_and_layout(shape: list[int], axis: int, log: bool, random: object) -> None:
    axis %= len(shape)
    rng = np.random.default_rng(0)
    x = (5 * rng.standard_normal(shape)).astype(np.float32)
    perm = [int(d) for d in rng.permutation(len(shape))]
    nodes = [
        node("Transpose", ["x"], ["t"], perm=perm),
        node("LogSoftmax" if log else "Softmax", ["t"], ["y"], axis=axis),
    ]
    (got,) = run_native(model(nodes, {"x": x}, ["y"]), {"x": x})
    np.testing.assert_allclose(got, exact(x.transpose(perm), axis, log), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 64, 1001, 5000])
def test_scaled_and_masked_scores(columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((2, 3, 5, columns)).astype(np.float32)
    mask = np.where(rng.random((2, 1, 1, columns)) < 0.5, np.float32(-3.4e38), np.float32(0))
    nodes = [node("Mul", ["x", "scale"], ["s"]), node("Add", ["s", "mask"], ["m"]), node("Softmax", ["m"], ["y"])]
    (got,) = run_native(
        model(nodes, {"x": x, "mask": mask}, ["y"], {"scale": np.float32(0.125)}), {"x": x, "mask": mask}
    )
    with np.errstate(over="ignore"):
        scores = (x * np.float32(0.125) + mask).astype(np.float64)
    np.testing.assert_allclose(got, exact(scores, -1, False), rtol=1e-4, atol=1e-6)


def test_what_follows_is_part_of_it() -> None:
    x = np.random.default_rng(0).standard_normal((6, 37)).astype(np.float32)
    x[2] = -np.inf
    nodes = [
        node("Softmax", ["x"], ["s"]), node("IsNaN", ["s"], ["n"]), node("Where", ["n", "zero", "s"], ["w"]),
        node("Mul", ["w", "k"], ["y"]),
    ]  # fmt: skip
    k = np.arange(37, dtype=np.float32)
    (got,) = check(model(nodes, {"x": x}, ["y"], {"zero": np.float32(0), "k": k}), {"x": x})
    assert not got[2].any()


def test_odd_rows() -> None:
    x = np.array(
        [[np.nan, 1, 2], [np.inf, 0, 1], [-np.inf, 0, 0], [-np.inf] * 3, [1e38, -1e38, 0], [88, 89, -200]], np.float32
    )
    nodes = [node("Identity", ["x"], ["i"]), node("Neg", ["i"], ["n"]), node("Neg", ["n"], ["m"])]
    for op in ("Softmax", "LogSoftmax"):
        check(model([*nodes, node(op, ["m"], ["y"])], {"x": x}, ["y"]), {"x": x})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_before_version_13_dimensions_are_flattened(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    nodes = [node("Neg", ["x"], ["n"]), node("Softmax", ["n"], ["y"], axis=axis)]
    check(model(nodes, {"x": x}, ["y"], opset=11), {"x": x})


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (2, 0, 3)])
def test_empty(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    (got,) = run_native(model([node("Neg", ["x"], ["n"]), node("Softmax", ["n"], ["y"])], {"x": x}, ["y"]), {"x": x})
    assert got.shape == shape


def test_what_is_hidden_weighs_nothing() -> None:
    x = np.linspace(0, 5, 20, dtype=np.float32).reshape(2, 10)
    x[:, 3:7] = -np.inf
    (got,) = run_native(model([node("Softmax", ["x"], ["y"])], {"x": x}, ["y"]), {"x": x})
    np.testing.assert_array_equal(got[:, 3:7], 0.0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax(axis: int) -> None:
    """The first of equal elements, NaN before all others; also with a zero size."""
    x = np.random.default_rng(axis).integers(0, 4, (3, 17, 5)).astype(np.float32)
    x[1, 2, 3] = np.nan
    check(model([node("Neg", ["x"], ["n"]), node("Hardmax", ["n"], ["y"], axis=axis)], {"x": x}, ["y"]), {"x": x})
    empty = np.zeros((3, 0, 5), np.float32)
    check(model([node("Hardmax", ["x"], ["y"], axis=axis)], {"x": empty}, ["y"]), {"x": empty})


@pytest.mark.parametrize("shape", [(100, 2), (64, 15), (70, 2, 5), (3, 40, 7), (5, 33, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_short_lines(shape: tuple[int, ...], dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    x[1, -1] = np.nan
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Mul", ["x", "x"], ["q"])]
    nodes += [helper.make_node(op, [source], [op], axis=-1) for op, source in (("Softmax", "x"), ("LogSoftmax", "q"))]
    nodes += [helper.make_node(op, ["a"], [op], axis=-1, keepdims=0) for op in ("ArgMax", "ArgMin")]
    nodes += [helper.make_node("Add", ["Softmax", "x"], ["sum"])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = ["Softmax", "LogSoftmax", "ArgMax", "ArgMin", "sum"]
    types = {name: TensorProto.INT64 if name.startswith("Arg") else kind for name in names}
    softmax, log, largest, least, added = run_native(model(nodes, {"x": x}, names, types=types), {"x": x})
    np.testing.assert_allclose(softmax, exact(x, -1, False), rtol=1e-5)
    np.testing.assert_allclose(added, exact(x, -1, False) + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log, exact(x * x, -1, True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(largest, np.argmax(abs(x), -1))
    np.testing.assert_array_equal(least, np.argmin(abs(x), -1))
