"""Gathering, scattering, interpolation and running sums against NumPy, or CPU in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opencl_models import PROVIDER, needs_device, one_node, reference, run

import onnxplug as ort

pytestmark = needs_device
rng = np.random.default_rng(13)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_gathering_and_scattering_along_an_axis(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = rng.standard_normal(shape).astype(np.float32)
    extent = shape[axis]
    places = rng.integers(-extent, extent, (2, 3)).astype(np.int32)
    (got,) = run(one_node("Gather", {"x": x, "i": places}, axis=axis), {"x": x, "i": places})
    np.testing.assert_array_equal(got, np.take(x, places, axis=axis))
    spots = np.argsort(rng.random(shape), axis=axis).astype(np.int32)  # each place of a line once
    (got,) = run(one_node("GatherElements", {"x": x, "i": spots}, axis=axis), {"x": x, "i": spots})
    np.testing.assert_array_equal(got, np.take_along_axis(x, spots, axis))
    updates = rng.standard_normal(shape).astype(np.float32)
    feeds = {"x": x, "i": spots, "u": updates}
    (got,) = run(one_node("ScatterElements", feeds, axis=axis), feeds)
    want = x.copy()
    np.put_along_axis(want, spots, updates, axis)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scattering_of_slices(reduction: str) -> None:
    x, places = rng.standard_normal((4, 5, 6)).astype(np.float32), np.array([[0, 1], [-1, 2], [3, -5]], np.int64)
    updates = rng.standard_normal((3, 6)).astype(np.float32)
    if reduction != "none":
        places[2] = places[0]
    want = x.copy()
    join = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    for place, update in zip(places, updates, strict=True):
        want[tuple(place)] = join(want[tuple(place)], update)
    feeds = {"x": x, "i": places, "u": updates}
    (got,) = run(one_node("ScatterND", feeds, reduction=reduction), feeds)
    np.testing.assert_array_equal(got, want)
    (back,) = run(one_node("GatherND", {"x": got, "i": places}), {"x": got, "i": places})
    np.testing.assert_array_equal(back, want[tuple(np.moveaxis(places, -1, 0))])


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums(axis: int, reverse: int, exclusive: int) -> None:
    x = rng.integers(-9, 9, (4, 5, 6)).astype(np.int32)
    feeds = {"x": x, "axis": np.array(axis, np.int64)}
    (got,) = run(one_node("CumSum", feeds, exclusive=exclusive, reverse=reverse), feeds)
    turned = np.flip(x, axis) if reverse else x
    want = np.cumsum(turned, axis) - (turned if exclusive else 0)
    np.testing.assert_array_equal(got, np.flip(want, axis) if reverse else want)


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_running_products(dtype: Any, exclusive: int, reverse: int) -> None:
    x = rng.integers(-3, 4, (3, 5, 4)).astype(dtype)
    feeds = {"x": x, "axis": np.array(1, np.int64)}
    (got,) = run(one_node("CumProd", feeds, opset=26, exclusive=exclusive, reverse=reverse), feeds)
    turned = np.flip(x, 1) if reverse else x
    if exclusive:
        turned = np.concatenate([np.ones_like(x[:, :1]), turned[:, :-1]], 1)
    want = np.cumprod(turned, 1)
    np.testing.assert_array_equal(got, np.flip(want, 1) if reverse else want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    feeds = {"i": np.array([[0, -1, 2], [4, 7, -9]], np.int32), "d": np.array(5, np.int64), "v": np.float32([-1, 3])}
    (got,) = run(one_node("OneHot", feeds, axis=axis), feeds)
    want = np.moveaxis(np.where(np.arange(5) == (feeds["i"] + 5 * (feeds["i"] < 0))[..., None], 3, -1), -1, axis)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("depth", [np.float16, np.uint8, np.int16])
def test_a_depth_of_any_type_that_a_run_brings(depth: type) -> None:
    feeds = {"i": np.array([0, 2], np.int32), "d": np.array(3, depth), "v": np.array([0, 7], np.int32)}
    (got,) = run(one_node("OneHot", feeds), feeds)
    np.testing.assert_array_equal(got, [[7, 0, 0], [0, 0, 7]])


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest"},
        {"mode": "linear"},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    ],
)
@pytest.mark.parametrize("sizes", [(2, 3, 11, 9), (2, 3, 4, 17), (2, 3, 7, 8)])
def test_interpolation(sizes: tuple[int, ...], attributes: dict[str, Any]) -> None:
    x = rng.standard_normal((2, 3, 7, 8)).astype(np.float32)
    feeds = {
        "x": x,
        "roi": np.zeros(0, np.float32),
        "scales": np.zeros(0, np.float32),
        "sizes": np.array(sizes, np.int64),
    }
    constants = ("roi", "scales")
    (got,) = run(one_node("Resize", feeds, constants=constants, **attributes), feeds)
    want = reference("Resize", feeds, constants=constants, **attributes)
    # At most 8 x 8 taps with weights whose magnitudes add up to less than 3 on each axis.
    np.testing.assert_allclose(got, want, rtol=0, atol=64 * np.finfo(np.float32).eps * 9 * np.abs(x).max())


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "rank"), [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)])
@pytest.mark.parametrize("aligned", [0, 1])
def test_samples_at_places_of_a_grid(aligned: int, mode: str, rank: int, padding: str) -> None:
    extents, places = (5, 4, 3)[:rank], (3, 4, 2)[:rank]
    x = rng.standard_normal((2, 3, *extents)).astype(np.float32)
    grid = rng.uniform(-2.3, 2.3, (2, *places, rank)).astype(np.float32)
    feeds = {"x": x, "grid": grid}
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    (got,) = run(one_node("GridSample", feeds, 22, **attributes), feeds)
    want = reference("GridSample", feeds, 22, **attributes)
    # Coordinates up to 10 are rounded twice or so; a step between elements is at most 5, and slopes of cubics are below 2.
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(x).max())


def test_samples_in_types_of_their_own() -> None:
    x = rng.standard_normal((1, 2, 4, 6)).astype(np.float16)
    feeds = {"x": x, "grid": rng.uniform(-1, 1, (1, 3, 5, 2)).astype(np.float32)}
    (got,) = run(one_node("GridSample", feeds, 22), feeds)
    want = reference("GridSample", {**feeds, "x": x.astype(np.float32)}, 22)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-10, atol=2**-14)


def test_reversed_sequences() -> None:
    feeds = {"x": rng.standard_normal((5, 3, 2)).astype(np.float32), "n": np.array([1, 5, 3], np.int64)}
    (got,) = run(one_node("ReverseSequence", feeds), feeds)
    np.testing.assert_array_equal(got, reference("ReverseSequence", feeds))


@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_an_index_out_of_bounds_is_an_error_that_names_the_node(operator: str) -> None:
    x = np.arange(4, dtype=np.float32)
    nodes = [onnx.helper.make_node(operator, ["x", "i", "u"][: 3 if "Scatter" in operator else 2], ["y"], "lookup")]
    given = [onnx.helper.make_tensor_value_info(n, e, s) for n, e, s in (("x", 1, [4]), ("i", 7, None), ("u", 1, [2]))]
    graph = onnx.helper.make_graph(nodes, "g", given, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    good, bad = (np.array(i, np.int64).reshape((2, 1) if "ND" in operator else 2) for i in ([1, -4], [1, 99]))
    u = np.float32([5, 6])
    for _ in range(2):
        with pytest.raises(Exception, match=r"lookup.*out of bounds"):
            session.run(None, {"x": x, "i": bad, "u": u})
        (got,) = session.run(None, {"x": x, "i": good, "u": u})
        np.testing.assert_array_equal(got, [6, 5, 2, 3] if "Scatter" in operator else [1, 0])


def test_a_scalars_place_is_one_hot() -> None:
    feeds = {"k": np.array(2, np.int64), "d": np.array(4, np.int64), "v": np.array([5, 7], np.float32)}
    model = onnx.load_from_string(one_node("OneHot", feeds, 11))
    model.graph.input[0].type.tensor_type.ClearField("shape")  # onnx refuses where it is known that there is no axis
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    (got,) = run(model.SerializeToString(), feeds)
    np.testing.assert_array_equal(got, [5, 5, 7, 5])
