"""Reductions of generated code over any axes and layouts."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_models import check, model, run_native, session
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

node = helper.make_node
RNG = np.random.default_rng(8)
FLOAT = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    return shape, axes, draw(st.permutations(range(len(shape))))


@given(cases(), st.sampled_from([*FLOAT, "ReduceLogSumExp", "ReduceLogSum"]), st.booleans())
def test_any_axes(case: tuple[list[int], list[int], list[int]], op: str, keep: bool) -> None:
    shape, axes, perm = case
    x = (np.random.default_rng(0).random(shape) + 0.5).astype(np.float32)
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), node(op, ["t", "axes"], ["y"], keepdims=int(keep))]
    check(model(nodes, {"x": x}, ["y"], {"axes": np.array(axes)}), {"x": x}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 20000), 1), ((20000, 3), 0), ((40, 5000), 0), ((2, 9000, 3), 1), ((8193,), 0)]
)
def test_long_lines_are_summed_in_parts(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + np.float32(100)
    nodes = [node("Neg", ["x"], ["n"]), node("ReduceSum", ["n", "a"], ["s"]), node("ReduceMean", ["n", "a"], ["m"])]
    proto = model(nodes, {"x": x}, ["s", "m"], {"a": np.array([axis])})
    total, mean = run_native(proto, {"x": x})
    exact = -x.astype(np.float64)
    np.testing.assert_allclose(total, exact.sum(axis, keepdims=True), rtol=2e-6)
    np.testing.assert_allclose(mean, exact.mean(axis, keepdims=True), rtol=2e-6)
    again = [run_native(proto, {"x": x}, threads=threads)[0].tobytes() for threads in (1, 2)]
    assert again == [total.tobytes()] * 2


@given(
    cases(),
    st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"]),
    st.sampled_from([np.int64, np.int32]),
)
@settings(max_examples=30)
def test_integers(case: tuple[list[int], list[int], list[int]], op: str, dtype: type) -> None:
    assume((op, dtype) != ("ReduceMean", np.int64))  # not generated: its sum may pass 64 bits
    shape, axes, perm = case
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.random.default_rng(0).integers(-(2**40), 2**40, shape).astype(dtype)
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), node(op, ["t", "axes"], ["y"])]
    check(model(nodes, {"x": x}, ["y"], {"axes": np.array(axes)}, types={"y": kind}), {"x": x})


@given(cases(), st.sampled_from(FLOAT))
@settings(max_examples=20)
def test_doubles(case: tuple[list[int], list[int], list[int]], op: str) -> None:
    shape, axes, perm = case
    x = np.random.default_rng(0).random(shape) + 0.5
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), node(op, ["t", "axes"], ["y"])]
    proto = model(nodes, {"x": x}, ["y"], {"axes": np.array(axes)}, types={"y": TensorProto.DOUBLE})
    check(proto, {"x": x}, rtol=1e-12, atol=1e-15)


def test_a_mean_of_large_integers() -> None:
    """Those of 32 bits are summed with 64."""
    x = np.array([[2**31 - 1] * 40, [-(2**31)] * 40], np.int32)
    proto = model(
        [node("ReduceMean", ["x", "axes"], ["y"])],
        {"x": x},
        ["y"],
        {"axes": np.array([1])},
        types={"y": TensorProto.INT32},
    )
    assert run_native(proto, {"x": x}, 1)[0].tolist() == [[2**31 - 1], [-(2**31)]]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_a_mean_of_the_largest_integers(dtype: type) -> None:
    """It lies between its elements, whose sum has more than 64 bits."""
    info = np.iinfo(dtype)
    rows = [[info.max] * 3, [info.min] * 3, [info.max, info.max, info.min], [info.min, info.min, 1], [0, 1, info.max]]
    x, kind = np.array(rows, dtype), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)]
    proto = model(nodes, {"x": x}, ["y"], {"axes": np.array([1])}, types={"y": kind})
    want = [abs(total) // 3 * (1 if total > 0 else -1) for total in (sum(map(int, row)) for row in rows)]
    assert session(proto).run(None, {"x": x})[0].tolist() == want


@given(
    cases(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.int8, np.uint8]),
)
def test_arg_extremes(
    case: tuple[list[int], list[int], list[int]], largest: bool, last: bool, keep: bool, dtype: type
) -> None:
    shape, axes, perm = case
    x = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)
    if x.dtype.kind in "iu":
        x = np.where(x == 1, np.iinfo(dtype).min, np.where(x == 2, np.iinfo(dtype).max, x))
    op = node(
        "ArgMax" if largest else "ArgMin", ["t"], ["y"], axis=axes[0], keepdims=int(keep), select_last_index=int(last)
    )
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), op]
    check(model(nodes, {"x": x}, ["y"], types={"y": TensorProto.INT64}), {"x": x})


@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_of_odd_lines(axis: int) -> None:
    x = np.full((17, 18), -np.inf, np.float32)
    x[3, 5], x[4, 11], x[4, 12], x[7, :], x[9, 1:] = np.nan, np.nan, 3.0, 2.0, np.inf
    nodes = [
        node("Identity", ["x"], ["i"]), node("ArgMax", ["i"], ["a"], axis=axis), node("ArgMin", ["i"], ["b"], axis=axis),
        node("ReduceMax", ["i", "axes"], ["c"]), node("ReduceMin", ["i", "axes"], ["d"]),
    ]  # fmt: skip
    types = dict.fromkeys("ab", TensorProto.INT64)
    check(model(nodes, {"x": x}, list("abcd"), {"axes": np.array([axis])}, types=types), {"x": x})


def test_what_comes_before_is_part_of_it() -> None:
    x = np.random.default_rng(0).standard_normal((6, 37)).astype(np.float32)
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Mul", ["e", "x"], ["m"]),
        node("ReduceSum", ["m", "a"], ["s"]),
        node("Log", ["s"], ["y"]),
    ]
    check(model(nodes, {"x": np.abs(x)}, ["y"], {"a": np.array([-1])}), {"x": np.abs(x)})


@given(cases(), st.data())
def test_of_a_product_with_what_repeats(case: tuple[list[int], list[int], list[int]], data: st.DataObject) -> None:
    """Sums weighted by what all channels share (CARAFE): the tensor lies in another order than the weights, which repeat."""
    shape, axes, perm = case
    x = RNG.standard_normal(shape).astype(np.float32)
    turned = [shape[d] for d in perm]
    w = RNG.standard_normal([n if data.draw(st.booleans()) else 1 for n in turned]).astype(np.float32)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=perm),
        node("Sigmoid", ["w"], ["s"]),
        node("Mul", ["t", "s"], ["m"]),
        node("ReduceSum", ["m", "a"], ["y"]),
    ]
    feeds = {"x": x, "w": w}
    check(model(nodes, feeds, ["y"], {"a": np.array(axes)}), feeds, rtol=1e-4, atol=1e-5)


def test_weights_that_repeat_are_laid_like_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensor itself, which is many times larger, is not copied."""

    def refuse(*_: object) -> None:
        raise AssertionError("the operand was laid out anew")

    monkeypatch.setattr("onnxplug_ep_cpu.codegen.lower.reduce.write_map", refuse)
    x, w = RNG.standard_normal((1, 24, 24, 20 * 9)).astype(np.float32), RNG.standard_normal((1, 1, 9, 24, 24))
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("Mul", ["r", "w"], ["m"]),
        node("ReduceSum", ["m", "a"], ["y"], keepdims=0),
    ]
    feeds = {"x": x, "w": w.astype(np.float32)}
    proto = model(nodes, feeds, ["y"], {"a": np.array([2]), "shape": np.array([1, 20, 9, 24, 24])})
    check(proto, feeds, rtol=1e-4, atol=1e-5)


def test_empty_axes_and_empty_lines() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for noop in (0, 1):
        nodes = [node("Neg", ["x"], ["n"]), node("ReduceSumSquare", ["n"], ["y"], noop_with_empty_axes=noop)]
        check(model(nodes, {"x": x}, ["y"]), {"x": x})
    empty = np.zeros((3, 0, 2), np.float32)
    nodes = [node("Neg", ["x"], ["n"]), node("ReduceSum", ["n", "a"], ["y"]), node("ReduceProd", ["n", "a"], ["z"])]
    check(model(nodes, {"x": empty}, ["y", "z"], {"a": np.array([1])}), {"x": empty})


def test_axes_as_an_attribute() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    nodes = [node("Neg", ["x"], ["n"]), node("ReduceMean", ["n"], ["y"], axes=[0, -1], keepdims=0)]
    check(model(nodes, {"x": x}, ["y"], opset=13), {"x": x})
