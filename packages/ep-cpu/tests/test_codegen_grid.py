"""GridSample in generated code, against the NumPy kernels."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_models import check, model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxplug

node = helper.make_node
MODES = ["linear", "nearest", "cubic"]
PADDINGS = ["zeros", "border", "reflection"]
CUBIC = 2e-5
"""What two ways to add up sixteen pixels of about 1 may differ by: the outer of a cubic's weights is a sum of terms of up to 16, of
which each rounding leaves 1e-6."""


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2), st.sampled_from([1, 3, 8, 19]), st.integers(1, 7), st.integers(1, 7), st.integers(0, 5),
    st.integers(0, 6), st.sampled_from(MODES), st.sampled_from(PADDINGS), st.integers(0, 1), st.floats(0.5, 4.0),
)  # fmt: skip
def test_grid_sample(
    n: int, c: int, h: int, w: int, rows: int, columns: int, mode: str, padding: str, aligned: int, reach: float
) -> None:
    rng = np.random.default_rng(h * 7 + w)
    x = rng.standard_normal((n, c, h, w), np.float32)
    grid = rng.uniform(-reach, reach, (n, rows, columns, 2)).astype(np.float32)
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned)]
    check(model(nodes, {"x": x, "g": grid}, ["y"]), {"x": x, "g": grid}, atol=CUBIC if mode == "cubic" else 1e-6)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2), st.sampled_from([1, 3, 8, 19]), st.tuples(*[st.integers(1, 6)] * 3), st.tuples(*[st.integers(0, 5)] * 3),
    st.sampled_from(MODES[:2]), st.sampled_from(PADDINGS), st.integers(0, 1), st.floats(0.5, 4.0), st.booleans(),
)  # fmt: skip
def test_grid_sample_of_bodies(
    n: int, c: int, sizes: tuple[int, ...], made: tuple[int, ...], mode: str, padding: str, aligned: int, reach: float,
    symbolic: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(sum(sizes))
    x = rng.standard_normal((n, c, *sizes), np.float32)
    grid = rng.uniform(-reach, reach, (n, *made, 3)).astype(np.float32)
    if grid.size > 4:
        grid.flat[:4] = np.nan, -1, 1, 1e6
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned)]
    feeds = {"x": x, "g": grid if padding == "zeros" else np.nan_to_num(grid)}
    check(model(nodes, feeds, ["y"], symbolic=symbolic), feeds, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("aligned", [0, 1])
def test_places_of_an_image_that_are_on_its_edges_or_nowhere(mode: str, padding: str, aligned: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 4), np.float32)
    line = np.array([-1e6, -3, -1.25, -1, -0.75, 0, 0.5, 0.75, 1, 1.25, 3, 1e6], np.float32)
    grid = np.stack(np.meshgrid(line, line), -1)[None]
    nodes = [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned)]
    check(model(nodes, {"x": x, "g": grid}, ["y"]), {"x": x, "g": grid})
    if padding == "zeros":
        grid[0, 0, :, 0], grid[0, 1, :, 1] = np.nan, np.inf
        check(model(nodes, {"x": x, "g": grid}, ["y"]), {"x": x, "g": grid})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rank", [2, 3])
def test_nothing_outside_of_an_image_counts_beside_infinite_elements(rank: int, mode: str) -> None:
    """Of volumes as of images: the one element that is there has a weight above 0."""
    x = np.ones((1, 1, *[3] * rank), np.float32)
    x[(0, 0, *[0] * rank)] = -np.inf
    grid = np.full((1, *[1] * rank, rank), -0.9, np.float32)
    data = model([node("GridSample", ["x", "g"], ["y"], mode=mode)], {"x": x, "g": grid}, ["y"], opset=20)
    (y,) = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x, "g": grid})
    assert y == -np.inf


def test_between_convolutions_and_by_the_older_names() -> None:
    rng = np.random.default_rng(1)
    x, grid = rng.standard_normal((2, 3, 9, 8), np.float32), rng.uniform(-1.2, 1.2, (2, 6, 7, 2)).astype(np.float32)
    filters = {"v": rng.standard_normal((5, 3, 3, 3), np.float32), "w": rng.standard_normal((4, 5, 1, 1), np.float32)}
    nodes = [
        node("Conv", ["x", "v"], ["a"]), node("GridSample", ["a", "g"], ["b"], mode="bilinear"), node("Conv", ["b", "w"], ["y"]),
        node("GridSample", ["a", "g"], ["z"], mode="nearest", padding_mode="border"),
        node("GridSample", ["a", "g"], ["u"], mode="bicubic", padding_mode="reflection"),
    ]  # fmt: skip
    check(model(nodes, {"x": x, "g": grid}, ["y", "z", "u"], filters, opset=16), {"x": x, "g": grid}, atol=1e-5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 1, 7, 20), (1, 3, 1, 5), (2, 3, 4, 5, 18)])
def test_grids_that_matrices_move(size: tuple[int, ...], aligned: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(2).standard_normal((size[0], rank, rank + 1), np.float32)
    nodes = [node("AffineGrid", ["t", "size"], ["y"], align_corners=aligned)]
    check(model(nodes, {"t": theta}, ["y"], {"size": np.array(size)}), {"t": theta}, atol=1e-5)
    if rank == 2:
        x = np.random.default_rng(3).standard_normal(size, np.float32)
        nodes.append(node("GridSample", ["x", "y"], ["z"], align_corners=aligned, padding_mode="border"))
        check(model(nodes, {"t": theta, "x": x}, ["z"], {"size": np.array(size)}), {"t": theta, "x": x}, atol=1e-4)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 2), st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]), st.sampled_from([1, 3, 8]), st.sampled_from([1, 5, 16]),
    *[st.tuples(st.integers(1, 3), st.integers(1, 3))] * 3, st.tuples(*[st.integers(0, 2)] * 4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_convolution_of_displaced_samples(
    n: int, parts: tuple[int, int], c: int, m: int, kernel: tuple[int, int], strides: tuple[int, int],
    dilations: tuple[int, int], pads: tuple[int, ...], masked: bool, known: bool,
) -> None:  # fmt: skip
    """Samples that lie outside, or nowhere, are zero."""
    rng = np.random.default_rng(c * 7 + m)
    group, offset_group = parts
    c, m, size = c * 2 * offset_group, m * group, (8, 11)
    output = [
        (size[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    ]
    offsets = rng.standard_normal((n, offset_group * 2 * kernel[0] * kernel[1], *output)).astype(np.float32) * 3
    offsets.flat[::17], offsets.flat[3::31], offsets.flat[4::37] = np.nan, np.inf, -1e12
    feeds = {"x": rng.standard_normal((n, c, *size), np.float32), "o": offsets}
    weights = {"w": rng.standard_normal((m, c // group, *kernel), np.float32), "b": rng.standard_normal(m, np.float32)}
    if masked:
        feeds["m"] = rng.random((n, offsets.shape[1] // 2, *output), np.float32)
    if not known:
        feeds["w"] = weights.pop("w")
    displaced = node(
        "DeformConv", ["x", "w", "o", "b", *["m"] * masked], ["y"], group=group, offset_group=offset_group, strides=strides,
        dilations=dilations, pads=pads, kernel_shape=kernel,
    )  # fmt: skip
    check(model([displaced], feeds, ["y"], weights), feeds, atol=1e-4)
