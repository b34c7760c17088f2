"""Tiles: each computes the same product; what is measured is kept on disk and read again, whatever else lies there."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_models import PROVIDER, needs_device, one_node, run

import onnxplug as ort
from onnxplug.contract.cache import DiskCache
from onnxplug_ep_opencl import tuning
from onnxplug_ep_opencl.kernels import tiles
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import AnyTile, Work, candidates
from onnxplug_kernel_text.local_product import LocalTile
from onnxplug_kernel_text.tile import Tile

FORMS = ("register", "local")
rng = np.random.default_rng(23)


def work(rows: int = 100, element: str = "f32") -> Work:
    return Work(element, "as it is", "packed", 1, rows, 200, 300)


def target(registers: bool, local_memory: int = 32 << 10, vector: int = 32) -> Target:
    return Target(registers, registers, True, 256, 4, local_memory, vector)


def test_products_of_one_class_have_about_the_same_extents() -> None:
    assert work(65).shape_class == work(128).shape_class != work(129).shape_class


def test_tiles_fit_the_device() -> None:
    for rows in (1, 2, 3, 5, 100):
        for vector in (32, 64):
            for tile in candidates(target(True, vector=vector), work(rows)):
                assert isinstance(tile, Tile)
                registers = tile.vectors * (tile.rows + 1) + 1
                assert registers <= (16 if tile.width == 8 else 32) or tile.rows == 1
                assert tile.rows < rows + 4
    for tile in candidates(target(False, 9000), work()):
        assert isinstance(tile, LocalTile)
        assert tile.local_bytes(4) <= 9000


def test_wider_vectors_have_wider_tiles() -> None:
    tiles_of = {vector: tiles.usual(target(True, vector=vector), work()) for vector in (16, 32, 64)}
    assert tiles_of == {16: Tile(6, 8, 2), 32: Tile(6, 8, 2), 64: Tile(8, 16, 2)}
    assert tiles.usual(target(True, vector=64), work(3, "f64")) == Tile(3, 8, 2)


def test_few_columns_are_one_tile_unless_weights_are_packed_otherwise() -> None:
    wide = target(True, vector=64)
    few = Work("f32", "packed", "as it is", 1, 100, 49, 300)
    assert tiles.usual(wide, few) == tiles.usual(wide, few, {6}) == Tile(6, 16, 4)
    assert (
        tiles.usual(wide, few, {8}) == tiles.usual(target(True, vector=64), replace(few, columns=70)) == Tile(8, 16, 2)
    )
    assert tiles.usual(wide, replace(few, columns=70), {6}) == Tile(6, 16, 4)
    assert tiles.usual(target(True), few) == Tile(6, 8, 2)


GIVEN: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "MatMul": ({"x": (2, 13, 20), "w": (20, 35)}, {}),
    "Gemm": ({"x": (20, 13), "w": (35, 20), "c": (35,)}, {"transA": 1, "transB": 1}),
    "Conv": ({"x": (2, 6, 9, 11), "w": (14, 3, 3, 3)}, {"pads": [1] * 4, "group": 2}),
}


@needs_device
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", GIVEN)
def test_every_tile_computes_the_same(operator: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, attributes = GIVEN[operator]
    feeds = {name: rng.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}
    model = one_node(operator, feeds, constants=("w",), **attributes)
    (want,) = run(model, feeds, kernel_shape=form)
    for wide in (32, 64):
        for tile in candidates(target(form == "register", vector=wide), work(14)):
            monkeypatch.setattr("onnxplug_ep_opencl.kernels.product.usual", lambda *_, tile=tile: tile)
            (got,) = run(model, feeds, kernel_shape=form)
            np.testing.assert_array_equal(got, want)  # integers: exact in any order


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ONNXPLUG_CACHE", raising=False)
    monkeypatch.setattr(tuning, "_known", {})
    return tmp_path / "opencl"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[AnyTile]:
    """The tiles that were measured; of two, the one that is not usual is the faster."""
    seen: list[AnyTile] = []

    def two(target: Target, made: Work) -> list[AnyTile]:
        usual = tiles.usual(target, made)
        return [usual, Tile(4, 8, 1) if isinstance(usual, Tile) else LocalTile(32, 8, 8)]

    def nanoseconds(self: Any, call: Call, tile: AnyTile, make: Any) -> int:
        original(self, call, tile, make)
        seen.append(tile)
        return 100 - len(seen)

    original = tuning.MeasuringTuner._measured
    monkeypatch.setattr(tuning, "candidates", two)
    monkeypatch.setattr(tuning.MeasuringTuner, "_measured", nanoseconds)
    return seen


def read(file: Path) -> Any:
    return json.loads(DiskCache(file.parent, file.suffix, tuning.LIMIT).get(key(file)) or b"")


def key(file: Path) -> str:
    """What the file's content is kept under."""
    return file.name.partition(".")[0]


def product(form: str, caplog: pytest.LogCaptureFixture | None = None, rows: int = 20) -> list[str]:
    """What is warned of while a tuned product is computed, rightly, in what could be a process of its own."""
    x, w = (rng.integers(-8, 8, s).astype(np.float32) for s in ((rows, 24), (24, 40)))
    tuning._known.clear()
    if caplog is not None:
        caplog.clear()
    (got,) = run(one_node("MatMul", {"x": x, "w": w}, constants=("w",)), {"x": x}, kernel_shape=form, tuning="1")
    np.testing.assert_array_equal(got, x @ w)
    return [] if caplog is None else [r.message for r in caplog.records if r.levelno >= logging.WARNING]


@needs_device
@pytest.mark.parametrize("form", FORMS)
def test_a_shape_class_is_measured_once(form: str, folder: Path, measured: list[AnyTile]) -> None:
    for rows in (20, 32, 20):
        product(form, rows=rows)
    assert len(measured) == 2
    (file,) = folder.glob("*.tiles")
    assert read(file) == {repr(measured[0]): 99, repr(measured[1]): 98}
    product(form, rows=33)
    assert len(measured) == 4


@needs_device
def test_nothing_is_measured_unless_it_is_asked_for(folder: Path, measured: list[AnyTile]) -> None:
    x = np.ones((4, 4), np.float32)
    run(one_node("MatMul", {"x": x, "w": x}), {"x": x, "w": x})
    assert not measured and not folder.exists()


@needs_device
@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"Tile": 7}', "slow"])
def test_a_file_that_holds_something_else_is_replaced(
    content: str | None, folder: Path, measured: list[AnyTile], caplog: pytest.LogCaptureFixture
) -> None:
    product("register")
    (file,) = folder.glob("*.tiles")
    if content is None:
        file.write_bytes(b"torn")
    else:
        kept = DiskCache(folder, ".tiles", tuning.LIMIT)
        times = json.dumps({repr(tile): content for tile in measured}) if content == "slow" else content
        kept.put(key(file), times.encode())
    (warning,) = product("register", caplog)
    assert "again" in warning
    assert len(measured) == 4 and read(file) == {repr(measured[0]): 97, repr(measured[1]): 96}


@needs_device
def test_weights_are_packed_once_whatever_is_measured_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fastest = {4: "Tile(rows=4, width=8, vectors=3)", 64: "Tile(rows=4, width=8, vectors=2)"}
    monkeypatch.setattr(
        tuning.MeasuringTuner, "_measured", lambda _, call, tile, __: int(repr(tile) != fastest[call.input(0).shape[0]])
    )
    w = rng.integers(-8, 8, (24, 40)).astype(np.float32)
    data = one_node("MatMul", {"x": np.zeros((4, 24), np.float32), "w": w}, constants=("w",))
    import onnx

    model = onnx.load_from_string(data)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session = ort.InferenceSession(
        model.SerializeToString(), providers=[(PROVIDER, {"tuning": "1", "kernel_shape": "register"})]
    )
    for rows in fastest:
        x = rng.integers(-8, 8, (rows, 24)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x @ w)
