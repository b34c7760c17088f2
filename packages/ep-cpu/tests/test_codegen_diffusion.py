"""What onnxruntime's optimizer joins in diffusion models, generated, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import model, session
from onnx.helper import make_node as node
from quantized_models import MS, kernel, one


def real(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def near(pair: Any) -> None:
    for got, wanted in zip(*pair, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("groups", [1, 3, 12])
def test_group_norm(groups: int, activation: int, last: int) -> None:
    x = real(2, 5, 7, 12) if last else real(2, 12, 5, 7)
    inputs = [x, real(12), real(11, 12)[0]]
    near(one("GroupNorm", inputs, {0}, MS, groups=groups, activation=activation, channels_last=last, epsilon=1e-3))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("skip", ["image", "rows", "pixels"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_skip_group_norm(count: int, bias: bool, skip: str, last: int) -> None:
    shape = (2, 5, 7, 12) if last else (2, 12, 5, 7)
    rows = (2, 1, 1, 12) if last else (2, 12, 1, 1)
    added = real(*{"image": shape, "rows": (2, 12), "pixels": rows}[skip])
    inputs = [real(*shape), real(12), real(11, 12)[0], added, *([real(3, 12)[0]] if bias else [])]
    more = {"groups": 4, "activation": 1, "channels_last": last}
    got, _ = one("SkipGroupNorm", inputs, {0, 3}, MS, count, **more)
    near((got, kernel("SkipGroupNorm", MS)(np, *inputs, n_outputs=count, **more)))


@pytest.mark.parametrize(("channels", "group", "size"), [(3, 1, 3), (32, 1, 3), (32, 1, 1), (32, 32, 3), (32, 2, 3)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_convolution_of_channels_last(computed: bool, bias: bool, channels: int, group: int, size: int) -> None:
    """The filter, too, has its channels last."""
    inputs = [real(2, 9, 11, channels), real(32, size, size, channels // group), *([real(32)] if bias else [])]
    window = {"pads": [size // 2] * 4, "group": group, "strides": [2, 1]}
    near(one("NhwcConv", inputs, {0, 1} if computed else {0}, MS, **window))


@pytest.mark.parametrize("size", [1, 3])
def test_constant_filters_are_packed_once(size: int) -> None:
    """By the algorithm, and into as many bytes, as those whose channels are declared second."""
    x, w = real(1, 28, 28, 64), real(64, size, size, 64)
    pads = {"pads": [size // 2] * 4}
    last = session(model([node("NhwcConv", ["x", "w"], ["y"], domain=MS, **pads)], {"x": x}, ["y"], {"w": w}))
    turned = {"x": np.moveaxis(x, -1, 1), "w": np.moveaxis(w, -1, 1)}
    second = session(model([node("Conv", ["x", "w"], ["y"], **pads)], {"x": turned["x"]}, ["y"], {"w": turned["w"]}))
    ours, theirs = last.run(None, {"x": x})[0], second.run(None, {"x": turned["x"]})[0]
    np.testing.assert_array_equal(ours, np.moveaxis(theirs, 1, -1))
    made = [s.explain().regions[0]["facts"] for s in (last, second)]
    assert made[0]["packed_bytes"] == made[1]["packed_bytes"]
    assert list(made[0]["algorithms"].values()) == list(made[1]["algorithms"].values())


def test_sums_and_gates_with_a_bias() -> None:
    near(one("BiasAdd", [real(2, 90, 20), real(20), real(3, 90, 20)[:2]], {0, 2}, MS))
    near(one("BiasSplitGelu", [real(2, 9, 40), real(40)], {0}, MS))
