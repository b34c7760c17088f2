"""Writing by index and reading element by element in generated code, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract.errors import Fail, InvalidArgument

node = helper.make_node
KINDS = [np.float32, np.int64, np.int32, np.bool_, np.int8, np.float64]
REDUCTIONS = ["none", "add", "mul", "max", "min"]
REDUCED = [np.float32, np.int64, np.int32]


def kind(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


@st.composite
def elements(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """(shape of data, shape of indices, axis, seed)."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    covered = [draw(st.integers(0, n)) for n in shape]
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    covered[axis] = draw(st.integers(0, 9))
    return tuple(shape), tuple(covered), axis, draw(st.integers(0, 99))


@settings(deadline=None, max_examples=40)
@given(elements(), st.sampled_from(REDUCTIONS), st.sampled_from(KINDS), st.sampled_from([np.int32, np.int64]))
def test_scatter_elements(case: tuple[Any, ...], reduction: str, dtype: Any, index: Any) -> None:
    shape, covered, axis, seed = case
    dtype = np.float32 if reduction != "none" and dtype not in REDUCED else dtype
    rng, size = np.random.default_rng(seed), shape[axis]
    x, u = numbers(rng, shape, dtype), numbers(rng, covered, dtype)
    i = rng.integers(-size, size, covered).astype(index)
    if reduction == "none":  # which of several updates lasts is not specified
        i = (
            (np.argsort(rng.random(covered), axis=axis) % size).astype(index)
            if covered[axis] <= size
            else np.abs(i) * 0
        )
        u = u if covered[axis] <= size else np.ones_like(u)
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)]
    feeds = {"x": x, "i": i, "u": u}
    check(model(nodes, feeds, ["y"], types={"y": kind(dtype)}), feeds)


@settings(deadline=None, max_examples=30)
@given(elements(), st.sampled_from(KINDS), st.sampled_from([np.int32, np.int64]))
def test_gather_elements(case: tuple[Any, ...], dtype: Any, index: Any) -> None:
    shape, covered, axis, seed = case
    rng, size = np.random.default_rng(seed), shape[axis]
    feeds = {"x": numbers(rng, shape, dtype), "i": rng.integers(-size, size, covered).astype(index)}
    nodes = [node("GatherElements", ["x", "i"], ["y"], axis=axis)]
    check(model(nodes, feeds, ["y"], types={"y": kind(dtype)}), feeds)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("axis", "perm"), [(0, [0, 1]), (1, [0, 1]), (0, [1, 0]), (1, [1, 0])])
@pytest.mark.parametrize("place", [(3, 5), (18, 36)])
def test_long_rows_of_indices(dtype: Any, index: Any, axis: int, perm: list[int], place: tuple[int, int]) -> None:
    """Whole vectors and a rest; an index out of range is found in either."""
    rng = np.random.default_rng(5)
    x, size = numbers(rng, (19, 37), dtype), (19, 37)[axis]
    feeds = {"x": x.transpose(perm).copy(), "i": rng.integers(-size, size, (19, 37)).astype(index)}
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), node("GatherElements", ["t", "i"], ["y"], axis=axis)]
    proto = model(nodes, feeds, ["y"], types={"y": kind(dtype)})
    check(proto, feeds)
    feeds["i"][place] = size
    with pytest.raises(Fail, match=f"{size} is no place on an axis"):
        session(proto).run(None, feeds)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.lists(st.integers(0, 4), max_size=2).map(tuple),
    st.data(), st.sampled_from(REDUCTIONS), st.sampled_from(KINDS),
)  # fmt: skip
def test_scatter_nd(shape: tuple[int, ...], lead: tuple[int, ...], data: Any, reduction: str, dtype: Any) -> None:
    dtype = np.float32 if reduction != "none" and dtype not in REDUCED else dtype
    depth = data.draw(st.integers(1, len(shape)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    i = np.stack([rng.integers(-n, n, lead) for n in shape[:depth]], -1)
    u = numbers(rng, (*lead, *shape[depth:]), dtype)
    if reduction == "none":
        u = np.ones_like(u)  # which of several updates lasts is not specified
    feeds = {"x": numbers(rng, shape, dtype), "i": i, "u": u}
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)]
    check(model(nodes, feeds, ["y"], types={"y": kind(dtype)}), feeds)


@pytest.mark.parametrize("declared", [True, False])
def test_tuples_of_no_indices_name_the_whole(declared: bool) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": numbers(rng, (3, 4), np.float32),
        "i": np.zeros((2, 0), np.int64),
        "u": numbers(rng, (2, 3, 4), np.float32),
    }
    proto = model([node("ScatterND", ["x", "i", "u"], ["y"])], feeds, ["y"])
    if not declared:
        proto.graph.input[1].type.tensor_type.ClearField("shape")
    for runtime in (onnxplug, pytest.importorskip("onnxruntime")):
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], feeds["u"][-1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_many_updates_of_long_slices(reduction: str) -> None:
    """Shared out over a slice's elements; sums are in the order of the updates, so that they equal the serial ones."""
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((40, 3, 1001), np.float32), rng.standard_normal((90, 3, 1001), np.float32)
    feeds = {"x": x, "i": rng.integers(-40, 40, (90, 1)), "u": u}
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)]
    proto = model(nodes, feeds, ["y"])
    expected = x.copy()
    for at, update in zip(feeds["i"][:, 0], u, strict=True):
        joined = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
        expected[at] = update if joined is None else joined(expected[at], update)
    for threads in (1, 2):
        np.testing.assert_array_equal(run_native(proto, feeds, threads=threads)[0], expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_updates_in_serial_order(axis: int, reduction: str) -> None:
    """The last of several updates lasts, and sums round as the serial ones."""
    rng = np.random.default_rng(1)
    x, u = rng.standard_normal((13, 40, 17), np.float32), rng.standard_normal((13, 40, 17), np.float32)
    i = rng.integers(-x.shape[axis], x.shape[axis], u.shape)
    expected = x.copy()
    for at in np.ndindex(*u.shape):
        to = (*at[:axis], i[at], *at[axis + 1 :])
        joined = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
        expected[to] = u[at] if joined is None else joined(expected[to], u[at])
    feeds = {"x": x, "i": i, "u": u}
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)]
    np.testing.assert_array_equal(run_native(model(nodes, feeds, ["y"]), feeds)[0], expected)


@pytest.mark.parametrize("operator", ["ScatterElements", "GatherElements"])
def test_an_index_that_is_broadcast_moves_rows(operator: str) -> None:
    rng = np.random.default_rng(2)
    x, u, i = rng.random((30, 37), np.float32), rng.random((50, 37), np.float32), rng.integers(-30, 30, (50, 1))
    if operator == "ScatterElements":
        move, feeds = node(operator, ["x", "j", "u"], ["y"], axis=0, reduction="add"), {"x": x, "i": i, "u": u}
    else:
        move, feeds = node(operator, ["x", "j"], ["y"], axis=0), {"x": x, "i": i}
    nodes = [node("Expand", ["i", "shape"], ["j"]), move]
    check(model(nodes, feeds, ["y"], {"shape": np.array([50, 37])}), feeds)


@pytest.mark.parametrize("reduction", ["max", "min", "add", "mul"])
def test_not_a_number_stays(reduction: str) -> None:
    x = np.array([[np.nan, 1, 2, 3, np.inf, 5, 6, 7, 8]], np.float32)
    u = np.array([[1, np.nan, 2, 9, -np.inf, 5, np.nan, 7, 8]], np.float32)
    feeds = {"x": x, "i": np.zeros((1, 1), np.int64), "u": u}
    check(model([node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)], feeds, ["y"]), feeds)
    feeds["i"] = np.zeros(x.shape, np.int64)
    check(model([node("ScatterElements", ["x", "i", "u"], ["y"], reduction=reduction)], feeds, ["y"]), feeds)


def test_into_a_part_of_a_concatenation_and_from_a_transposed_tensor() -> None:
    rng = np.random.default_rng(3)
    feeds = {"x": rng.random((5, 6), np.float32), "i": rng.integers(-6, 6, (6, 2)), "u": rng.random((6, 2), np.float32)}
    nodes = [
        node("Transpose", ["x"], ["t"]), node("ScatterElements", ["t", "i", "u"], ["s"], axis=0, reduction="max"),
        node("GatherElements", ["t", "i"], ["g"], axis=0), node("Concat", ["s", "g"], ["y"], axis=1),
        node("ScatterND", ["t", "n", "v"], ["z"]),
    ]  # fmt: skip
    constants = {"n": np.array([[1, 2]]), "v": np.array([7], np.float32)}
    check(model(nodes, feeds, ["y", "z"], constants), feeds)


@pytest.mark.parametrize("bad", [5, -6])
@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND", "GatherElements"])
def test_an_index_out_of_range_raises_and_the_next_run_is_right(operator: str, bad: int) -> None:
    rng = np.random.default_rng(4)
    x, u = rng.random((5, 7), np.float32), rng.random((3, 7), np.float32)
    i = np.array([[1], [4], [-5]]) if operator == "ScatterND" else rng.integers(-5, 5, (3, 7))
    feeds = {"x": x, "i": i} if operator == "GatherElements" else {"x": x, "i": i, "u": u}
    proto = model([node(operator, [*feeds], ["y"])], feeds, ["y"])
    made = session(proto)
    wrong = i.copy()
    wrong[1, 0] = bad
    refusal = Fail if operator == "GatherElements" else InvalidArgument  # as onnxruntime has it
    words = "is no place on an axis" if operator != "ScatterElements" else "must be within the inclusive range"
    with pytest.raises(refusal, match=f"{bad} {words}"):
        made.run(None, {**feeds, "i": wrong})
    check(proto, feeds)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_an_index_into_nothing_runs_no_code(operator: str, axis: int, caplog: pytest.LogCaptureFixture) -> None:
    """Generated code takes the first element for what an index out of range names: there is none, and it wrote over other memory."""
    shape, slices = ((0, 4), (1, 4)) if axis == 0 else ((4, 0), (4, 1))
    feeds = {"x": np.zeros(shape, np.float32), "i": np.zeros(slices, np.int64)}
    if operator.endswith("ND"):
        feeds["i"] = np.zeros((3, 2), np.int64)
    if operator.startswith("Scatter"):
        feeds["u"] = np.ones(feeds["i"].shape[: 1 if operator.endswith("ND") else 2], np.float32)
    attributes = {} if operator.endswith("ND") else {"axis": axis}
    made = session(model([node(operator, [*feeds], ["y"], **attributes)], feeds, ["y"]))
    with pytest.raises((Fail, InvalidArgument)):
        made.run(None, feeds)
    why = "there is nothing to take" if operator == "Gather" else "indices name something of no elements"
    assert why in caplog.text


def test_half_precision_and_the_older_name() -> None:
    rng = np.random.default_rng(5)
    x, u, i = rng.random((4, 6)).astype(np.float16), rng.random((3, 6)).astype(np.float16), rng.integers(0, 4, (3, 6))
    feeds = {"x": x, "i": i, "u": u}
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add")]
    check(model(nodes, feeds, ["y"], types={"y": TensorProto.FLOAT16}), feeds, rtol=1e-3)
    feeds = {"x": x.astype(np.float32), "i": np.array([[2, 1]]), "u": np.ones((1, 2), np.float32)}
    check(model([node("Scatter", ["x", "i", "u"], ["y"], axis=0)], feeds, ["y"], opset=10), feeds)
