"""Generated regions that run trip after trip by themselves: on several threads, for several callers, up to data that stop them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_cpu.codegen.pool import Pool

RNG = np.random.default_rng(11)
CELL = """<ir_version: 9, opset_import: ["": 20]> g (float[B, H] h, float[T, B, H] x, float[H, H] u) => (z, y) {
    z, y = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = b (float[M, H] s, float[M, H] e) => (t, o) {
        p = MatMul(s, u) q = Add(p, e) t = Tanh(q) o = Neg(t) }> (h, x) }"""
LOOKED_UP = """<ir_version: 9, opset_import: ["": 20]> g (float[4] x, int64[N] at, float[6, 4] table) => (y, s) {
    y, s = Scan <num_scan_inputs = 1, body = b (float[4] v, int64 k) => (w, o) {
        r = Gather(table, k) a = Add(v, r) w = Tanh(a) o = Neg(w) }> (x, at) }"""


def session(text: str, threads: int = 1) -> Any:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    source = onnx.parser.parse_model(text).SerializeToString()
    return onnxplug.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def cell(h: np.ndarray, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    state, rows = h.astype(np.float64), []
    for row in x[::-1]:
        state = np.tanh(state @ u + row)
        rows.append(-state)
    return state, np.stack(rows)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trips of each region that was bound are shared among threads."""
    seen: list[bool] = []
    trips = Pool.trips
    monkeypatch.setattr(
        Pool, "trips", lambda self, image, table: seen.append(image.shared) or trips(self, image, table)
    )
    return seen


CHAIN = """<ir_version: 9, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { s = Tanh(x) t = Add(s, x) y = Exp(t) }"""


@pytest.mark.parametrize(("text", "feeds"), [(CHAIN, {"x": (4,)}), (CELL, {"h": (1, 8), "x": (5, 1, 8), "u": (8, 8)})])
def test_what_runs_trips_is_compiled_for_loops(text: str, feeds: dict[str, tuple[int, ...]]) -> None:
    code = (
        "import sys, numpy, onnx.parser, onnxplug; source = onnx.parser.parse_model(sys.argv[1]).SerializeToString()\n"
        "session = onnxplug.InferenceSession(source, providers=['CPUExecutionProvider'])\n"
        f"session.run(None, {{n: numpy.zeros(s, numpy.float32) for n, s in {feeds}.items()}})\n"
        "print('onnxplug_ep_cpu.codegen.pool' in sys.modules, 'onnxplug_ep_cpu.codegen.trips' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
    assert done.stdout == f"True {text is CELL}\n"


@pytest.mark.parametrize(("batch", "size", "threads"), [(1, 8, 1), (1, 8, 2), (96, 160, 1), (96, 160, 2)])
def test_trips_on_threads(batch: int, size: int, threads: int, launches: list[bool]) -> None:
    made = session(CELL, threads)
    h, x = (RNG.standard_normal(s, np.float32) for s in ((batch, size), (5, batch, size)))
    u = RNG.standard_normal((size, size), np.float32) / size
    for _ in range(3):
        for mine, wanted in zip(made.run(None, {"h": h, "x": x, "u": u}), cell(h, x, u), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    assert launches == [threads > 1 and batch > 1]


@pytest.mark.parametrize("size", [8, 160])
def test_callers_at_once(size: int) -> None:
    made = session(CELL, 2)
    u = RNG.standard_normal((size, size), np.float32) / size

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for length in (1, 4, 3):
            h, x = (rng.standard_normal(s, np.float32) for s in ((32, size), (length, 32, size)))
            for mine, wanted in zip(made.run(None, {"h": h, "x": x, "u": u}), cell(h, x, u), strict=True):
                np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(run, range(8)))


def test_data_that_stop_a_trip() -> None:
    """The program's check of the data of one trip is that trip's error, and the next run is whole."""
    made = session(LOOKED_UP)
    x, table = RNG.standard_normal(4, np.float32), RNG.standard_normal((6, 4), np.float32)
    right, wrong = np.array([0, 5, -6, 2]), np.array([1, 2, 6, 3])
    state = x
    for k in right:
        state = np.tanh(state + table[k])
    for _ in range(2):
        y, s = made.run(None, {"x": x, "at": right, "table": table})
        np.testing.assert_allclose(y, state, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(s[-1], -state, rtol=1e-4, atol=1e-6)
        with pytest.raises(InvalidArgument, match="Gather"):
            made.run(None, {"x": x, "at": wrong, "table": table})


OLD = """<ir_version: 3, opset_import: ["": 8]> g (int64[B] n, float[B, H] h, float[B, T, 3] x, float[H, H] u, float[3, H] w) => (z, y) {
    z, y = Scan <num_scan_inputs = 1, body = b (float[M] s, float[3] e) => (t, o) {
        p = MatMul(s, u) q = MatMul(e, w) r = Add(p, q) t = Tanh(r) o = Neg(t) }> (n, h, x) }"""


def test_batches_of_the_first_scan(launches: list[bool]) -> None:
    """Version 8 runs each batch by itself; its body knows the shapes of one."""
    made = session(OLD)
    feed = {
        name: RNG.standard_normal(shape, np.float32)
        for name, shape in {"h": (2, 5), "x": (2, 4, 3), "u": (5, 5), "w": (3, 5)}.items()
    }
    z, y = made.run(None, {"n": np.array([4, 2]), **feed})
    assert launches
    for batch, length in enumerate([4, 2]):
        state = feed["h"][batch]
        for trip in range(length):
            state = np.tanh(state @ feed["u"] + feed["x"][batch, trip] @ feed["w"])
            np.testing.assert_allclose(y[batch, trip], -state, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(z[batch], state, rtol=1e-4, atol=1e-5)
    assert not y[1, 2:].any()
