"""Loops that count, that fill sequences, and that take one element of a list in each trip: what the passes make of them, and that
results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model
from core_passes import OFF, ops, session

import onnxplug as ort
from onnxplug.optimize.order import PASSES


def loop_of(made: Any) -> Any:
    (loop,) = [n for n in made._engine.built.graph.nodes if n.op_type == "Loop"]
    return loop


def same(source: bytes, feed: dict[str, np.ndarray]) -> Any:
    """The session with passes, whose results are those without."""
    made, plain = session(source), session(source, OFF)
    for mine, wanted in zip(made.run(None, feed), plain.run(None, feed), strict=True):
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype
        np.testing.assert_array_equal(mine, wanted)
    return made


def counting(
    test: str, step: int = 1, first: int = 0, begin: str = "", most: str = "", element: str = "int64"
) -> bytes:
    """A Loop that counts ``k`` by ``step`` while ``test`` holds of ``k`` and the next ``m``, and stacks k."""
    return model(f"""g ({element} n) => ({element}[T] ks, float[2] y) <{element} first = {{{first}}}, {element} step = {{{step}}},
        float[2] x = {{1, 2}},
        {element} one = {{1}}, int64 many = {{3}}> {{ {begin}
        last, y, ks = Loop ({most}, {"go" if begin else ""}, first, x) <body = b (int64 i, bool c, {element} k, float[2] v) =>
            (bool d, {element} m, float[2] w, {element} s) {{
            m = Add(k, step) p = Mul(m, m) d = {test} w = Add(v, x) s = Mul(k, one) }}> }}""")


@pytest.mark.parametrize("limit", [-3, 0, 1, 2, 5, 40])
@pytest.mark.parametrize(
    "test", ["Less(m, n)", "LessOrEqual(m, n)", "Greater(n, m)", "GreaterOrEqual(n, k)", "Less(k, n)"]
)
@pytest.mark.parametrize(("step", "first"), [(1, 0), (3, 0), (1, -2), (2, 1)])
@pytest.mark.parametrize("element", ["int64", "int32"])
def test_a_counter_is_a_number_of_trips(test: str, step: int, first: int, element: str, limit: int) -> None:
    feed = {"n": np.array(limit, element)}
    loop = loop_of(same(counting(test, step, first, element=element), feed))
    body = loop.subgraphs["body"]
    assert loop.inputs[0] is not None and body.outputs[0].is_constant
    assert len(loop.inputs) == 3, "the counter is not carried"


@pytest.mark.parametrize("limit", [-3, 0, 1, 2, 5])
@pytest.mark.parametrize(("begin", "test"), [
    ("go = Less(first, n)", "Less(m, n)"), ("go = Greater(n, first)", "Less(m, n)"), ("go = LessOrEqual(first, n)", "LessOrEqual(m, n)"),
    ("go = LessOrEqual(first, n)", "Less(m, n)"), ("go = Less(first, n)", "Less(k, n)"), ("go = Less(n, first)", "Less(m, n)"),
])  # fmt: skip
@pytest.mark.parametrize("most", ["", "many"])
def test_a_loop_may_not_begin_or_end_before(begin: str, test: str, most: str, limit: int) -> None:
    made = same(counting(test, 1, 0, begin, most), {"n": np.array(limit)})
    assert loop_of(made).subgraphs["body"].outputs[0].is_constant


@pytest.mark.parametrize("begin", ["", "go = LessOrEqual(first, n)"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("limit", [2**63 - 1, -(2**63)])
@pytest.mark.parametrize(("test", "step", "first"), [
    ("LessOrEqual(m, n)", 1, 0), ("Less(m, n)", 3, -5), ("Less(k, n)", 1, 5), ("LessOrEqual(k, n)", 2, 3),
])  # fmt: skip
def test_the_least_and_the_most_there_is_are_limits(
    test: str, step: int, first: int, limit: int, known: bool, begin: str
) -> None:
    source = counting(test, step, first, begin, "many")
    if known:
        given = onnx.load_from_string(source)
        del given.graph.input[:]
        given.graph.initializer.append(onnx.numpy_helper.from_array(np.array(limit), "n"))
        same(given.SerializeToString(), {})
    else:
        same(source, {"n": np.array(limit)})


def test_a_known_limit_is_a_constant() -> None:
    source = model("""g (float[2] x) => (float[T, 2] y) <int64 first = {0}, int64 n = {7}, int64 step = {2}, bool t = {1}> {
        last, y = Loop (, t, first) <body = b (int64 i, bool c, int64 k) => (bool d, int64 m, float[2] w) {
            m = Add(k, step) d = Less(m, n) f = Cast<to = 1>(k) w = Add(x, f) }> }""")
    made = same(source, {"x": np.ones(2, np.float32)})
    assert loop_of(made).inputs[0].constant == 4


@pytest.mark.parametrize("test", ["Less(k, m)", "Less(n, m)", "Less(p, n)", "Equal(m, n)"])
def test_other_conditions_stay(test: str) -> None:
    source = counting(test, most="many")
    loop = loop_of(session(source))
    assert not loop.subgraphs["body"].outputs[0].is_constant


def test_a_counter_that_is_a_result_stays_one() -> None:
    source = model("""g (int64 n) => (int64 last, int64[T] ks) <int64 first = {5}, int64 step = {-2}> {
        last, ks = Loop (n, , first) <body = b (int64 i, bool c, int64 k) => (bool d, int64 m, int64 s) {
            d = Identity(c) m = Add(k, step) s = Neg(k) }> }""")
    for trips in (0, 1, 6):
        made = session(source)
        last, ks = made.run(None, {"n": np.array(trips)})
        assert last == 5 - 2 * trips
        np.testing.assert_array_equal(ks, -5 + 2 * np.arange(trips))


def filling(join: str, item: str = "float[2, 3]", more: str = "") -> bytes:
    return model(f"""g (int64 n, {item} x) => (y) <int64 place = {{0}}> {{ empty = SequenceEmpty ()
        filled = Loop (n, , empty) <body = b (int64 i, bool c, seq(float) s) => (bool d, seq(float) t) {{
            d = Identity(c) f = Cast<to = 1>(i) w = Add(x, f) t = SequenceInsert(s, w{more}) }}> {join} }}""")


@pytest.mark.parametrize("trips", [1, 2, 40])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("new", [0, 1])
def test_a_filled_sequence_is_stacked(axis: int, new: int, trips: int) -> None:
    source = filling(f"y = ConcatFromSequence<axis = {axis}, new_axis = {new}>(filled)")
    made = same(source, {"n": np.array(trips), "x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert not {"SequenceEmpty", "ConcatFromSequence"} & set(ops(made))


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sizes_need_not_be_known_along_a_new_axis(axis: int, rows: int) -> None:
    source = filling(f"y = ConcatFromSequence<axis = {axis}, new_axis = 1>(filled)", "float[A, B]")
    made = same(source, {"n": np.array(3), "x": np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)})
    assert not {"SequenceEmpty", "ConcatFromSequence"} & set(ops(made))


def test_without_a_trip_it_has_no_rows() -> None:
    feed = {"n": np.array(0), "x": np.ones((2, 3), np.float32)}
    for join, shape in (("axis = 0", (0, 3)), ("axis = 1", (2, 0)), ("axis = 2, new_axis = 1", (2, 3, 0))):
        (y,) = session(filling(f"y = ConcatFromSequence<{join}>(filled)")).run(None, feed)
        assert y.shape == shape


@pytest.mark.parametrize("name", [name for name, _, _ in PASSES])
def test_a_pass_leaves_nothing_that_another_one_has_to_take_away(name: str) -> None:
    source = filling("y = ConcatFromSequence<axis = 0>(filled)")
    feed = {"n": np.array(2), "x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    (mine,), (wanted,) = (session(source, disabled_optimizers=off).run(None, feed) for off in ([name], []))
    np.testing.assert_array_equal(mine, wanted)


def test_two_that_join_read_the_same_rows() -> None:
    source = filling("p = ConcatFromSequence<axis = 0>(filled) q = ConcatFromSequence<axis = 0>(filled) y = Add(p, q)")
    same(source, {"n": np.array(3), "x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("join", "more"),
    [
        ("y = SequenceLength(filled)", ""), ("z = ConcatFromSequence<axis = 0>(filled) y = SequenceAt(filled, place)", ""),
        ("y = ConcatFromSequence<axis = 0>(filled)", ", place"),
    ],
)  # fmt: skip
def test_a_sequence_that_others_read_stays_one(join: str, more: str) -> None:
    made = same(filling(join, more=more), {"n": np.array(3), "x": np.ones((2, 3), np.float32)})
    assert "SequenceEmpty" in ops(made)


def test_items_of_several_sizes_stay_a_sequence() -> None:
    source = model("""g (int64 n, float[9, 3] x) => (y) <int64[1] zero = {0}> { empty = SequenceEmpty ()
        filled = Loop (n, , empty) <body = b (int64 i, bool c, seq(float) s) => (bool d, seq(float) t) {
            d = Identity(c) e = Unsqueeze(i, zero) w = Slice(x, zero, e) t = SequenceInsert(s, w) }>
        y = ConcatFromSequence<axis = 0>(filled) }""")
    same(source, {"n": np.array(4), "x": np.arange(27, dtype=np.float32).reshape(9, 3)})


def bagging(trips: str, listed: str, first: int, last: int) -> bytes:
    return model(f"""g (int64[B] o, int64[6] six) => (int64[T, L] y) <int64 two = {{2}}, int64 one = {{1}}, int64[1] all = {{-1}},
        int64[1] end = {{9}}, int64 first = {{{first}}}, int64 last = {{{last}}}, bool t = {{1}},
        int64 seven = {{7}}, int64 five = {{5}}> {{
        size = Size(o) before = Sub(size, one)
        longer = Concat<axis = 0>(o, end) sum = Add(o, o)
        y = Loop ({trips}, t) <body = b (int64 i, bool c) => (bool d, int64[L] w) {{ d = Identity(c) k = Reshape(i, all)
            s = Add(k, first) e = Add(k, last) w = Slice({listed}, s, e) }}> }}""")


@pytest.mark.parametrize(
    ("trips", "listed", "first", "there"),
    [
        ("size", "o", 0, True), ("size", "longer", 0, True), ("size", "longer", 1, True), ("size", "longer", 2, False),
        ("size", "o", 1, False), ("before", "o", 0, True), ("before", "o", 1, True), ("before", "o", 2, False),
        ("size", "sum", 0, False), ("five", "six", 1, True), ("five", "six", 2, False), ("seven", "six", 0, False),
        ("two", "longer", 0, False), ("size", "six", 0, False),
    ],
)  # fmt: skip
def test_one_element_of_a_list_is_gathered_where_it_is_there(trips: str, listed: str, first: int, there: bool) -> None:
    made = session(bagging(trips, listed, first, first + 1))
    (node,) = [n for n in loop_of(made).subgraphs["body"].nodes if n.op_type in ("Slice", "Gather")]
    assert node.op_type == ("Gather" if there else "Slice")
    if there:
        feed = {"o": np.array([4, 2, 7, 1]), "six": np.arange(6)}
        same(bagging(trips, listed, first, first + 1), feed)


def test_more_than_one_element_is_sliced() -> None:
    for first, last in ((0, 2), (-1, 0), (0, 0)):
        made = session(bagging("before", "o", first, last))
        assert any(n.op_type == "Slice" for n in loop_of(made).subgraphs["body"].nodes)


BAGS = """g (float[9, 4] rows, int64[B] o) => (y) <bool t = {1}, int64 zero = {0}, int64 one = {1}, int64[1] all = {-1},
    int64[1] axis = {0}, int64[1] nine = {9}, float[1, 4] none = {0, 0, 0, 0}> {
    n = Size(o) more = Concat<axis = 0>(o, nine) empty = SequenceEmpty ()
    go = Less(zero, n)
    last, filled = Loop (, go, zero, empty) <body = b (int64 i, bool c, int64 k, seq(float) s) => (bool d, int64 m, seq(float) t) {
        p = Reshape(k, all) q = Add(p, one) a = Slice(more, p, q) r = Add(q, one) e = Slice(more, q, r) m = Add(k, one) d = Less(m, n)
        h = Equal(a, e) w = If(h) <then_branch = f () => (float[1, 4] u) { u = Identity(none) }, else_branch = g () => (z) {
            l = Equal(m, n) j = If(l) <then_branch = f1 () => (u1) { u1 = Slice(rows, a, nine) },
                else_branch = f2 () => (u2) { u2 = Slice(rows, a, e) }>
            z = ReduceMax(j, axis) }>
        t = SequenceInsert(s, w) }>
    y = ConcatFromSequence<axis = 0>(filled) }"""


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_bags_are_trips_without_branches(provider: str) -> None:
    """As PyTorch's exporter writes EmbeddingBag."""
    source, rows = model(BAGS), np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    made = ort.InferenceSession(source, providers=[provider])
    loop = loop_of(made)
    assert len(loop.inputs) == 2 and not any(n.subgraphs for n in loop.subgraphs["body"].nodes)
    for o in ([0], [0, 4, 4, 9], [0, 0, 0], [3, 5, 8, 9, 9, 9]):
        (y,) = made.run(None, {"rows": rows, "o": np.array(o)})
        cuts = zip(o, [*o[1:], 9], strict=True)
        np.testing.assert_array_equal(y, [rows[a:b].max(0) if b > a else np.zeros(4) for a, b in cuts])
