"""Depthwise convolution of 8-bit data whose results of a row are made together."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, run_native, run_numpy
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug_ep_cpu.codegen.kernels.qsliding import QSliding
from onnxplug_ep_cpu.codegen.lower import qsliding

CHANNELS = 32  # whole vectors on every target


def convolution(shape: tuple[int, ...], kernel: tuple[int, ...], signed: bool = False, **attributes: Any) -> Any:
    """(model, feeds) of a QLinearConv with a factor for each channel."""
    channels = shape[1]
    rng = np.random.default_rng(sum(shape) + sum(kernel))
    low, high = (-128, 127) if signed else (0, 255)
    element = np.int8 if signed else np.uint8
    x = rng.integers(low, high, shape, dtype=element, endpoint=True)
    constants = {
        "sx": np.float32(0.02), "zx": element(5), "w": rng.integers(-128, 127, (channels, 1, *kernel), np.int8, endpoint=True),
        "sw": rng.uniform(0.001, 0.01, channels).astype(np.float32), "zw": np.zeros(channels, np.int8), "sy": np.float32(0.03),
        "zy": element(9), "b": rng.integers(-999, 999, channels).astype(np.int32),
    }  # fmt: skip
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    node = helper.make_node("QLinearConv", names, ["y"], group=channels, **attributes)
    types = {"y": TensorProto.INT8 if signed else TensorProto.UINT8}
    return model([node], {"x": x}, ["y"], constants, types=types), {"x": x}


@given(
    st.integers(1, 2), st.integers(1, 5), st.integers(4, 20), st.integers(1, 3), st.integers(2, 11), st.integers(1, 2),
    st.integers(1, 3), st.integers(0, 3), st.booleans(), st.sampled_from([16, 19, 32, 37]), st.booleans(),
)  # fmt: skip
def test_any_window(
    batch: int, rows: int, columns: int, height: int, width: int, stride: int, dilation: int, pad: int, signed: bool,
    channels: int, twos: bool,
) -> None:  # fmt: skip
    reach = (width - 1) * dilation
    across = 2 if twos and width > 2 and channels % 16 and columns + pad > 6 else 1
    attributes = {"strides": [stride, across], "dilations": [1, dilation], "pads": [pad, pad, height, reach]}
    shape = (batch, channels, rows, columns)
    proto, feeds = convolution(shape, (height, width), signed, **attributes)
    with mock.patch.object(qsliding, "QSliding", wraps=QSliding) as kernel:
        (got,) = run_native(proto, feeds)
    assert kernel.call_count == 1
    np.testing.assert_array_equal(got, run_numpy(proto, feeds)[0])


@pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
def test_signals_and_every_target(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for shape, kernel in (
        ((2, CHANNELS, 11), (3,)),
        ((1, CHANNELS, 9, 9), (3, 3)),
        ((2, CHANNELS, 70), (51,)),
        ((1, 37, 40), (33,)),
    ):
        proto, feeds = convolution(shape, kernel, pads=[1] * (2 * len(kernel)))
        np.testing.assert_array_equal(run_native(proto, feeds)[0], run_numpy(proto, feeds)[0])


def test_a_residual_in_its_end() -> None:
    """What is added comes from another tensor of pixels; all is quantized once."""
    rng = np.random.default_rng(0)
    feeds = {"x": rng.integers(0, 255, (2, CHANNELS, 6, 9), np.uint8, endpoint=True)}
    constants = {
        "s": np.float32(0.02), "z": np.uint8(100), "w": rng.integers(-127, 127, (CHANNELS, 1, 3, 3), np.int8), "t": np.float32(0.01),
        "o": np.int8(0), "u": np.float32(0.05), "one": rng.integers(-9, 9, (CHANNELS, CHANNELS, 1, 1), np.int8),
    }  # fmt: skip
    make = helper.make_node
    nodes = [
        make("QLinearConv", ["x", "s", "z", "one", "t", "o", "s", "z"], ["h"]),
        make("QLinearConv", ["h", "s", "z", "w", "t", "o", "s", "z"], ["d"], group=CHANNELS, pads=[1] * 4),
        make("QLinearAdd", ["d", "s", "z", "h", "s", "z", "u", "z"], ["y"], domain="com.microsoft"),
    ]
    proto = model(nodes, feeds, ["y"], constants, types={"y": TensorProto.UINT8})
    np.testing.assert_array_equal(run_native(proto, feeds)[0], run_numpy(proto, feeds)[0])
