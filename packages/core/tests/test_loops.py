"""Loop and Scan: trip after trip in one frame where shapes allow it, else body by body; the results are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU

import onnxplug
from onnxplug.run.lane import ROOM, Lane


def session(text: str, codegen: bool) -> Any:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "1" if codegen else "0")
    return onnxplug.InferenceSession(model(text), options, providers=[CPU])


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Trips of each run of a lane."""
    seen: list[int] = []
    run = Lane.run

    def counted(self: Lane, *arguments: Any) -> int:
        seen.append(run(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(Lane, "run", counted)
    return seen


DOUBLING = """g (float[2] x, bool b, int64 n, float most) => (y, s, i) { y, s, i = Loop (n, b, x) <body =
    l (int64 i, bool c, float[2] v) => (bool d, o, p, q) {
        o = Add(v, v) p = Neg(v) q = Mul(i, i) m = ReduceMax<keepdims = 0>(o) d = Less(m, most) }> }"""


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize("trips", [1, 2, ROOM, ROOM + 1, 100])
def test_a_loop_stops_where_its_condition_says_so(trips: int, codegen: bool, lanes: list[int]) -> None:
    x = np.array([1.0, 0.5], np.float32)
    most = np.array(2.0**trips, np.float32)
    y, s, i = session(DOUBLING, codegen).run(None, {"x": x, "b": np.array(True), "n": np.array(2**62), "most": most})
    np.testing.assert_array_equal(y, x * 2.0**trips)
    np.testing.assert_array_equal(s, [-x * 2.0**t for t in range(trips)])
    np.testing.assert_array_equal(i, np.arange(trips) ** 2)
    assert sum(lanes) == trips


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize("trips", [0, 1, 3, ROOM, 2 * ROOM + 5])
def test_a_loop_stops_at_its_limit(trips: int, codegen: bool) -> None:
    made = session(DOUBLING, codegen)
    feed = {"x": np.zeros(2, np.float32), "b": np.array(True), "n": np.array(trips), "most": np.array(1, np.float32)}
    first = made.run(None, feed)
    assert [r.shape for r in first] == [(2,), (trips, 2) if trips else first[1].shape, (trips,)]
    again = made.run(None, {**feed, "x": np.ones(2, np.float32), "most": np.array(np.inf, np.float32)})
    assert not first[1].any(), "results are the caller's own"
    np.testing.assert_array_equal(again[0], np.full(2, 2.0**trips, np.float32))
    assert len(made.run(None, {**feed, "b": np.array(False)})[1]) == 0


def test_a_value_that_grows_leaves_the_lane(lanes: list[int]) -> None:
    made = session(
        """g (float[N] x, int64 n) => (y) { t = Constant<value = bool {1}>() y = Loop (n, t, x) <body =
        l (int64 i, bool c, float[M] v) => (bool d, o) { d = Identity(c) w = Neg(v) o = Concat<axis = 0>(v, w) }> }""",
        True,
    )
    (y,) = made.run(None, {"x": np.ones(1, np.float32), "n": np.array(3)})
    np.testing.assert_array_equal(y, [1, -1, -1, 1, -1, 1, 1, -1])
    assert not lanes


SCAN = """g (float[3] h, float[%s] x, float[3, 4] w) => (z, y) { v = Transpose(w) z, y = Scan <num_scan_inputs = 1,
    scan_input_axes = [%d], scan_input_directions = [%d], scan_output_axes = [%d], scan_output_directions = [%d], body =
    b (float[3] s, float[4] e) => (t, o) { p = MatMul(e, v) q = Add(s, p) t = Tanh(q) o = Neg(t) }> (h, x) }"""


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("length", [1, 5, ROOM + 3])
def test_scans_in_every_direction(codegen: bool, axis: int, backward: int, length: int, lanes: list[int]) -> None:
    made = session(SCAN % ("4, N" if axis else "N, 4", axis, backward, axis, 1 - backward), codegen)
    rng = np.random.default_rng(length)
    h, x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3,), (length, 4), (3, 4)))
    state, rows = h, []
    for row in x[::-1] if backward else x:
        state = np.tanh(state + row @ w.T)
        rows.append(-state)
    expected = np.stack(rows)[:: 1 if backward else -1]
    z, y = made.run(None, {"h": h, "x": np.ascontiguousarray(x.T) if axis else x, "w": w})
    # tanh damps: an error of one trip, a few units of the last place, does not grow in the next
    np.testing.assert_allclose(z, state, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(y, expected.T if axis else expected, rtol=2e-5, atol=1e-6)
    assert sum(lanes) == length


def test_a_scan_over_scalars() -> None:
    made = session(
        """g (float h, float[N] x) => (z, y) { z, y = Scan <num_scan_inputs = 1, body =
        b (float s, float e) => (t, o) { t = Add(s, e) o = Mul(t, e) }> (h, x) }""",
        True,
    )
    z, y = made.run(None, {"h": np.array(1, np.float32), "x": np.arange(5, dtype=np.float32)})
    assert z == 11 and y.tolist() == [0, 2, 8, 21, 44]


def test_a_loop_ends_when_its_run_is_terminated() -> None:
    made = session(DOUBLING, True)
    options = onnxplug.RunOptions()
    options.terminate = True
    feed = {"x": np.zeros(2, np.float32), "b": np.array(True), "n": np.array(9), "most": np.array(1, np.float32)}
    with pytest.raises(Exception, match="terminate flag"):
        made.run(None, feed, options)
    assert made.run(None, feed)[1].shape == (9, 2)


@pytest.mark.parametrize("codegen", [True, False])
def test_data_of_one_trip_that_cannot_be(codegen: bool, lanes: list[int]) -> None:
    """A look-up behind the end is that trip's error; those before it are fine, whoever looks."""
    made = session(
        """g (float[2] x, int64 n) => (y, s) <float[3, 2] t = {1, 1, 2, 2, 3, 3}> { b = Constant<value = bool {1}>()
        y, s = Loop (n, b, x) <body = l (int64 i, bool c, float[2] v) => (bool d, o, p) {
            e = Gather(t, i) o = Add(v, e) p = Neg(o) d = Identity(c) }> }""",
        codegen,
    )
    feed = {"x": np.zeros(2, np.float32), "n": np.array(3)}
    y, s = made.run(None, feed)
    np.testing.assert_array_equal(y, [6, 6])
    np.testing.assert_array_equal(s, -np.float32([[1, 1], [3, 3], [6, 6]]))
    assert sum(lanes) == 3
    with pytest.raises(Exception, match="Gather"):
        made.run(None, {**feed, "n": np.array(5)})
    np.testing.assert_array_equal(made.run(None, feed)[0], [6, 6])


STEADY = {
    "a constant of the body": "(bool d, o, p)|d = Constant<value = bool {1}>()|",
    "a constant of the graph": "(bool d, o, p)|d = Identity(yes)|",
    "handed on": "(bool d, o, p)|d = Identity(c)|",
    "the input itself": "(bool c, o, p)||",
    "read by others": "(bool d, o, p, r)|d = Identity(c) r = Not(d)|, r",
    "a row too": "(bool d, o, p, d)|d = Identity(c)|, r",
    "a constant that ends it": "(bool d, o, p)|d = Constant<value = bool {0}>()|",
    "a constant of the graph that ends it": "(bool d, o, p)|d = Identity(no)|",
}


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize(
    "body", ["o = Add(v, v) p = Neg(o)", "k = Mul(i, i) s = Cast<to = 1>(k) o = Add(v, s) p = Concat<axis = 0>(v, o)"]
)
@pytest.mark.parametrize("way", STEADY)
def test_a_condition_that_stays_as_it_is(way: str, body: str, codegen: bool, tmp_path: Path) -> None:
    outputs, condition, more = STEADY[way].split("|")
    text = f"""g (float[2] x, int64 n) => (y, q{more}) {{ yes = Constant<value = bool {{1}}>() no = Constant<value = bool {{0}}>()
        y, q{more} = Loop (n, yes, x) <body = l (int64 i, bool c, float[2] v) => {outputs} {{ {body} {condition} }}> }}"""
    reference = onnxplug.InferenceSession(model(text), providers=["ReferenceExecutionProvider"])
    made, options = session(text, codegen), onnxplug.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    profiled = onnxplug.InferenceSession(model(text), options, providers=[CPU])
    for trips in (3, 0, 1, ROOM + 1):
        feed = {"x": np.array([1, -2], np.float32), "n": np.array(trips)}
        for mine, other, wanted in zip(
            made.run(None, feed), profiled.run(None, feed), reference.run(None, feed), strict=True
        ):
            assert mine.shape == other.shape == wanted.shape and mine.dtype == other.dtype == wanted.dtype
            np.testing.assert_allclose(mine, wanted, rtol=1e-5)
            np.testing.assert_allclose(other, wanted, rtol=1e-5)


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize("trips", [1, 3, ROOM + 1])
@pytest.mark.parametrize("rows", ["1", "N"])
def test_a_body_is_told_of_its_trips_in_the_rank_that_it_declares(rows: str, trips: int, codegen: bool) -> None:
    """tf2onnx's crop_and_resize cuts its boxes by the trip's number without making a vector of it."""
    text = f"""g (float[M, 2] x, int64 n, bool[1] b) => (float[A, B, C] s, bool[D, E] g) {{ s, g = Loop (n, b) <body =
        l (int64[{rows}] i, bool[1] c) => (bool[1] d, float[P, Q] row, bool[1] going) {{
            one = Constant<value = int64[1] {{1}}>() zero = Constant<value = int64[1] {{0}}>() j = Add(i, one)
            row = Slice(x, i, j, zero) d = Identity(c) going = Identity(c) }}> }}"""
    x = np.arange(2 * trips, dtype=np.float32).reshape(-1, 2)
    s, g = session(text, codegen).run(None, {"x": x, "n": np.array(trips), "b": np.array([True])})
    np.testing.assert_array_equal(s, x[:, None])
    np.testing.assert_array_equal(g, np.ones((trips, 1), bool))


GROWING = """g (float[2] x, int64 n, bool b) => (float[m] y, float[k] z, float[l] w) <float[1] one = {1}, int64 last = {-1}> {
    s = SequenceConstruct(x)
    t = Loop (n, b, s) <body = l (int64 i, bool c, seq(float) v) => (bool d, seq(float) o) {
        d = Identity(c) e = SequenceAt(v, last) f = Concat<axis: int = 0>(e, one) o = SequenceInsert(v, f) }>
    y = SequenceAt(t, last)
    u = If (b) <then_branch = p () => (seq(float) q) { q = SequenceConstruct(one) },
                else_branch = r () => (seq(float) q) { q = SequenceConstruct(x) }>
    z = SequenceAt(u, last)
    h = Optional(one)
    a = If (b) <then_branch = p () => (optional(float) q) { q = Identity(h) },
                else_branch = r () => (optional(float) q) { q = Optional(x) }>
    w = OptionalGetElement(a) }"""


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize(("trips", "way"), [(0, True), (3, True), (3, False)])
def test_sequences_whose_elements_grow_from_trip_to_trip_or_differ_by_branch(
    trips: int, way: bool, codegen: bool
) -> None:
    """onnx infers the first element's shape for all of them."""
    feeds = {"x": np.zeros(2, np.float32), "n": np.array(trips), "b": np.array(way)}
    y, z, w = session(GROWING, codegen).run(None, feeds)
    assert y.tolist() == [0, 0] + [1] * (trips if way else 0)
    assert z.tolist() == w.tolist() == ([1] if way else [0, 0])
