"""What a loop carries without changing it is read from outside."""

from __future__ import annotations

import numpy as np
import pytest
from core_graphs import model
from core_passes import OFF, session

CARRIED = """g (int64 n, float[2, 3] x, float[3, 3] m) => (y, s, kept) <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> {
    y, wo, mo, xo, s = Loop (n, , x, w, m, x) <body = b (int64 i, bool c, float[A, 3] v, float[B, 3] u, float[C, 3] t, float[D, 3] q) =>
        (bool d, vo, uo, to, qo, r) { d = Identity(c) p = MatMul(v, u) k = Add(p, q) vo = MatMul(k, t) ui = Identity(u) uo = Identity(ui)
            to = Identity(t) qo = Identity(q) r = Identity(q) }> z = MatMul(wo, mo) kept = Add(z, mo) }"""


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_results_are_the_same(trips: int) -> None:
    made, plain = session(model(CARRIED)), session(model(CARRIED), OFF)
    feed = {
        "n": np.array(trips),
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "m": np.eye(3, dtype=np.float32) / 2,
    }
    for mine, wanted in zip(made.run(None, feed), plain.run(None, feed), strict=True):
        assert trips == 0 or mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)
    (loop,) = [n for n in made._engine.built.graph.nodes if n.op_type == "Loop"]
    assert len(loop.inputs) == 3 and len(loop.outputs) == 2
    assert {v.name for v in loop.captures} == {"w", "m", "x"}


def test_what_is_changed_swapped_or_a_result_stays() -> None:
    source = model("""g (int64 n, float[2] x, float[2] u) => (a, b, c) { a, b, c, e = Loop (n, , x, u, x, u) <body =
        l (int64 i, bool k, float[2] p, float[2] q, float[2] r, float[2] s) => (bool d, po, qo, ro, so) {
            d = Identity(k) po = Identity(q) qo = Identity(p) ro = Identity(r) so = Neg(s) }> }""")
    made = session(source)
    x, u = np.ones(2, np.float32), np.zeros(2, np.float32)
    for trips, (a, b) in enumerate([(x, u), (u, x), (x, u)]):
        for mine, wanted in zip(made.run(None, {"n": np.array(trips), "x": x, "u": u}), (a, b, x), strict=True):
            np.testing.assert_array_equal(mine, wanted)
    (loop,) = [n for n in made._engine.built.graph.nodes if n.op_type == "Loop"]
    assert len(loop.inputs) == 6


def test_a_condition_is_true_in_every_trip() -> None:
    """Branches that it decides are decided, also in nested bodies, and a loop that hands it on goes on whatever it is."""
    source = model("""g (int64 n, bool go, float[2] x) => (y, s) { y, s = Loop (n, go, x) <body =
        l (int64 i, bool c, float[2] v) => (bool d, o, q) { d = Identity(c) q = Not(c)
            o = If (c) <then_branch = t () => (a) { a = Add(v, v) }, else_branch = e () => (b) { b = Neg(v) }> }> }""")
    made, plain = session(source), session(source, OFF)
    for trips, goes in ((3, True), (3, False), (0, True)):
        feed = {"n": np.array(trips), "go": np.array(goes), "x": np.array([1, -3], np.float32)}
        for mine, wanted in zip(made.run(None, feed), plain.run(None, feed), strict=True):
            assert mine.shape == wanted.shape and mine.dtype == wanted.dtype
            np.testing.assert_array_equal(mine, wanted)
    (loop,) = [n for n in made._engine.built.graph.nodes if n.op_type == "Loop"]
    body = loop.subgraphs["body"]
    assert body.outputs[0].constant is not None and body.outputs[0].constant.item() is True
    assert [node.op_type for node in body.nodes] == ["Add"]
