"""Convolutions by channel and the products beside them, made band by band, against NumPy in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native
from onnx import helper

from onnxplug_ep_cpu.codegen.lower import bands
from onnxplug_kernels.ops.conv import conv

RNG = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=[4, 5, 7])
def small_bands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of so many rows, whatever the cache."""
    monkeypatch.setattr(
        bands, "rows_of", lambda b, line, height, share=4: min(height, request.param if share == 2 else 7)
    )
    monkeypatch.setattr(bands, "AGAIN", 100)


@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ((3, 3), {"pads": [1] * 4}), ((3, 3), {"pads": [0, 1, 1, 1], "strides": [2, 2]}),
        ((5, 3), {"pads": [2, 1, 2, 1], "strides": [2, 1]}), ((3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
        ((9, 9), {"pads": [20, 4, 12, 4]}), ((1, 1), {"strides": [3, 3]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("images", [1, 2])
def test_inverted_residuals(kernel: tuple[int, int], given: dict[str, Any], images: int) -> None:
    """A product, an activation, filters by channel with a residual, an activation, a product with a residual: each band reads its part."""
    x, wide, narrow = floats(images, 6, 18, 11), 20, 9
    w = [floats(wide, 6, 1, 1), floats(wide, 1, *kernel) / kernel[0], floats(narrow, wide, 1, 1)]
    b = [floats(wide), floats(wide), floats(narrow)]
    first = np.maximum(conv(np, x.astype(np.float64), w[0], b[0]), 0)
    between = conv(np, first, w[1], b[1], group=wide, **given)
    z, r = floats(images, 3, *between.shape[2:]), floats(images, narrow, *between.shape[2:])
    w.append(floats(wide, 3, 1, 1))
    want = conv(np, np.maximum(between + conv(np, z.astype(np.float64), w[3]), 0), w[2], b[2]) + r
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "w1", "b1"], ["d"], group=wide, **given),
        helper.make_node("Conv", ["z", "w3"], ["c"]),
        helper.make_node("Add", ["d", "c"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "w2", "b2"], ["g"]),
        helper.make_node("Add", ["g", "r"], ["y"]),
    ]
    feeds = {"x": x, "z": z, "r": r}
    held = {f"{name}{i}": a for name, arrays in (("w", w), ("b", b)) for i, a in enumerate(arrays)}
    (ours,) = run_native(model(nodes, feeds, ["y"], held), feeds)
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=3e-6 * float(np.abs(want).max()))


@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize("outputs", [1, 3, 8])
@pytest.mark.parametrize("given", [{}, {"strides": [2, 2], "pads": [0, 0, 17, 8]}])
def test_products_of_few_results_and_with_strides(outputs: int, given: dict[str, Any]) -> None:
    """Both keep the image's size; the former read their operands by channel, the latter other rows than they make."""
    x, w, v = floats(1, 18, 18, 9), floats(18, 1, 3, 3), floats(outputs, 18, 1, 1)
    z, before, after = floats(1, outputs, 18, 9), {"group": 18, "pads": [1] * 4}, floats(outputs, 1, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["d"], **before),
        helper.make_node("Conv", ["d", "v"], ["p"], **given),
        helper.make_node("Add", ["p", "z"], ["q"]),
        helper.make_node("Conv", ["q", "after"], ["y"], group=outputs, strides=[2, 2]),
    ]
    held = {"w": w, "v": v, "after": after}
    (ours,) = run_native(model(nodes, {"x": x, "z": z}, ["y"], held), {"x": x, "z": z})
    between = conv(np, conv(np, x.astype(np.float64), w, **before), v, **given) + z
    want = conv(np, between, after, group=outputs, strides=[2, 2])
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=3e-6 * float(np.abs(want).max()))


@pytest.mark.usefixtures("small_bands")
def test_filters_that_are_read_twice_are_whole() -> None:
    """The result of filters by channel leaves the region besides being multiplied."""
    x, w, v = floats(1, 18, 13, 9), floats(18, 1, 3, 3), floats(7, 18, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["d"], group=18, pads=[1] * 4),
        helper.make_node("Conv", ["d", "v"], ["y"]),
    ]
    d, y = run_native(model(nodes, {"x": x}, ["d", "y"], {"w": w, "v": v}), {"x": x})
    want = conv(np, x.astype(np.float64), w, group=18, pads=[1] * 4)
    np.testing.assert_allclose(d, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y, conv(np, want, v), rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(
    ("line", "height", "want"), [(100, 1000, 1000), (100_000, 100, 4), (20_000, 100, 20), (10**7, 100, 100)]
)
def test_bands_fit_the_cache(line: int, height: int, want: int) -> None:
    lowering: Any = SimpleNamespace(threads=1, target=SimpleNamespace(l2=2 << 20))
    assert bands.rows_of(lowering, line, height) == want
