"""Winograd convolution: error bounds against float64, edges, and the switch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxplug
from onnxplug_ep_cpu.codegen import choices
from onnxplug_ep_cpu.codegen.cache import ObjectCache
from onnxplug_ep_cpu.codegen.choices import growing
from onnxplug_ep_cpu.codegen.lower import winograd
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_kernels.ops.conv import conv
from onnxplug_kernels.windows import windows

RNG = np.random.default_rng(11)


def case(images: int, channels: int, outputs: int, height: int, width: int) -> tuple[np.ndarray, ...]:
    """Activations as after a Relu, and filters that keep their scale."""
    x = np.maximum(RNG.standard_normal((images, channels, height, width)), 0).astype(np.float32)
    w = (RNG.standard_normal((outputs, channels, 3, 3)) * np.sqrt(2 / (9 * channels))).astype(np.float32)
    return x, w, RNG.standard_normal(outputs).astype(np.float32)


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray, pads: list[int]) -> tuple[np.ndarray, np.ndarray]:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads)]
    (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"w": w, "b": b}), {"x": x})
    return ours, conv(np, *(a.astype(np.float64) for a in (x, w, b)), pads=pads)


@pytest.mark.parametrize(
    ("channels", "outputs", "side"),
    ((16, 16, 40), (64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7), (96, 160, 17)),
)
def test_error(channels: int, outputs: int, side: int) -> None:
    """F(4x4) errs by some 1.5e-5 of the output's rms on these layers, growing with the root of the channels; twice
    that is allowed to the worst of all elements."""
    x, w, b = case(1, channels, outputs, side, side)
    ours, want = convolved(x, w, b, [1, 1, 1, 1])
    rms = np.sqrt((want**2).mean())
    assert np.abs(ours - want).max() / rms < 3e-5 * max(1.0, np.sqrt(channels / 256))


@pytest.mark.parametrize("size", (2, 4))
@settings(max_examples=15)
@given(st.data())
def test_edges(size: int, data: st.DataObject) -> None:
    """Tiles beyond the image, uneven padding, several images, channels that are no multiple of a vector."""
    height, width = data.draw(st.integers(1, 11)), data.draw(st.integers(1, 11))
    pads = [data.draw(st.integers(0, 2)) for _ in range(4)]
    pads[2], pads[3] = max(pads[2], 3 - height - pads[0]), max(pads[3], 3 - width - pads[1])
    lanes = host_target().lanes
    channels, outputs = (data.draw(st.integers(lanes, 3 * lanes)) for _ in range(2))
    x, w, b = case(data.draw(st.integers(1, 3)), channels, outputs, height, width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onnxplug_ep_cpu.codegen.lower.conv.times", lambda *_: {size: 0.0})
        patch.setattr(winograd, "CHUNK", data.draw(st.sampled_from((1, 1 << 20))))
        ours, want = convolved(x, w, b, pads)
    assert ours.shape == want.shape
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-4)


def test_runs_agree_bit_by_bit() -> None:
    x, w, b = case(2, 32, 48, 30, 21)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4)]
    made = [session(model(nodes, {"x": x}, ["y"], {"w": w, "b": b}), threads) for threads in (1, 2)]
    first, *others = (s.run(None, {"x": x})[0] for s in (made[0], made[1], made[1]))
    for other in others:
        np.testing.assert_array_equal(first, other)


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


def test_choice() -> None:
    """Large tiles for large images, direct convolution where there is little to gain or nothing to transform."""
    target = host_target()
    moves = windows((56, 56), (3, 3), pads=[1] * 4)

    def best_size(*layer: Any) -> int:
        estimated = winograd.times(*layer)
        return min(estimated, key=lambda size: estimated[size])

    assert best_size(target, (1, 64, 56, 56), 64, moves) == 4
    assert best_size(target, (1, 64, 56, 56), 3, moves) == 0
    assert best_size(target, (1, 64, 28, 28), 64, windows((56, 56), (3, 3), pads=[1] * 4, strides=[2, 2])) == 0
    assert best_size(target, (0, 64, 56, 56), 64, moves) == 0


def layers() -> tuple[Any, dict[str, np.ndarray]]:
    """Two layers of which both pay to be transformed; the second has four times the filters."""
    x, w, _ = case(1, 32, 32, 40, 40)
    _, v, _ = case(1, 32, 128, 40, 40)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["h", "v"], ["y"], "second", pads=[1] * 4),
    ]
    return model(nodes, {"x": x}, ["y"], {"w": w, "v": v}), {"x": x}


def with_entries(proto: Any, **entries: str) -> Any:
    options = onnxplug.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(f"ep.cpu.{key}", value)
    return onnxplug.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_memory_for_filters_is_bounded_and_reported() -> None:
    """32 x 32 filters may grow by 108 kB, 128 x 32 by 432 kB."""
    proto, feed = layers()
    free, bounded = with_entries(proto), with_entries(proto, winograd_memory="0")
    np.testing.assert_allclose(free.run(None, feed)[0], bounded.run(None, feed)[0], rtol=1e-3, atol=1e-3)
    (given,), (none,) = (s.explain().regions for s in (free, bounded))
    assert 0 < given["facts"]["winograd_surplus_bytes"] <= 27 * 4 * 32 * (32 + 128)
    assert all("Winograd" in text for text in given["facts"]["algorithms"].values())
    assert none["facts"]["winograd_surplus_bytes"] == 0 and none["facts"]["algorithms"] == {}
    with pytest.raises(onnxplug.capi.onnxruntime_pybind11_state.Fail, match="number of megabytes"):
        with_entries(proto, winograd_memory="some")


def test_small_filters_grow_first() -> None:
    proto, _ = layers()
    regions = onnxplug.InferenceSession(proto.SerializeToString())._engine.built.placement.main.units
    region = next(unit.region for unit in regions if hasattr(unit, "region"))
    small, large = 27 * 4 * 32 * 32, 27 * 4 * 32 * 128
    assert growing([region], None) is None
    assert growing([region], small - 1) == frozenset()
    assert growing([region], small) == {"w"}
    assert growing([region], small + large) == {"w", "v"}


def test_measured_choices_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer is measured once; what the cache says is what later sessions get, whatever is fast by then."""
    cache = ObjectCache(tmp_path)
    monkeypatch.setattr(choices, "object_cache", lambda: cache)
    monkeypatch.setattr(choices, "_tuned", {})
    proto, feed = layers()
    first = with_entries(proto, tune="1")
    (want,) = with_entries(proto).run(None, feed)
    np.testing.assert_allclose(first.run(None, feed)[0], want, rtol=1e-3, atol=1e-3)
    assert len(list(tmp_path.glob("t*.o"))) == 2
    monkeypatch.setattr(choices, "_tuned", {})
    monkeypatch.setattr(choices, "_measured", lambda *_: pytest.fail("measured again"))
    again = with_entries(proto, tune="1")
    np.testing.assert_array_equal(again.run(None, feed)[0], first.run(None, feed)[0])
    assert again.explain().regions[0]["facts"] == first.explain().regions[0]["facts"]
