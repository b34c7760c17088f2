"""Generated regions that run trip after trip by themselves: on several threads, for several callers, up to data that stop them."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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


GROWING = """<ir_version: 9, opset_import: ["": 20]> g (int64 n, float[{size}] x) => (y) {{
    y = Loop <body = b (int64 i, bool go, float[{size}] v) => (on, w) {{ on = Identity(go) w = {node} }}> (n, , x) }}"""


@pytest.mark.parametrize(
    ("size", "node", "is_region"),
    [("4", "Neg(v)", True), ("K", "Neg(v)", False), ("K", "Concat <axis = 0> (v, v)", False)],
)
def test_a_body_of_one_light_node_is_a_region_where_all_trips_have_its_shapes(
    size: str, node: str, is_region: bool
) -> None:
    made = session(GROWING.format(size=size, node=node))
    (found,) = [n for n in made.explain().nodes if n["op_type"] in ("Neg", "Concat")]
    assert (found["region"] is not None) is is_region
    x = np.arange(4, dtype=np.float32)
    for trips in (0, 1, 3):
        wanted = np.tile(x, 2**trips) if "Concat" in node else x * (-1) ** trips
        np.testing.assert_array_equal(made.run(None, {"n": np.array(trips), "x": x})[0], wanted)


BRANCHING = """<ir_version: 9, opset_import: ["": 20]> g (int64 n, float[4] x, float[4, 4] m) => (y) {
    two = Constant <value_int = 2> ()
    zero = Constant <value_int = 0> ()
    y = Loop <body = b (int64 i, bool go, float[4] v) => (on, w) {
        on = Identity(go) r = Mod(i, two) q = Equal(r, zero)
        w = If(q) <then_branch = t () => (float[4] p) { p = Neg(v) }, else_branch = e () => (float[4] s) {
            a = Cos(v) k = Loop <body = c (int64 j, bool h, float[4] d) => (g2, f) { g2 = Identity(h) f = MatMul(d, m) }> (two, , a)
            s = Add(k, v) }> }> (n, , x) }"""


def test_branches_in_a_loop_for_callers_at_once_and_in_a_profile(tmp_path: Path) -> None:
    """Each frame has functions of its own for the branches; a profile sees their nodes."""
    m = RNG.standard_normal((4, 4), np.float32) / 8

    def wanted(x: np.ndarray, trips: int) -> np.ndarray:
        for trip in range(trips):
            x = x + np.cos(x) @ m @ m if trip % 2 else -x
        return x

    def run(seed: int) -> None:
        x, trips = np.random.default_rng(seed).standard_normal(4, np.float32), seed % 7
        (y,) = made.run(None, {"n": np.array(trips), "x": x, "m": m})
        np.testing.assert_allclose(y, wanted(x, trips), rtol=1e-4, atol=1e-5)

    options = onnxplug.SessionOptions()
    for profiled in (False, True):
        options.enable_profiling, options.profile_file_prefix = profiled, str(tmp_path / "p")
        made = onnxplug.InferenceSession(
            onnx.parser.parse_model(BRANCHING).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        with ThreadPoolExecutor(4) as callers:
            list(callers.map(run, range(28)))
    events = json.loads(Path(made.end_profiling()).read_text())
    assert {"Neg", "Cos", "MatMul"} <= {event["args"].get("op_name") for event in events}
