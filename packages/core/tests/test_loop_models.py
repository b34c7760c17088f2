"""Loops, scans and branches of many kinds give what the Reference provider gives, with code generated and without."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.run.lane import ROOM

REFERENCE = "ReferenceExecutionProvider"
TRIPS = st.one_of(st.integers(0, 5), st.sampled_from([ROOM - 1, ROOM, ROOM + 1, 70]))

CELL = """g (float[B, 6] h, float[B, 6] c, float[T, B, 3] x, float[3, 24] w, float[6, 24] r) => (ht, ct, y) {
    ht, ct, y = Scan <num_scan_inputs = 1, body = b (float[M, 6] hi, float[M, 6] ci, float[M, 3] e) => (ho, co, o) {
        xw = MatMul(e, w) hr = MatMul(hi, r) s = Add(xw, hr) i0, o0, f0, g0 = Split<axis = 1, num_outputs = 4>(s)
        i = Sigmoid(i0) u = Sigmoid(o0) f = Sigmoid(f0) n = Tanh(g0) fc = Mul(f, ci) z = Mul(i, n) co = Add(fc, z) t = Tanh(co)
        ho = Mul(u, t) o = Identity(ho) }> (h, c, x) }"""
BEAM = """g (int64 n, bool go, int64[3] t0, float[3, 4] s0, float[3, 1] c0, float[9, 4] table, float[4, 9] out) => (t, s, c, ts, bs)
    <int64[1] flat = {-1}, int64[1] k = {3}, int64 words = {9}, int64[1] one = {1}> {
    t, s, c, ts, bs = Loop (n, go, t0, s0, c0) <body = b (int64 i, bool on, int64[3] ti, float[3, 4] si, float[3, 1] ci)
        => (bool more, to, so, co, tr, br) { e = Gather(table, ti) a = Add(e, si) h = Tanh(a) l = MatMul(h, out) p = LogSoftmax(l)
        q = Add(p, ci) f = Reshape(q, flat) best, at = TopK<axis = 0>(f, k) br = Div(at, words) to = Mod(at, words) so = Gather(h, br)
        co = Unsqueeze(best, one) tr = Identity(to) more = Identity(on) }> }"""
UNTIL = """g (int64 n, float[N] a, float most) => (y, s) <float half = {0.5}, bool t = {1}> { y, s = Loop (n, t, a) <body =
    l (int64 i, bool c, float[K] v) => (bool d, o, z) { q = Div(a, v) p = Add(v, q) o = Mul(p, half) e = Sub(o, v) u = Abs(e)
        z = ReduceMax<keepdims = 0>(u) d = Greater(z, most) }> }"""
NESTED = """g (int64 n, int64 m, float[4] x, float[4, 4] w) => (y, s) { y, s = Loop (n, , x) <body = o (int64 i, bool c, float[4] v) =>
    (bool d, q, r) { k = Add(i, m) p = Loop (k, , v) <body = u (int64 j, bool e, float[4] a) => (bool f, b) { g0 = Cast<to = 1>(j)
        g1 = Mul(g0, x) g2 = Add(g1, a) b = Tanh(g2) f = Identity(e) }> q = MatMul(p, w) r = Neg(q) d = Identity(c) }> }"""
GROWN = """g (int64 n, float[T, 4] x, float[4, 4] w) => (y) <int64[1] zero = {0}, int64[1] last = {-1}, int64[1] end = {9999}> {
    y = Loop (n, , x) <body = b (int64 i, bool c, float[K, 4] v) => (bool d, o) { e = Slice(v, last, end, zero) p = MatMul(e, w)
        q = Tanh(p) m = ReduceMean<keepdims = 1>(v, zero) a = Add(q, m) o = Concat<axis = 0>(v, a) d = Identity(c) }> }"""
BRANCHED = """g (int64 n, float[4] x, float[4, 4] w, float[4, 900] u) => (y, s) <float none = {0}> { k = Transpose(u)
    y, s = Loop (n, , x) <body = b (int64 i, bool c, float[4] v) => (bool d, o, r) { t = ReduceSum<keepdims = 0>(v) g = Greater(t, none)
        o = If (g) <then_branch = p () => (a) { a0 = MatMul(v, w) a = Sub(a0, x) },
                    else_branch = q () => (a) { b0 = MatMul(v, u) b1 = MatMul(b0, k) a = Add(b1, x) }>
        r = Identity(o) d = Identity(c) }> }"""
LISTED = """g (int64 n, float[T, 4] x, float[4, 4] w) => (y) <int64[2] shape = {2, 4}> { e = SequenceEmpty<dtype = 1>()
    l = SequenceInsert(e, w) s = Loop (n, , l) <body = b (int64 i, bool c, seq(float) v) => (bool d, o) { a = Gather(x, i)
        p = MatMul(a, w) r = Concat<axis = 0>(p, p) q = Reshape(r, shape) o = SequenceInsert(v, q) d = Identity(c) }>
    y = ConcatFromSequence<axis = 0>(s) }"""
COUNTED = """g (float[T, 4] x, float[4, 2] w) => (y) <int64 first = {0}, bool t = {1}> { h = Shape(x) n = Gather(h, first)
    r = Loop (n, t) <body = b (int64 i, bool c) => (bool d, o) { a = Gather(x, i) o = Neg(a) d = Identity(c) }> y = MatMul(r, w) }"""


@functools.cache
def sessions(text: str) -> list[Any]:
    """The model on the Reference provider, with generated code, and without."""
    made = [onnxplug.InferenceSession(model(text), providers=[REFERENCE])]
    for codegen in "10":
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("ep.cpu.codegen", codegen)
        made.append(onnxplug.InferenceSession(model(text), options, providers=[CPU]))
    return made


def agree(text: str, **feed: Any) -> list[Any]:
    reference, *others = sessions(text)
    wanted = reference.run(None, feed)
    for made in others:
        for mine, expected in zip(made.run(None, feed), wanted, strict=True):
            assert mine.dtype == expected.dtype and mine.shape == expected.shape
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
    return list(wanted)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@settings(max_examples=12, deadline=None)
@given(TRIPS, st.integers(1, 3))
def test_a_recurrent_cell(trips: int, batch: int) -> None:
    agree(CELL, h=floats(batch, 6), c=floats(batch, 6), x=floats(trips, batch, 3), w=floats(3, 24), r=floats(6, 24))


@settings(max_examples=10, deadline=None)
@given(TRIPS, st.booleans())
def test_a_beam(trips: int, goes: bool) -> None:
    rows = {
        "t0": np.array([1, 5, 8]),
        "s0": floats(3, 4),
        "c0": floats(3, 1),
        "table": floats(9, 4),
        "out": floats(4, 9),
    }
    agree(BEAM, n=np.array(trips), go=np.array(goes), **rows)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 9), st.sampled_from([1e-3, 0.5, 1e9]), st.integers(0, 9))
def test_a_condition_that_data_decide(size: int, most: float, limit: int) -> None:
    agree(UNTIL, n=np.array(limit), a=np.abs(floats(size)) + 1, most=np.array(most, np.float32))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 6), st.integers(0, 40))
def test_a_loop_in_a_loop(outer: int, inner: int) -> None:
    agree(NESTED, n=np.array(outer), m=np.array(inner), x=floats(4), w=floats(4, 4))


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3))
def test_a_value_that_grows(trips: int, rows: int) -> None:
    for _ in range(2):
        (y,) = agree(GROWN, n=np.array(trips), x=floats(rows, 4), w=floats(4, 4))
    assert y.shape == (rows + trips, 4)


@settings(max_examples=10, deadline=None)
@given(TRIPS, st.integers(0, 99))
def test_branches_in_a_loop(trips: int, seed: int) -> None:
    w, u = (
        0.1 * floats(4, 4, seed=seed),
        0.01 * floats(4, 900, seed=seed),
    )  # so small that errors do not grow from trip to trip
    agree(BRANCHED, n=np.array(trips), x=floats(4, seed=seed), w=w, u=u)


@pytest.mark.parametrize("trips", [0, 1, 7])
def test_a_sequence_that_a_loop_fills(trips: int) -> None:
    first = agree(LISTED, n=np.array(trips), x=floats(8, 4), w=floats(4, 4))
    agree(LISTED, n=np.array(trips), x=-floats(8, 4), w=floats(4, 4))
    assert first[0].shape == (4 + 2 * trips, 4)


@pytest.mark.parametrize("rows", [1, 2, ROOM, 50])
def test_rows_of_a_known_number_are_planned(rows: int) -> None:
    agree(COUNTED, x=floats(rows, 4), w=floats(4, 2))


MAYBE_APPENDED = """g (float[T, 4] x, int64[T] n, float[4] w) => (y, m)
    <int64[1] zero = {0}, int64 two = {2}, int64 none = {0}, bool t = {1}> {
    h = Shape<start = 0, end = 1>(x) trips = Squeeze(h) e = SequenceEmpty<dtype = 1>()
    s, k = Loop (trips, t, e, e) <body = b (int64 i, bool c, seq(float) v, seq(float) u) => (bool d, seq(float) o, seq(float) q) {
        a = Gather(n, i) j = Unsqueeze(a, zero) r = Slice(x, zero, j, zero) g = Greater(a, two) d = Identity(c)
        o, q = If (g) <then_branch = p () => (o1, q1) {
            z = Neg(r) o0 = SequenceInsert(v, z) o1 = SequenceInsert(o0, r) q1 = SequenceInsert(u, w) },
                       else_branch = f () => (o2, q2) {
            o2 = Identity(v) l = SequenceInsert(u, w) q2 = SequenceInsert(l, w, none) }> }>
    y = ConcatFromSequence<axis = 0>(s) m = ConcatFromSequence<axis = 0>(k) }"""


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_sequences_that_branches_extend(sizes: list[int]) -> None:
    sizes[-1] = 3
    agree(MAYBE_APPENDED, x=floats(len(sizes), 4), n=np.array(sizes), w=floats(4))


SPLIT = """g (float[B, N] x, float w) => (y) <int64[1] axis = {1}> { s = SplitToSequence<axis = 1>(x) n = SequenceLength(s)
    e = SequenceEmpty<dtype = 1>() l = Loop (n, , e) <body = b (int64 i, bool c, seq(float) v) => (bool d, seq(float) o) {
        p = SequenceAt(s, i) t = Tanh(p) m = Mul(t, w) o = SequenceInsert(v, m) d = Identity(c) }>
    y = ConcatFromSequence<axis = 1>(l) }"""


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (3, 24), (4, 1)])
def test_parts_that_have_gaps(rows: int, columns: int) -> None:
    agree(SPLIT, x=floats(rows, columns), w=np.array(2, np.float32))


KEPT = """g (float[N, 4] x) => (y, c, k) <float none = {0}, int64[1] axis = {0}, int64[1] one = {1}> { s = ReduceSum<keepdims = 0>(x, one)
    g0 = Greater(s, none) a = Compress<axis = 0>(x, g0) b = Neg(a) m = ReduceMax<keepdims = 0>(b, one) g1 = Less(m, none)
    y = Compress<axis = 0>(b, g1) i = NonZero(g0) t = Transpose<perm = [1, 0]>(i) v = GatherND(x, t) z = Mul(v, v)
    c = Cast<to = 1>(t) k = ReduceSum<keepdims = 1>(z, axis) }"""


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 9), st.integers(0, 99))
def test_parts_of_shapes_that_data_decide(rows: int, seed: int) -> None:
    """The same session meets the same shapes again, and others in between."""
    agree(KEPT, x=floats(rows, 4, seed=seed))
