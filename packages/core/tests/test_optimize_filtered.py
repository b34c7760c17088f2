"""Sequences to which some trips of a loop append: what the passes make of them, and that results stay."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_passes import OFF, ops, session
from hypothesis import given, settings
from hypothesis import strategies as st

ITEMS = {
    "made in the branch": ("", "p0 = Neg(r) p = SequenceInsert(s, p0)"),
    "made in the body": ("m = Neg(r)", "p = SequenceInsert(s, m)"),
    "a row at the trip's number": ("", "p0 = Gather(x, i) p = SequenceInsert(s, p0)"),
    "from outside of the loop": ("", "p = SequenceInsert(s, w)"),
    "a constant": ("", "p0 = Constant<value_floats = [1.0, 2.0]>() p = SequenceInsert(s, p0)"),
}
WAYS = ["kept", "left out", "with a count"]


def body(way: str, item: str) -> str:
    before, append = ITEMS[item]
    append, same = f"() => (p) {{ {append} }}", "() => (q) { q = Identity(s) }"
    if way == "with a count":
        append, same = (
            append.replace("(p) {", "(p, e) { e = Add(n, one)"),
            same.replace("(q) {", "(q, f) { f = Identity(n)"),
        )
    first, second = (same, append) if way == "left out" else (append, same)
    made = "t, c = " if way == "with a count" else "c = Identity(n) t = "
    return f"{before} {made} If (k) <then_branch = a {first}, else_branch = b {second}>"


def whole(way: str, item: str, join: str) -> str:
    return f"""g (float[T, 2] x, float[2] w, float most) => (y, int64 count) <int64 none = {{0}}, int64 one = {{1}}> {{
        h = Shape<start = 0, end = 1>(x) n0 = Squeeze(h) e = SequenceEmpty<dtype = 1>()
        l, count = Loop (n0, , e, none) <body = b (int64 i, bool g, seq(float[2]) s, int64 n) => (bool d, seq(float[2]) t, int64 c) {{
            d = Identity(g) r = Gather(x, i) z = ReduceSum<keepdims = 0>(r) k = Less(z, most) {body(way, item)} }}>
        y = ConcatFromSequence<{join}>(l) }}"""


@functools.cache
def sessions(text: str) -> list[Any]:
    """With passes and without."""
    return [session(model(text)), session(model(text), OFF)]


def compare(text: str, feed: dict[str, Any]) -> Any:
    """The session with passes, whose results are those without."""
    made, plain = sessions(text)
    for mine, wanted in zip(made.run(None, feed), plain.run(None, feed), strict=True):
        np.testing.assert_array_equal(mine, wanted, strict=True)
    return made


@pytest.mark.parametrize("join", ["axis = 0", "axis = 0, new_axis = 1", "axis = -1, new_axis = 1"])
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_appended_in_a_branch_is_chosen_from_rows(way: str, item: str, join: str) -> None:
    text = whole(way, item, join)
    x = np.array([[1, -2], [3, 4], [-1, 0], [5, 6], [-3, -3]], np.float32)
    made = compare(text, {"x": x, "w": np.array([7, 8], np.float32), "most": np.array(2, np.float32)})
    assert "Compress" in ops(made) and "ConcatFromSequence" not in ops(made)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_that_reads_the_sequence(way: str, item: str) -> None:
    x = np.array([[1, -2], [3, 4], [-1, 0]], np.float32)
    feed = {"x": x, "w": np.array([7, 8], np.float32), "most": np.array(2, np.float32)}
    source = model(whole(way, item, "axis = 0"))
    made = session(source, disabled_optimizers=["EliminateDeadEnds"])
    assert "Compress" in ops(made)
    for mine, wanted in zip(made.run(None, feed), session(source, OFF).run(None, feed), strict=True):
        np.testing.assert_array_equal(mine, wanted, strict=True)


MAYBE = """g (int64[T] x, int64[W] w) => (int64[m] y, int64 last)
    <int64 none = {0}, int64[1] axis = {0}, int64[0] nothing = {}, bool yes = {1}> {
    h = Shape(x) n = Squeeze(h) e = SequenceEmpty<dtype = 7>()
    last, l = Loop (n, yes, none, e) <body = b (int64 i, bool g, int64 p, seq(int64) s) => (bool d, int64 q, seq(int64) t) {
        q = Gather(x, i) a = Equal(q, p) b = Equal(q, none) o = Or(a, b) d = Identity(g)
        v = If (o) <then_branch = c () => (int64[0] u) { u = Identity(nothing) }, else_branch = d () => (ITEM f) { MADE }>
        t = SequenceInsert(s, v) }>
    y = ConcatFromSequence<axis = 0>(l) }"""


@pytest.mark.parametrize(
    ("item", "made"),
    [("int64[1]", "f = Unsqueeze(q, axis)"), ("int64[2]", "f0 = Unsqueeze(q, axis) f = Concat<axis = 0>(f0, f0)")],
)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=70))
def test_an_item_or_nothing(item: str, made: str, tokens: list[int]) -> None:
    text = MAYBE.replace("ITEM", item).replace("MADE", made)
    feed = {"x": np.array(tokens, np.int64), "w": np.array([4, 5])}
    assert "Compress" in ops(compare(text, feed))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=70), st.sampled_from(WAYS))
def test_rows_of_any_trips(rows: list[int], way: str) -> None:
    x = np.array(rows, np.float32)[:, None] * np.array([1, 2], np.float32)
    text = whole(way, "made in the branch", "axis = 0, new_axis = 1")
    feed = {"x": x, "w": np.zeros(2, np.float32), "most": np.array(1, np.float32)}
    kept = (x.sum(1) < 1) != (way == "left out")
    if kept.any():
        compare(text, feed)
    else:
        assert sessions(text)[0].run(None, feed)[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("q = Identity(s)", "q0 = Neg(r) q = SequenceInsert(s, q0)"),  # both append
        ("SequenceInsert(s, p0)", "SequenceInsert(s, p0, none)"),  # not at the end
        ("p0 = Neg(r)", "p1 = SequenceLength(s) p2 = Cast<to = 1>(p1) p0 = Add(r, p2)"),  # how many there are is asked
        ("q = Identity(s)", "q = SequenceErase(s, none)"),
    ],
)
def test_what_is_more_than_an_append_stays_as_it_is(old: str, new: str) -> None:
    text = whole("kept", "made in the branch", "axis = 0")
    assert old in text
    x = np.array([[1, -2], [-1, 0], [3, 4], [-5, 6], [1, 0]], np.float32)
    made = compare(text.replace(old, new), {"x": x, "w": x[0], "most": np.array(2, np.float32)})
    assert "Compress" not in ops(made)


def test_items_of_several_sizes_stay_a_sequence() -> None:
    text = MAYBE.replace("ITEM", "int64[r]").replace("MADE", "j = Unsqueeze(q, axis) f = Expand(w, j)")
    made = compare(text, {"x": np.array([1, 2, 1, 0, 2]), "w": np.array([4])})
    assert "Compress" not in ops(made)
