"""NonZero, Compress and RoiAlign against CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from opencl_models import PROVIDER, needs_device, one_node, run

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument, RuntimeException

pytestmark = needs_device
rng = np.random.default_rng(7)
FEW = (0.0, 0.3, 1.0)
"""Shares of elements that are there."""


def both(model: bytes, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    ours = run(model, feeds)[0]
    (theirs,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    return ours, theirs


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, bool])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (2, 3), (5, 41, 13), (1000, 301)])
def test_elements_that_are_not_zero(shape: tuple[int, ...], dtype: Any) -> None:
    for share in FEW:
        x = np.where(rng.random(shape) < share, rng.integers(1, 9, shape), 0).astype(dtype)
        np.testing.assert_array_equal(*both(one_node("NonZero", {"x": x}, 13), {"x": x}))


def test_what_is_no_number_is_not_zero() -> None:
    x = np.array([np.nan, 0.0, -0.0, np.inf, 1e-45, -1.0], np.float32)
    np.testing.assert_array_equal(*both(one_node("NonZero", {"x": x}, 13), {"x": x}))


@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), None), ((4, 5, 6), None), ((4, 5, 6), 0), ((4, 5, 6), 1), ((40, 700), -1), ((0, 3), 1)]
)
@pytest.mark.parametrize("given", ["as many", "fewer", "more"])
def test_slices_that_are_taken(shape: tuple[int, ...], axis: int | None, given: str) -> None:
    extent = int(np.prod(shape)) if axis is None else shape[axis]
    count = {"as many": extent, "fewer": max(extent - 2, 0), "more": extent + 3}[given]
    for share, dtype in zip(FEW, (np.float64, np.int16, bool), strict=True):
        feeds = {"x": rng.integers(0, 99, shape).astype(dtype), "c": rng.random(count) < share}
        model = one_node("Compress", feeds, 11, **({} if axis is None else {"axis": axis}))
        np.testing.assert_array_equal(*both(model, feeds))


def test_what_follows_is_shaped_as_the_data_says() -> None:
    """In a model of open shapes, run with several: behind both nodes stand others."""
    text = """<ir_version: 9, opset_import: ["": 21]> g (float[N, M] x, bool[K] c) => (float[?, ?] y, float[?, ?] z) {
        n = NonZero (x) t = Transpose (n) g = GatherND (x, t) u = Unsqueeze (g, a) y = Exp (u)
        s = Compress <axis = 0> (x, c) z = MatMul (s, w) }"""
    model = onnx.parser.parse_model(text)
    arrays = {"a": np.array([0]), "w": rng.standard_normal((6, 3)).astype(np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    sessions = [
        ort.InferenceSession(model.SerializeToString(), providers=[p]) for p in (PROVIDER, "CPUExecutionProvider")
    ]
    for rows, share in ((4, 0.5), (4, 0.2), (9, 0.0), (1, 1.0), (4, 0.5)):
        feeds = {"x": np.where(rng.random((rows, 6)) < share, 1.5, 0).astype(np.float32), "c": rng.random(rows) < share}
        for got, want in zip(*(session.run(None, feeds) for session in sessions), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_condition_may_have_any_shape() -> None:
    feeds = {"x": np.arange(5, dtype=np.float32), "c": np.array([[False, True], [True, False]])}
    for opset in (11, 28):
        got, want = both(one_node("Compress", feeds, opset), feeds)
        np.testing.assert_array_equal(got, want)
    assert got.tolist() == [1, 2]


REGIONS = np.array(
    [[0, 0, 9, 6], [2.2, 1.4, 3.1, 1.5], [-9, -3, 30, 30], [5, 5, 5, 5], [7, 4, 2, 1], [-60, -60, -50, -50]]
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16, 22])
@pytest.mark.parametrize("sampling", [0, 2, 3])
def test_regions(sampling: int, opset: int, mode: str, dtype: Any) -> None:
    feeds = {
        "x": rng.standard_normal((3, 5, 7, 11)).astype(dtype),
        "r": REGIONS.astype(dtype),
        "i": np.array([0, 2, 1, 1, 0, 2]),
    }
    attributes = {
        "mode": mode,
        "output_height": 3,
        "output_width": 4,
        "sampling_ratio": sampling,
        "spatial_scale": 0.75,
    }
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    made = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)]
    graph = helper.make_graph([helper.make_node("RoiAlign", list(feeds), ["y"], **attributes)], "g", values, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()
    got, want = both(model, feeds)
    # four products of three factors each, and a mean of up to a few hundred samples
    np.testing.assert_allclose(got, want, rtol=0, atol={2: 2e-3, 4: 4e-6, 8: 1e-14}[np.dtype(dtype).itemsize])


def test_an_infinity_beside_samples_beyond_the_image_is_not_the_largest() -> None:
    feeds = {
        "x": np.ones((1, 2, 4, 4), np.float32),
        "r": np.array([[-60, -60, -50, -50]], np.float32),
        "i": np.array([0]),
    }
    feeds["x"][0, :, 0, 0] = np.inf
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    made = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)]
    node = helper.make_node("RoiAlign", list(feeds), ["y"], mode="max", sampling_ratio=2)
    graph = helper.make_graph([node], "g", values, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9).SerializeToString()
    got, want = both(model, feeds)
    assert got.tolist() == want.tolist() == [[[[0.0]], [[0.0]]]]


def test_images_that_are_not_there_and_regions_that_do_not_fit() -> None:
    feeds = {"x": np.ones((2, 1, 4, 4), np.float32), "r": np.ones((1, 4), np.float32), "i": np.array([2])}
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("RoiAlign", list(feeds), ["y"], "roi")],
            "g",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
                for n, a in feeds.items()
            ],
            [helper.make_tensor_value_info("y", 1, None)],
        ),
        opset_imports=[helper.make_opsetid("", 16)],
        ir_version=9,
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    for extent, error in ((np.inf, InvalidArgument), (np.nan, InvalidArgument), (1e12, RuntimeException)):
        region = np.array([[0, 0, extent, 2]], np.float32)
        with pytest.raises(error, match="roi: "):
            session.run(None, {**feeds, "r": region, "i": np.array([1])})
    with pytest.raises(InvalidArgument, match="roi: an index is out of bounds"):
        session.run(None, feeds)
    with pytest.raises((Fail, InvalidArgument)):
        session.run(None, {**feeds, "i": np.array([0, 0])})
    with pytest.raises((Fail, InvalidArgument)):
        session.run(None, {**feeds, "r": np.ones((1, 5), np.float32)})
