"""Choices between algorithms: measured ones are kept, memory for transformed filters is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen_models import model
from onnx import helper

import onnxplug
from onnxplug.contract.cache import DiskCache
from onnxplug_ep_cpu.codegen import tuning
from onnxplug_ep_cpu.codegen.cache import LIMIT, SUFFIX
from onnxplug_ep_cpu.codegen.tuning import GROWTH, growing

RNG = np.random.default_rng(12)


def case(channels: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.standard_normal((1, channels, 40, 40)).astype(np.float32)
    return x, (RNG.standard_normal((outputs, channels, 3, 3)) / 17).astype(np.float32)


def layers() -> tuple[Any, dict[str, np.ndarray]]:
    """Two layers of which both pay to be transformed; the second has four times the filters."""
    x, w = case(32, 32)
    _, v = case(32, 128)
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
    proto, feed = layers()
    free, bounded = with_entries(proto), with_entries(proto, winograd_memory="0")
    np.testing.assert_allclose(free.run(None, feed)[0], bounded.run(None, feed)[0], rtol=1e-3, atol=1e-3)
    (given,), (none,) = (s.explain().regions for s in (free, bounded))
    assert 0 < given["facts"]["winograd_surplus_bytes"] <= 27 * 4 * 32 * (32 + 128)
    assert all("Winograd" in text for text in given["facts"]["algorithms"].values())
    assert none["facts"]["winograd_surplus_bytes"] == 0
    assert none["facts"]["algorithms"] == {"first": "direct", "second": "direct"}
    with pytest.raises(onnxplug.capi.onnxruntime_pybind11_state.Fail, match="number of megabytes"):
        with_entries(proto, winograd_memory="some")


def test_small_filters_grow_first() -> None:
    proto, _ = layers()
    regions = onnxplug.InferenceSession(proto.SerializeToString())._engine.built.placement.main.units
    region = next(unit.region for unit in regions if hasattr(unit, "region"))
    small, large = GROWTH * 9 * 4 * 32 * 32, GROWTH * 9 * 4 * 32 * 128
    assert growing([region], small - 1) == frozenset()
    assert growing([region], small) == {"w"}
    assert growing([region], small + large) == {"w", "v"}


def test_measured_choices_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer is measured once; what the cache says is what later sessions get, whatever is fast by then."""
    cache = DiskCache(tmp_path, SUFFIX, LIMIT)
    monkeypatch.setattr(tuning, "object_cache", lambda: cache)
    monkeypatch.setattr(tuning, "_tuned", {})
    proto, feed = layers()
    first = with_entries(proto, tune="1")
    (want,) = with_entries(proto).run(None, feed)
    np.testing.assert_allclose(first.run(None, feed)[0], want, rtol=1e-3, atol=1e-3)
    assert len(list(tmp_path.glob("t*.o"))) == 2
    monkeypatch.setattr(tuning, "_tuned", {})
    monkeypatch.setattr(tuning, "_measured", lambda *_: pytest.fail("measured again"))
    again = with_entries(proto, tune="1")
    np.testing.assert_array_equal(again.run(None, feed)[0], first.run(None, feed)[0])
    assert again.explain().regions[0]["facts"] == first.explain().regions[0]["facts"]
