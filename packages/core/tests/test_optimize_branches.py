"""Small branches become both their nodes and a selection; what could fail, cost or differ in shape stays an If."""

from __future__ import annotations

import numpy as np
import pytest
from core_graphs import model
from core_passes import OFF, check, session

BRANCH = """g (float[2, 3] x, bool{kind} b, float[N] v) => (float y) <int64[1] s = {{-1}}, float[2, 3] w = {{0, 1, 2, 3, 4, 5}}> {{
    y = If (b) <then_branch = t () => (a) {{ {then} }}, else_branch = e () => (a) {{ {other} }}> }}"""

CASES = {
    "of elements": ("", "a = Softmax(x)", "h = Mul(x, w) a = Softmax(h)", True),
    "a condition of one element": ("[1]", "a = Sqrt(x)", "a = Log(x)", True),
    "a division of floats": ("", "a = Div(w, x)", "a = Neg(x)", True),
    "a small product": ("", "k = Transpose(w) p = MatMul(x, k) a = MatMul(p, w)", "a = Neg(x)", True),
    "what is outside": ("", "a = Identity(x)", "a = Identity(w)", True),
    "in two steps": ("", "a = If(b) <then_branch = p () => (q) { q = Neg(x) }, else_branch = r () => (q) { q = Abs(x) }>", "a = Exp(x)",
        True),
    "of other shapes": ("", "a = Reshape(x, s)", "a = Neg(x)", False),
    "of unknown shapes": ("", "a = Neg(v)", "a = Abs(v)", False),
    "a condition of more dimensions": ("[1, 1, 1]", "a = Neg(x)", "a = Abs(x)", False),
    "a division of integers": ("", "c = Cast<to = 7>(x) d = Div(c, c) a = Cast<to = 1>(d)", "a = Abs(x)", False),
    "what draws": ("", "a = RandomUniformLike(x)", "a = Mul(x, w)", False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "then", "other", "goes"), [pytest.param(*case, id=name) for name, case in CASES.items()]
)
def test_branches(kind: str, then: str, other: str, goes: bool) -> None:
    source = model(BRANCH.format(kind=kind, then=then, other=other))
    made, plain = session(source), session(source, OFF)
    assert ("If_0" in made.explain().removed) == goes
    x, v = np.array([[-1, 0, np.nan], [np.inf, 2, 3]], np.float32), np.ones(5, np.float32)
    for chosen in (True, False):
        if "Random" in then and chosen:
            continue
        feed = {"x": x if goes else np.ones((2, 3), np.float32), "v": v, "b": np.full([1] * kind.count("1"), chosen)}
        (mine,), (expected,) = made.run(None, feed), plain.run(None, feed)
        np.testing.assert_allclose(mine, expected, rtol=1e-6)


def test_what_is_large_is_not_computed_in_vain() -> None:
    made = session(
        model("""g (float[64, 65] x, bool b) => (float y) {
            y = If (b) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (a) { a = Abs(x) }> }""")
    )
    assert not made.explain().removed


@pytest.mark.parametrize(("rows", "goes"), [(8, True), (16, True), (32, False)])
def test_a_product_that_takes_longer_than_branching_is_not_computed_in_vain(rows: int, goes: bool) -> None:
    made = session(
        model(f"""g (float[{rows}, 64] x, float[64, 64] w, bool b) => (float y) {{
            y = If (b) <then_branch = t () => (a) {{ a = MatMul(x, w) }}, else_branch = e () => (a) {{ a = Abs(x) }}> }}""")
    )
    assert ("If_0" in made.explain().removed) == goes


def test_several_results() -> None:
    check(
        model("""g (float[2] x, bool b) => (float[2] y, float[2] z, float[2] u) { h = Abs(x) y, z = If (b) <
            then_branch = t () => (a, c) { a = Neg(x) c = Identity(h) }, else_branch = e () => (a, a) { a = Exp(x) }> u = Add(y, z) }""")
    )


LOOP = """g (float[4] x, int64 n) => (float[4] y, float s) <float most = {3}, float f = {0.5}, float[4, 4] turn =
    {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0}> { t = Constant<value = bool {1}>() y, s = Loop (n, t, x) <body =
    l (int64 i, bool c, float[4] v) => (bool d, float[4] o, float[4] r) { w = MatMul(v, turn) m = ReduceMax<keepdims = 0>(w)
        k = Greater(m, most) d = Identity(c)
        o = If (k) <then_branch = p () => (a) { a = Mul(w, f) }, else_branch = q () => (a) { a = Add(w, f) }> r = Tanh(o) }> }"""


def test_a_loop_that_branched_runs_as_one_region() -> None:
    made = session(model(LOOP))
    assert "Loop_0/If_0" in made.explain().removed and len(made.explain().regions) == 1
    x = np.arange(4, dtype=np.float32)
    y, s = made.run(None, {"x": x, "n": np.array(40)})
    rows = []
    for _ in range(40):
        x = np.roll(x, 1)
        x = x * np.float32(0.5) if x.max() > 3 else x + np.float32(0.5)
        rows.append(np.tanh(x))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(s, rows, rtol=1e-5)
