"""Loops along sequences: the same as trip by trip through the whole body, whatever else the body does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug as ort
from onnxplug.contract.errors import TERMINATED, Fail
from onnxplug.run.loop import Loop

HEAD = '<ir_version: 9, opset_import: ["": 20]>\n'
MAP = """g (seq(float[N, 4]) s, int64 n) => (seq(float[N, 4]) y) <bool t = {1}> { e = SequenceEmpty() y = Loop(n, t, e)
    <body = b (int64 i, bool c, seq(float[]) acc) => (bool d, seq(float[]) more) { p = SequenceAt(s, i)
    q = Mul(p, p) r = Add(q, p) more = SequenceInsert(acc, r) d = Identity(c) }> }"""
NUMBERED = """g (seq(float[N, 4]) s, int64 n) => (seq(float[N, 4]) y, seq(float[]) z, float[M, K, 4] w) <bool t = {1}> {
    e = SequenceEmpty() f = SequenceConstruct(k) k = SequenceAt(s, zero) zero = Constant<value_int = 0>()
    y, z, w = Loop(n, t, f, e) <body = b (int64 i, bool c, seq(float[]) acc, seq(float[]) bcc)
    => (bool d, seq(float[]) more, seq(float[]) less, float[K, 4] row) { p = SequenceAt(s, i) x = Cast<to = 1>(i) q = Mul(p, x)
    row = Add(q, k) more = SequenceInsert(acc, q) less = SequenceInsert(bcc, x) d = Identity(c) }> }"""
NUMBERED = NUMBERED.replace(
    "f = SequenceConstruct(k) k = SequenceAt(s, zero) zero = Constant<value_int = 0>()",
    "zero = Constant<value_int = 0>() k = SequenceAt(s, zero) f = SequenceConstruct(k)",
)
CARRIED = """g (seq(float[N, 4]) s, int64 n) => (float[K] h, seq(float[]) y) <bool t = {1}, float[1] o = {0}, int64[2] ax = {0, 1}> {
    e = SequenceEmpty() h, y = Loop(n, t, o, e) <body = b (int64 i, bool c, float[K] v, seq(float[]) acc)
    => (bool d, float[K] u, seq(float[]) more) { p = SequenceAt(s, i) r = ReduceSum<keepdims = 0>(p, ax) u = Add(v, r)
    more = SequenceInsert(acc, u) d = Identity(c) }> }"""
DECIDES = """g (seq(float[N, 4]) s, int64 n) => (seq(float[]) y) <bool t = {1}, float most = {2.5}, int64[2] ax = {0, 1}> {
    e = SequenceEmpty() y = Loop(n, t, e) <body = b (int64 i, bool c, seq(float[]) acc) => (bool d, seq(float[]) more) {
    p = SequenceAt(s, i) more = SequenceInsert(acc, p) r = ReduceMax<keepdims = 0>(p, ax) d = Less(r, most) }> }"""
ITEMS = """g (seq(float[N, 4]) s, int64 n) => (seq(float[N, 4]) y) <bool t = {1}> { y = Loop(n, t, s)
    <body = b (int64 i, bool c, seq(float[]) acc) => (bool d, seq(float[]) more) { p = SequenceAt(s, i)
    more = SequenceInsert(acc, p) d = Identity(c) }> }"""
WORDS = """g (seq(string[N]) s, int64 n) => (seq(string[N]) y) <bool t = {1}> { e = SequenceEmpty<dtype = 8>() y = Loop(n, t, e)
    <body = b (int64 i, bool c, seq(string[]) acc) => (bool d, seq(string[]) more) { p = SequenceAt(s, i)
    q = StringConcat(p, p) more = SequenceInsert(acc, q) d = Identity(c) }> }"""
TWICE = """g (seq(float[N, 4]) s, int64 n) => (seq(float[]) y, seq(float[]) z) <bool t = {1}> { e = SequenceEmpty() f = SequenceEmpty()
    y, z = Loop(n, t, e, f) <body = b (int64 i, bool c, seq(float[]) acc, seq(float[]) bcc) => (bool d, seq(float[]) more,
    seq(float[]) less) { p = SequenceAt(s, i) q = Mul(p, p)
    more = SequenceInsert(acc, q) less = SequenceInsert(bcc, q) d = Identity(t) }> }"""
WALKING = {
    "map": MAP, "numbered": NUMBERED, "carried": CARRIED, "decides": DECIDES, "items": ITEMS, "words": WORDS, "twice": TWICE,
    "carried on": CARRIED.replace("d = Identity(c)", "d = Identity(t)"),
}  # fmt: skip
NOT = {
    "reads what it appends to": MAP.replace("q = Mul(p, p)", "l = SequenceLength(acc) m = Cast<to = 1>(l) q = Mul(p, m)"),
    "puts in front": MAP.replace("SequenceInsert(acc, r)", "SequenceInsert(acc, r, z)").replace("= {1}>", "= {1}, int64 z = {0}>"),
}  # fmt: skip


def session(text: str) -> ort.InferenceSession:
    source = onnx.parser.parse_model(HEAD + text).SerializeToString()
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"])


def loop(made: ort.InferenceSession) -> Loop:
    return next(k for k in made._engine.built.runtime._bound.values() if isinstance(k, Loop))


def plain(text: str, patch: pytest.MonkeyPatch) -> ort.InferenceSession:
    with patch.context() as patched:
        patched.setattr("onnxplug.run.loop.walk_of", lambda unit, carried: None)
        made = session(text)
        assert loop(made)._walk is None
    return made


def feed(name: str, count: int, trips: int, alike: bool = False) -> dict[str, Any]:
    draw = np.random.default_rng(count)
    items: list[Any] = [draw.standard_normal((2 if alike else 1 + at % 3, 4)).astype(np.float32) for at in range(count)]
    if name == "words":
        items = [np.array([f"w{at}"] * (1 + at % 2), object) for at in range(count)]
    return {"s": items, "n": np.array(trips)}


def outcome(made: ort.InferenceSession, fed: dict[str, Any]) -> list[Any]:
    try:
        return made.run(None, fed)
    except Exception as error:
        return [type(error), str(error)]


def plainly(value: Any) -> Any:
    """Something to compare."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    return [*map(plainly, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [*WALKING, *NOT])
def test_as_trip_by_trip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With items of one shape and of several, no trips, fewer than items, more than there is room for, and more than items."""
    text = {**WALKING, **NOT}[name]
    walking, by_trip = session(text), plain(text, monkeypatch)
    assert (loop(walking)._walk is None or not loop(walking)._walk.collected) == (name in NOT)
    for count, trips, alike in (
        (3, 3, False),
        (3, 3, True),
        (4, 0, False),
        (5, 2, False),
        (40, 40, True),
        (2, 4, False),
    ):
        fed = feed(name, count, trips, alike)
        assert plainly(outcome(walking, fed)) == plainly(outcome(by_trip, fed))


def test_what_a_map_makes_is_its_own() -> None:
    made, fed = session(ITEMS), feed("items", 3, 3)
    (y,) = made.run(None, fed)
    arrays = [*fed["s"], *y]
    assert len(y) == 6
    for at, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:at])
    (again,) = made.run(None, feed("items", 3, 3))
    assert plainly(again) == plainly(y)


@pytest.mark.parametrize("name", ["carried", "carried on", "twice"])
def test_what_is_appended_twice_or_carried_too_is_its_own(name: str) -> None:
    fed = feed(name, 3, 3, alike=True)
    results = session(WALKING[name]).run(None, fed)
    arrays = [*fed["s"], *[a for r in results for a in (r if isinstance(r, list) else [r])]]
    for at, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:at])


def test_more_shapes_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxplug.run.plans.OF_BODY", 2)
    made = session(MAP)
    for _ in range(3):
        fed = feed("map", 9, 9)
        (y,) = made.run(None, fed)
        for item, x in zip(y, fed["s"], strict=True):
            np.testing.assert_array_equal(item, x * x + x)


def test_a_walk_ends_when_it_is_told_to() -> None:
    made, options = session(MAP), ort.RunOptions()
    made.run(None, feed("map", 3, 3))
    options.terminate = True
    with pytest.raises(Fail, match=TERMINATED):
        made.run(None, feed("map", 3, 3), options)


def test_a_profile_sees_the_steps_of_the_body(tmp_path: Any) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    source = onnx.parser.parse_model(HEAD + MAP).SerializeToString()
    made = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    made.run(None, feed("map", 3, 3))
    text = Path(made.end_profiling()).read_text()
    assert "SequenceAt" in text and "SequenceInsert" in text
