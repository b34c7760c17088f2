"""Winograd convolution: error bounds against float64, edges, and the switch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx.parser
import pytest
from codegen_models import model, run_native, run_numpy, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxplug
from onnxplug_ep_cpu.codegen.kernels.filtering import Axis
from onnxplug_ep_cpu.codegen.lower import choice, winograd
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_kernels.ops.conv import conv

RNG = np.random.default_rng(11)


def case(
    images: int, channels: int, outputs: int, height: int, width: int, kernel: tuple[int, int] = (3, 3), groups: int = 1
) -> tuple[np.ndarray, ...]:
    """Activations as after a Relu, and filters that keep their scale."""
    x = np.maximum(RNG.standard_normal((images, channels, height, width)), 0).astype(np.float32)
    terms = channels // groups * kernel[0] * kernel[1]
    w = (RNG.standard_normal((outputs, channels // groups, *kernel)) * np.sqrt(2 / terms)).astype(np.float32)
    return x, w, RNG.standard_normal(outputs).astype(np.float32)


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"w": w, "b": b}), {"x": x})
    return ours, conv(np, *(a.astype(np.float64) for a in (x, w, b)), **attributes)


@contextmanager
def tiles(*axes: Axis) -> Iterator[None]:
    """Convolutions by Winograd over these tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "onnxplug_ep_cpu.codegen.lower.conv.candidates", lambda *_: {choice.Algorithm("winograd", axes): 0.0}
        )
        yield


@pytest.mark.parametrize(
    ("channels", "outputs", "side"),
    ((16, 16, 40), (64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7), (96, 160, 17)),
)
def test_error(channels: int, outputs: int, side: int) -> None:
    """F(4x4) errs by some 1.5e-5 of the output's rms on these layers, growing with the root of the channels; twice
    that is allowed to the worst of all elements."""
    x, w, b = case(1, channels, outputs, side, side)
    ours, want = convolved(x, w, b, pads=[1, 1, 1, 1])
    rms = np.sqrt((want**2).mean())
    assert np.abs(ours - want).max() / rms < 3e-5 * max(1.0, np.sqrt(channels / 256))


TILES = [
    (taps, stride, m) for (taps, stride), results in choice.RESULTS.items() for m in results if (taps, stride) != (1, 1)
]


@pytest.mark.parametrize(("taps", "stride", "outputs"), TILES)
def test_error_of_every_tile(taps: int, stride: int, outputs: int) -> None:
    """None errs more than F(4x4, 3x3) is allowed to, on layers of 256 channels: as large as both axes may have them."""
    axis = Axis(outputs, taps, stride)
    axes = (axis, axis) if taps < choice.LONG else (Axis(1, 1), axis)
    kernel, strides = tuple(a.taps for a in axes), [a.stride for a in axes]
    x, w, b = case(1, 256, 64, 14, 14, kernel)
    with tiles(*axes):
        ours, want = convolved(x, w, b, pads=[n // 2 for n in kernel] * 2, strides=strides)
    assert np.abs(ours - want).max() / np.sqrt((want**2).mean()) < 3e-5


@settings(max_examples=40)
@given(st.data())
def test_edges(data: st.DataObject) -> None:
    """Tiles beyond the image, uneven padding, dilations, groups, several images, channels that are no multiple of a vector."""
    axes = []
    for _ in range(2):
        taps, stride = data.draw(st.sampled_from(sorted(choice.RESULTS)))
        axes.append(Axis(data.draw(st.sampled_from(choice.RESULTS[taps, stride])), taps, stride))
    kernel = [axis.taps for axis in axes]
    if max(kernel) >= choice.LONG:
        axes[0] = Axis(1, 1)
        kernel[0] = 1
    strides = [axis.stride for axis in axes]
    dilations = [data.draw(st.integers(1, 3)) if strides == [1, 1] else 1 for _ in range(2)]
    height, width = data.draw(st.integers(1, 11)), data.draw(st.integers(1, 11))
    pads = [data.draw(st.integers(0, 2)) for _ in range(4)]
    for i, size in enumerate((height, width)):
        pads[2 + i] = max(pads[2 + i], (kernel[i] - 1) * dilations[i] + 1 - size - pads[i])
    lanes, groups = host_target().lanes, data.draw(st.sampled_from((1, 1, 2, 3)))
    channels, outputs = (data.draw(st.integers(lanes, 3 * lanes)) * groups for _ in range(2))
    x, w, b = case(data.draw(st.integers(1, 3)), channels, outputs, height, width, (kernel[0], kernel[1]), groups)
    with pytest.MonkeyPatch.context() as patch, tiles(*axes):
        patch.setattr(winograd, "CHUNK", data.draw(st.sampled_from((1, 1 << 20))))
        patch.setattr(winograd, "MANY_TILES", data.draw(st.sampled_from((1, 64))))
        ours, want = convolved(x, w, b, pads=pads, strides=strides, dilations=dilations, group=groups)
    assert ours.shape == want.shape
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-4)


def test_lines() -> None:
    """One spatial dimension."""
    x, w = RNG.standard_normal((2, 32, 50)).astype(np.float32), RNG.standard_normal((48, 32, 3)).astype(np.float32) / 10
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1])]
    with tiles(Axis(1, 1), Axis(4, 3)):
        (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"w": w}), {"x": x})
    np.testing.assert_allclose(
        ours, conv(np, x.astype(np.float64), w.astype(np.float64), pads=[1, 1]), rtol=1e-4, atol=1e-4
    )


def test_runs_agree_bit_by_bit() -> None:
    x, w, b = case(2, 32, 48, 30, 21)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)]
    made = [session(model(nodes, {"x": x}, ["y"], {"w": w, "b": b}), threads) for threads in (1, 2)]
    first, *others = (s.run(None, {"x": x})[0] for s in (made[0], made[1], made[1]))
    for other in others:
        np.testing.assert_array_equal(first, other)


ODD = [np.inf, -np.inf, np.nan, 3e38]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("side", [12, 60])
def test_numbers_beyond_a_tiles_sums(odd: float, threads: int, side: int, caplog: pytest.LogCaptureFixture) -> None:
    """They reach the results that see them and no others, whatever runs the region: as a function and as a program of many parts."""
    x, w, b = case(2, 32, 48, side, side)
    x[1, 3, 5, 6] = odd
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
    proto = model(nodes, {"x": x}, ["y"], {"w": w, "b": b})
    made = session(proto, threads)
    usual = np.maximum(RNG.standard_normal(x.shape), 0).astype(np.float32)
    before = made.run(None, {"x": usual})[0]
    with caplog.at_level(logging.WARNING):
        results = [made.run(None, {"x": x})[0] for _ in range(2)]
    (want,) = run_numpy(proto, {"x": x})
    for ours in results:
        np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-4)
    assert caplog.text.count("summed directly") == 1
    np.testing.assert_array_equal(made.run(None, {"x": usual})[0], before)


def test_results_that_are_not_finite_are_bound() -> None:
    x, w, b = case(1, 32, 48, 20, 20)
    x[0, 0, 9, 9] = np.inf
    proto = model([helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)], {"x": x}, ["y"], {"w": w, "b": b})
    made, result = session(proto), np.empty((1, 48, 20, 20), np.float32)
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    made.run_with_iobinding(binding)
    np.testing.assert_allclose(result, run_numpy(proto, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_trips_whose_results_are_not_finite() -> None:
    """A Loop that scales its image until it overflows."""
    x, w, _ = case(1, 16, 16, 12, 12)
    body = onnx.parser.parse_graph("""body (int64 i, bool go, float[1,16,12,12] x) => (bool on, float[1,16,12,12] z) {
        on = Identity(go)
        y = Conv<pads=[1,1,1,1]>(x, w)
        z = Mul(y, scale)
    }""")
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    feeds = {"n": np.array(5), "x": x}
    proto = model(nodes, feeds, ["y"], {"w": w, "scale": np.float32(1e16)})
    np.testing.assert_allclose(session(proto).run(None, feeds)[0], run_numpy(proto, feeds)[0], rtol=1e-4)


def test_switch() -> None:
    """The session config entry keeps to direct convolution, whose error is smaller."""
    x, w, b = case(1, 64, 64, 28, 28)
    proto = model([helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)], {"x": x}, ["y"], {"w": w, "b": b})
    want = conv(np, *(a.astype(np.float64) for a in (x, w, b)), pads=[1] * 4)
    errors = []
    for entry in ("1", "0"):
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("ep.cpu.winograd", entry)
        made = onnxplug.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        errors.append(np.abs(made.run(None, {"x": x})[0] - want).max())
    assert errors[1] < 5e-6 < errors[0]
