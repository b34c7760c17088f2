"""Generated RoiAlign against the NumPy kernel in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxplug
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug_kernels.ops.roi import roi_align, roi_align_10


def align(x: np.ndarray, boxes: np.ndarray, images: np.ndarray, opset: int, **attributes: Any) -> np.ndarray:
    node = helper.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], **attributes)
    feeds = {"x": x, "boxes": boxes, "images": images}
    (y,) = run_native(model([node], feeds, ["y"], opset=opset), feeds)
    return y


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 16),
    channels=st.sampled_from([1, 3, 16, 37, 70]),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    bins=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    samples=st.integers(0, 3),
    scale=st.sampled_from([1.0, 0.25]),
    mode=st.sampled_from(["half_pixel", "output_half_pixel", None]),
    pool=st.sampled_from(["avg", "max"]),
)
def test_roi_align(
    seed: int,
    channels: int,
    sizes: tuple[int, int],
    bins: tuple[int, int],
    samples: int,
    scale: float,
    mode: str | None,
    pool: str,
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, channels, *sizes)).astype(np.float32)
    corners = np.sort(rng.uniform(-3, 24, (6, 2, 2)) / scale, axis=1)  # beyond the image and turned round, too
    corners[4:] = corners[4:, ::-1]
    boxes = corners.reshape(6, 4).astype(np.float32)
    images = rng.integers(0, 2, 6)
    attributes: dict[str, Any] = {
        "output_height": bins[0], "output_width": bins[1], "sampling_ratio": samples, "spatial_scale": scale,
        "mode": pool,
    }  # fmt: skip
    reference = roi_align_10 if mode is None else roi_align
    given = attributes if mode is None else {**attributes, "coordinate_transformation_mode": mode}
    ours = align(x, boxes, images, 10 if mode is None else 16, **given)
    want = reference(np, x.astype(np.float64), boxes.astype(np.float64), images, **given)
    # Places up to 24 are known to 4 roundings of float32, 6e-6, and neighbours differ by less than 8.
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(("far", "samples"), [(3000.0, 0), (4.0, 1000)])
def test_more_samples_than_are_generated(far: float, samples: int) -> None:
    """The NumPy kernel answers: its products are as long as an axis, not as what the region covers."""
    x, boxes, images = (
        np.ones((1, 5, 6, 6), np.float32),
        np.array([[1, 1, far, far]], np.float32),
        np.zeros(1, np.int64),
    )
    node = helper.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], sampling_ratio=samples)
    feeds = {"x": x, "boxes": boxes, "images": images}
    session = onnxplug.InferenceSession(model([node], feeds, ["y"], opset=16), providers=["CPUExecutionProvider"])
    want = roi_align(np, x, boxes, images, sampling_ratio=samples)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_regions_that_are_not_finite(odd: float) -> None:
    x, boxes = np.ones((1, 20, 5, 5), np.float32), np.array([[0, 0, 2, 2], [1, 1, 3, odd]], np.float32)
    for samples in (0, 2):
        with pytest.raises(InvalidArgument, match="All 'rois' values must be finite"):
            align(x, boxes, np.zeros(2, np.int64), 16, output_height=2, sampling_ratio=samples)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_whose_corners_are_swapped(mode: str) -> None:
    """Along one axis they have a negative number of samples, which onnxruntime refuses; along both there are none."""
    x, images = np.ones((1, 20, 5, 5), np.float32), np.zeros(2, np.int64)
    for box in ([4, 0, 1, 3], [0, 4, 3, 1]):
        boxes = np.array([[0, 0, 2, 2], box], np.float32)
        with pytest.raises(Fail, match="Integer overflow"):
            align(x, boxes, images, 16, mode=mode, output_height=2)
        align(x, boxes, images, 16, mode=mode, output_height=2, sampling_ratio=1)
    align(x, np.array([[0, 0, 2, 2], [4, 4, 1, 1]], np.float32), images, 16, mode=mode, output_height=2)


@pytest.mark.parametrize("channels", [5, 40])
@pytest.mark.parametrize("odd", [np.inf, -np.inf])
def test_an_infinity_that_weighs_nothing_is_not_the_largest(odd: float, channels: int) -> None:
    x, boxes, images = (
        np.ones((1, channels, 6, 6), np.float32),
        np.array([[0, 0, 6, 6]], np.float32),
        np.zeros(1, np.int64),
    )
    x[0, :, 2, 3] = odd
    attributes: dict[str, Any] = {"mode": "max", "output_height": 6, "output_width": 6, "sampling_ratio": 1}
    ours = align(x, boxes, images, 16, **attributes)
    np.testing.assert_array_equal(ours, roi_align(np, x, boxes, images, **attributes))
    assert not np.isnan(ours).any()


def test_a_region_of_no_image() -> None:
    x, boxes = np.ones((2, 20, 5, 5), np.float32), np.array([[0, 0, 2, 2]], np.float32)
    with pytest.raises(InvalidArgument):
        align(x, boxes, np.array([2]), 16)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 64, 30, 30)).astype(np.float32),
        "boxes": np.sort(rng.uniform(0, 30, (40, 2, 2)), axis=1).reshape(40, 4).astype(np.float32),
        "images": np.zeros(40, np.int64),
    }
    node = helper.make_node("RoiAlign", list(feeds), ["y"], output_height=7, output_width=7)
    one, two = (run_native(model([node], feeds, ["y"], opset=16), feeds, threads=n)[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@settings(max_examples=40)
@given(
    st.integers(0, 1 << 16), st.sampled_from([1, 3, 16, 37, 70]), st.integers(1, 20), st.integers(1, 20), st.integers(1, 8),
    st.integers(1, 8), st.sampled_from([1.0, 0.25, 0.0625]), st.booleans(),
)  # fmt: skip
def test_max_roi_pool(
    seed: int, channels: int, height: int, width: int, rows: int, columns: int, scale: float, symbolic: bool
) -> None:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-4, 24, (6, 4)) / scale  # beyond the image and turned round, too
    boxes = np.concatenate([rng.integers(0, 2, (6, 1)), corners], axis=1).astype(np.float32)
    feeds = {"x": rng.standard_normal((2, channels, height, width)).astype(np.float32), "boxes": boxes}
    node = helper.make_node("MaxRoiPool", ["x", "boxes"], ["y"], pooled_shape=[rows, columns], spatial_scale=scale)
    check(model([node], feeds, ["y"], opset=16, symbolic=symbolic), feeds, rtol=0, atol=0)


def test_pixels_that_are_no_numbers_are_the_largest() -> None:
    x = np.zeros((1, 20, 6, 6), np.float32)
    x[0, 3, 1, 1], x[0, 4] = np.nan, -np.inf
    boxes = np.array([[0, 0, 0, 5, 5], [0, 3, 3, 3, 3]], np.float32)
    node = helper.make_node("MaxRoiPool", ["x", "boxes"], ["y"], pooled_shape=[2, 2])
    check(model([node], {"x": x, "boxes": boxes}, ["y"], opset=16), {"x": x, "boxes": boxes})


@pytest.mark.parametrize("image", [-1, 2, np.nan])
def test_pooled_regions_of_no_image(image: float) -> None:
    feeds = {"x": np.ones((2, 20, 5, 5), np.float32), "boxes": np.array([[image, 0, 0, 2, 2]], np.float32)}
    node = helper.make_node("MaxRoiPool", ["x", "boxes"], ["y"], pooled_shape=[2, 2])
    with pytest.raises(Fail, match="MaxRoiPool"):
        run_native(model([node], feeds, ["y"], opset=16), feeds)


def test_a_region_far_larger_than_its_image_takes_no_memory_for_it() -> None:
    """A hundred million samples along each axis, of which the image has six."""
    x, boxes = np.ones((1, 5, 6, 6), np.float32), np.array([[-1e8, -1e8, 1e8, 1e8], [0, 0, 6, 6]], np.float32)
    for mode in ("avg", "max"):
        y = align(x, boxes, np.zeros(2, np.int64), 16, mode=mode, output_height=2, output_width=2)
        np.testing.assert_allclose(y[0], 1.0 if mode == "max" else 0.0, atol=1e-6)
        np.testing.assert_allclose(y[1], 1.0, rtol=1e-6)
