"""Views and copies of generated code: slices, splits, broadcasts, gathers, concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native, session
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract.errors import InvalidArgument

node = helper.make_node
KINDS = [np.float32, np.int64, np.int32, np.bool_]


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


def kind(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int, int]]]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    step = st.integers(-3, 3).filter(bool)
    return shape, [(draw(st.integers(-12, 12)), draw(st.integers(-12, 12)), axis, draw(step)) for axis in axes]


@given(slices(), st.sampled_from(KINDS))
def test_slice(case: tuple[list[int], list[tuple[int, int, int, int]]], dtype: Any) -> None:
    shape, parts = case
    x = numbers(*shape, dtype=dtype)
    constants = {
        name: np.array([p[i] for p in parts], np.int64) for i, name in enumerate(("starts", "ends", "axes", "steps"))
    }
    nodes = [node("Slice", ["x", *constants], ["s"]), node("Concat", ["s", "s"], ["y"], axis=0)]
    check(model(nodes, {"x": x}, ["y"], constants, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("width", [9, 40, 133])
def test_every_so_manieth(step: int, dtype: Any, width: int) -> None:
    x = numbers(3, 5, width, dtype=dtype)
    constants = {"s": np.array([1, 1]), "e": np.array([5, width]), "a": np.array([1, 2]), "t": np.array([2, step])}
    nodes = [node("Slice", ["x", *constants], ["y"])]
    check(model(nodes, {"x": x}, ["y"], constants, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("width", [2, 3, 4, 9, 41])
def test_mirrored(axis: int, dtype: Any, width: int) -> None:
    x = numbers(2, 5, 37, width, dtype=dtype)
    constants = {"s": np.array([2, -1]), "e": np.array([5, -100]), "a": np.array([1, axis]), "t": np.array([1, -1])}
    nodes = [node("Slice", ["x", *constants], ["y"])]
    check(model(nodes, {"x": x}, ["y"], constants, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("order", [[2, 1, 0], [-2, 0, -1], [0, 0, 2, 1], [6, 5, 3, 1, 1, 0, -7], [3, *range(8)]])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_pixels_whose_elements_take_another_order(order: list[int], dtype: Any) -> None:
    x = numbers(2, 37, len(order), dtype=dtype)
    nodes = [node("Gather", ["x", "order"], ["y"], axis=-1)]
    check(model(nodes, {"x": x}, ["y"], {"order": np.array(order)}, types={"y": kind(dtype)}), {"x": x})


def test_slice_by_attributes() -> None:
    x = numbers(5, 6)
    nodes = [node("Slice", ["x"], ["s"], starts=[1, -3], ends=[4, 100]), node("Neg", ["s"], ["y"])]
    check(model(nodes, {"x": x}, ["y"], opset=9), {"x": x})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split(axis: int) -> None:
    x = numbers(6, 9, 12)
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b", "c"], axis=axis),
        node("Add", ["a", "b"], ["d"]),
        node("Neg", ["c"], ["e"]),
    ]
    third = x.shape[axis] // 3
    check(model(nodes, {"x": x}, ["d", "e", "b"], {"sizes": np.array([third] * 3)}), {"x": x})


@pytest.mark.parametrize("opset", [7, 10, 13])
def test_dropout_whose_mask_is_left_out(opset: int) -> None:
    x = numbers(3, 5)
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL  # which would remove it
    made = model([node("Dropout", ["x"], ["d", ""]), node("Neg", ["d"], ["y"])], {"x": x}, ["y"], opset=opset)
    (y,) = onnxplug.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(y, -x)


@pytest.mark.parametrize("dtype", KINDS)
def test_expand_tile_and_transpose(dtype: Any) -> None:
    x = numbers(3, 1, 5, dtype=dtype)
    nodes = [
        node("Expand", ["x", "shape"], ["e"]), node("Transpose", ["e"], ["t"], perm=[3, 0, 2, 1]),
        node("Tile", ["t", "times"], ["u"]), node("Concat", ["u", "u"], ["y"], axis=2), node("Tile", ["x", "x_times"], ["z"]),
    ]  # fmt: skip
    constants = {"shape": np.array([2, 1, 4, 1]), "times": np.array([1, 3, 2, 1]), "x_times": np.array([2, 1, 2])}
    check(model(nodes, {"x": x}, ["y", "z"], constants, types=dict.fromkeys("yz", kind(dtype))), {"x": x})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_gather(axis: int, dtype: Any, index: Any) -> None:
    x, i = numbers(5, 6, 19, dtype=dtype), np.array([[0, -1, 2], [-5, 4, 1]], index)
    nodes = [node("Gather", ["x", "i"], ["g"], axis=axis), node("Concat", ["g", "g"], ["y"], axis=0)]
    check(model(nodes, {"x": x, "i": i}, ["y"], types={"y": kind(dtype)}), {"x": x, "i": i})


def test_gather_of_a_transposed_tensor_by_one_constant() -> None:
    x = numbers(4, 5, 6)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 1]), node("Gather", ["t", "last"], ["g"], axis=1), node("Neg", ["g"], ["y"]),
        node("Gather", ["t", "some"], ["h"], axis=0), node("Neg", ["h"], ["z"]),
    ]  # fmt: skip
    check(model(nodes, {"x": x}, ["y", "z"], {"last": np.array(-1), "some": np.array([3, 0])}), {"x": x})


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gather_nd(depth: int) -> None:
    x = numbers(4, 5, 6)
    i = np.random.default_rng(1).integers(-4, 4, (2, 3, depth))
    nodes = [node("GatherND", ["x", "i"], ["g"]), node("Neg", ["g"], ["y"])]
    check(model(nodes, {"x": x, "i": i}, ["y"]), {"x": x, "i": i})


@pytest.mark.parametrize(("batch", "depth"), [(1, 1), (1, 2), (2, 1)])
def test_gather_nd_of_batches(batch: int, depth: int) -> None:
    """Each batch has indices of its own."""
    x = numbers(2, 3, 5)
    i = np.random.default_rng(1).integers(-3, 3, (2, 3, depth))
    nodes = [node("GatherND", ["x", "i"], ["g"], batch_dims=batch), node("Neg", ["g"], ["y"])]
    check(model(nodes, {"x": x, "i": i}, ["y"]), {"x": x, "i": i})


@pytest.mark.parametrize("bad", [5, -6])
def test_an_index_out_of_range_raises_and_the_next_run_is_right(bad: int) -> None:
    x, i = numbers(5, 700), np.arange(-5, 5)
    made = session(model([node("Gather", ["x", "i"], ["g"]), node("Neg", ["g"], ["y"])], {"x": x, "i": i}, ["y"]))
    wrong = i.copy()
    wrong[7] = bad
    with pytest.raises(InvalidArgument, match=rf"idx={bad} must be within the inclusive range \[-5,4\]"):
        made.run(None, {"x": x, "i": wrong})
    np.testing.assert_array_equal(made.run(None, {"x": x, "i": i})[0], -x[i])


def test_concatenation_of_masks_and_positions() -> None:
    m, p = numbers(2, 3, dtype=np.bool_), numbers(2, 4, dtype=np.int64)
    nodes = [
        node("Not", ["m"], ["n"]), node("Concat", ["n", "m", "n"], ["y"], axis=1),
        node("Add", ["p", "p"], ["q"]), node("Concat", ["p", "q"], ["z"], axis=0),
    ]  # fmt: skip
    types = {"y": TensorProto.BOOL, "z": TensorProto.INT64}
    check(model(nodes, {"m": m, "p": p}, ["y", "z"], types=types), {"m": m, "p": p})


def test_a_causal_mask_from_positions() -> None:
    ids, x = numbers(2, 7, dtype=np.int64), numbers(2, 7, 7)
    nodes = [
        node("Unsqueeze", ["p", "first"], ["row"]), node("Unsqueeze", ["p", "second"], ["col"]),
        node("LessOrEqual", ["row", "col"], ["causal"]), node("Cast", ["ids"], ["kept"], to=TensorProto.BOOL),
        node("Unsqueeze", ["kept", "second_of_3"], ["k"]), node("And", ["causal", "k"], ["mask"]),
        node("Where", ["mask", "x", "low"], ["s"]), node("Softmax", ["s"], ["y"]),
    ]  # fmt: skip
    constants = {
        "p": np.arange(7), "first": np.array([0]), "second": np.array([1]), "second_of_3": np.array([1]), "low": np.float32(-1e9),
    }  # fmt: skip
    check(model(nodes, {"ids": ids, "x": x}, ["y"], constants), {"ids": ids, "x": x}, native=5)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["edge", "reflect", "wrap"]),
    st.booleans(),
)
def test_padding_with_an_operands_own_elements(shape: list[int], data: st.DataObject, mode: str, turned: bool) -> None:
    most = [n - (mode == "reflect") for n in (reversed(shape) if turned else shape)]
    pads = [data.draw(st.integers(-1 if n > 2 else 0, n)) for n in [*most, *most]]
    dtype = data.draw(st.sampled_from([np.float32, np.int64, np.bool_]))
    x = numbers(*shape, dtype=dtype)
    cut = [n + min(a, 0) + min(c, 0) for n, a, c in zip(most, pads[: len(most)], pads[len(most) :], strict=True)]
    assume(all(max(p, q) <= n for p, q, n in zip(pads[: len(most)], pads[len(most) :], cut, strict=True)))
    nodes = [node("Pad", ["t" if turned else "x", "p"], ["y"], mode=mode)]
    if turned:
        nodes.insert(0, node("Transpose", ["x"], ["t"]))
    check(model(nodes, {"x": x}, ["y"], {"p": np.array(pads)}, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.int64, 2**60 + 1), (np.int32, -7), (np.uint8, 200), (np.int8, -128), (np.bool_, True), (np.int64, None)],
)
def test_padding_of_what_is_no_number_to_compute_with(dtype: Any, value: Any) -> None:
    """Tokens, masks and quantized bytes; the fourth dimension loses an element at its end."""
    x = numbers(2, 3, 4, 5, dtype=dtype)
    pads = np.array([0, 1, 2, 3, 1, 0, 2, -1])
    given = {} if value is None else {"value": np.array(value, dtype)}
    nodes = [node("Pad", ["t", "pads", *given], ["p"]), node("Transpose", ["p"], ["y"], perm=[3, 1, 0, 2])]
    nodes.insert(0, node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]))
    (y,) = check(model(nodes, {"x": x}, ["y"], {"pads": pads} | given, types={"y": kind(dtype)}), {"x": x})
    around = np.pad(x.transpose(0, 2, 1, 3)[..., :-1], [(0, 1), (1, 0), (2, 2), (3, 0)], constant_values=value or 0)
    np.testing.assert_array_equal(y, around.transpose(3, 1, 0, 2))


@pytest.mark.parametrize("channels", [2, 3, 4, 6, 8, 15])
@pytest.mark.parametrize("pixels", [8, 19, 5000])
@pytest.mark.parametrize("dtype", KINDS)
def test_pixels_of_a_few_channels_and_planes(channels: int, pixels: int, dtype: Any) -> None:
    planes = numbers(2, channels, pixels, dtype=dtype)
    for x in (planes, np.ascontiguousarray(planes.transpose(0, 2, 1))):
        turned = model([node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], {"x": x}, ["y"], types={"y": kind(dtype)})
        (got,) = check(turned, {"x": x})
        np.testing.assert_array_equal(got, x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(200, 70), (70, 200), (65, 33), (129, 5), (5, 129), (512, 128), (300, 64)])
def test_many_lines_are_turned_in_blocks(shape: tuple[int, int], dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (3, *shape)).astype(dtype)
    proto = model([node("Transpose", ["x"], ["y"], perm=[0, 2, 1])], {"x": x}, ["y"], types={"y": kind(dtype)})
    for threads in (1, 3):
        np.testing.assert_array_equal(run_native(proto, {"x": x}, threads=threads)[0], x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
@pytest.mark.parametrize("count", [2, 4, 7])
def test_columns_side_by_side(count: int, dtype: Any) -> None:
    """Parts of one column, some of them computed, are laid out one after the other; the result leaves or is read as a whole."""
    x = np.arange(2 * 50 * count).reshape(count, 2, 50, 1).astype(dtype)
    feeds = {f"x{i}": x[i] for i in range(count)}
    nodes = [node("Add", ["x0", "x1"], ["a"])]
    nodes += [node("Concat", ["a", *(f"x{i}" for i in range(1, count))], ["y"], axis=2)]
    nodes += [
        node("Reshape", ["y", "flat"], ["r"]),
        node("Sub", ["y", "a"], ["s"]),
        node("Concat", ["s", "y"], ["t"], axis=1),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = ["y", "r", "t"]
    proto = model(nodes, feeds, outputs, {"flat": np.array([-1])}, types=dict.fromkeys(outputs, kind))
    check(proto, feeds)
    inside = model(nodes, feeds, ["t"], {"flat": np.array([-1])}, types={"t": kind})
    check(inside, feeds)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("rows", [64, 100, 1000])
@pytest.mark.parametrize(
    "places", [[0], [2, 3], [1, 4, 7], [5, 0, 3], [7, 6, 6, 0, 1, 2, 2, 5, 3], [-1, 0], list(range(7, -1, -1)) * 3]
)
def test_known_columns_of_many_rows(dtype: type, rows: int, places: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(rows, 8)).astype(dtype) * 3
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], axis=1), helper.make_node("Neg", ["y"], ["z"])]
    nodes += [helper.make_node("Slice", ["x", "two", "seven", "one"], ["s"])]
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    held = {"i": np.array(places), "one": np.array([1]), "two": np.array([2]), "seven": np.array([7])}
    proto = model(nodes, {"x": x}, ["y", "z", "s"], held, types=dict.fromkeys("yzs", type_))
    y, z, cut = run_native(proto, {"x": x})
    np.testing.assert_array_equal(y, x[:, places])
    np.testing.assert_array_equal(z, -x[:, places])
    np.testing.assert_array_equal(cut, x[:, 2:7])


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((0, 3), 1), ((3, 0), 0)])
def test_indices_are_checked_where_slices_are_empty(shape: tuple[int, ...], axis: int, codegen: bool) -> None:
    data = np.ones(shape, np.float32)
    gather = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
    proto = model([gather], {"x": data, "i": np.array([0])}, ["y"])
    made = session(proto, codegen=codegen)
    for index in (7, -4):
        with pytest.raises(
            InvalidArgument, match=f"out of data bounds, idx={index} must be within the inclusive range"
        ):
            made.run(None, {"x": data, "i": np.array([index])})
    for index in (2, -3):
        assert made.run(None, {"x": data, "i": np.array([index])})[0].size == 0
