"""Sizes that a loop's body reads of what is outside are computed in the body, and results stay."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_passes import OFF, session
from hypothesis import given, settings
from hypothesis import strategies as st

COUNTED = """g (int64 trips, float[N, C] x, float[M] v) => (y, s)
    <int64[1] two = {2}, int64[1] less = {-1}, int64 none = {0}, int64 one = {1},
    int64[1] first = {0}> { h = Shape(x) n = Slice(h, first, two) p0 = ReduceProd<keepdims = 1>(n) p = Mul(p0, two) c = Gather(h, one)
    y, s = Loop (trips, , x) <body = b (int64 i, bool g, float[K, C] a) => (bool d, o, r) {
        f = Concat<axis = 0>(a, a) e = Reshape(f, INSIDE) z = ReduceSum<keepdims = 1>(e) q = Range(none, c, one) w = Cast<to = 1>(q)
        o = Add(a, w) r = Mul(z, w) d = Identity(g) }> }"""
NESTED = """g (int64 trips, float[N, C] x, float[M] v) => (y) <int64[1] less = {-1}> { h = Shape(x) n = Concat<axis = 0>(less, h)
    y = Loop (trips, , x) <body = b (int64 i, bool g, float[K, C] a) => (bool d, o) { d = Identity(g)
        o = Scan <num_scan_inputs = 1, body = s (float[K, C] t, u) => (t1) { j = Unsqueeze(u, less) k = Add(t, j) f = Reshape(k, n)
            first = Constant<value_ints = [0]>() m = ReduceMean<keepdims = 0>(f, first) t1 = Mul(m, m) }>(a, v) }> }"""
SCANNED = """g (float[N, C] x, float[M] v) => (y, s)
    <int64[1] less = {-1}, int64[1] first = {0}> { h = Shape(x) n = Concat<axis = 0>(less, h)
    y, s = Scan <num_scan_inputs = 1, body = b (float[N, C] t, u) => (t1, r) { f = Reshape(t, n) m = ReduceMean<keepdims = 0>(f, first)
        t1 = Mul(m, u) r = Identity(t1) }>(x, v) }"""


@functools.cache
def sessions(text: str) -> list[Any]:
    """With passes and without."""
    return [session(model(text)), session(model(text), OFF)]


def check(text: str, feed: dict[str, Any]) -> set[str]:
    """What the body of the only Loop or Scan captures that is no constant, where results are those without passes."""
    made, plain = sessions(text)
    for _ in range(2):
        for mine, wanted in zip(made.run(None, feed), plain.run(None, feed), strict=True):
            np.testing.assert_array_equal(mine, wanted, strict=True)
    (node,) = [n for n in made._engine.built.graph.nodes if n.op_type in ("Loop", "Scan")]
    return {v.name for v in node.captures if not v.is_constant}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3), st.sampled_from(["p", "n"]))
def test_results_stay(trips: int, rows: int, columns: int, inside: str) -> None:
    text = COUNTED.replace("INSIDE", "p" if inside == "p" else "less")
    feed = {
        "trips": np.array(trips),
        "x": np.arange(rows * columns, dtype=np.float32).reshape(rows, columns),
        "v": np.ones(2, np.float32),
    }
    assert check(text, feed) == {"x"}, "its shape is all the body needs"


@pytest.mark.parametrize("text", [SCANNED, NESTED], ids=["a scan", "a scan in a loop"])
def test_a_scan_reads_sizes(text: str) -> None:
    for rows, columns in ((2, 3), (1, 5), (2, 3)):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / 16
        feed = {"x": x, "v": np.array([1, 0.5], np.float32)} | ({"trips": np.array(3)} if text is NESTED else {})
        assert not check(text, feed) & {"h", "n"}


def test_what_data_decide_stays_outside() -> None:
    text = COUNTED.replace("INSIDE", "less").replace("c = Gather(h, one)", "c0 = Gather(v, none) c = Cast<to = 7>(c0)")
    feed = {"trips": np.array(2), "x": np.ones((2, 3), np.float32), "v": np.array([3], np.float32)}
    assert check(text, feed) == {"c"}
