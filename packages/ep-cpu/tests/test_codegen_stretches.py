"""Reductions of rows between places that data decide are one kernel, whatever number of rows comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import onnxplug

CPU = "CPUExecutionProvider"
REDUCED = {
    "ReduceSum": lambda rows: rows.sum(0),
    "ReduceMean": lambda rows: rows.sum(0) / max(1, len(rows)),
    "ReduceMax": lambda rows: rows.max(0, initial=-np.inf),
}
ROWS = {
    "table": "w = Slice(table, s, e, zero)",
    "listed": "j = Slice(listed, s, e, zero) w = Gather(table, j)",
    "weighted": "j = Slice(listed, s, e) v = Gather(table, j) p = Slice(weights, s, e) q = Unsqueeze(p, one) w = Mul(q, v)",
    "weighed": "v = Slice(table, s, e, zero, one) p = Slice(few, s, e) q = Unsqueeze(p, one) w = Mul(v, q)",
}


def session(reduction: str, form: str, columns: int, keepdims: int = 1, **options: str) -> Any:
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[9, {columns}] table, int64[K] listed, float[K] weights, float[9] few, int64[1] start, int64[1] end)
        => (float[{"1, " if keepdims else ""}{columns}] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}, float[1] half = {{0.5}}> {{
        n = Neg(start) s = Neg(n) m = Neg(end) e = Neg(m) {ROWS[form]} r = {reduction} <keepdims = {keepdims}> (w, zero)
        y = Mul(r, half) }}"""
    given = onnxplug.SessionOptions()
    for key, value in options.items():
        given.add_session_config_entry(key.replace("__", "."), value)
    return onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), given, providers=[CPU])


def feed(columns: int, start: int, end: int, seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    return {
        "table": numbers.standard_normal((9, columns)).astype(np.float32), "listed": numbers.integers(-9, 9, 30),
        "weights": numbers.standard_normal(30).astype(np.float32), "few": numbers.standard_normal(9).astype(np.float32),
        "start": np.array([start]), "end": np.array([end]),
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(REDUCED)), st.sampled_from(sorted(ROWS)), st.sampled_from([1, 3, 16, 40]), st.integers(0, 1),
    st.integers(-35, 35), st.integers(-35, 35), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_rows_between_places_become_one(
    reduction: str, form: str, columns: int, keepdims: int, start: int, end: int, seed: int
) -> None:
    given = feed(columns, start, end, seed)
    made = session(reduction, form, columns, keepdims)
    assert len({n["region"] for n in made.explain().nodes}) == 1, "one region"
    (y,) = made.run(None, given)
    table = given["table"].astype(np.float64)
    rows = {
        "table": lambda: table, "listed": lambda: table[given["listed"]],
        "weighted": lambda: table[given["listed"]] * given["weights"][:, None],
        "weighed": lambda: table * given["few"][:, None],
    }[form]()[start:end]  # fmt: skip
    wanted = 0.5 * REDUCED[reduction](rows)
    np.testing.assert_allclose(y, wanted.reshape(y.shape), rtol=1e-5, atol=1e-5 * np.abs(rows).sum(initial=0))


@pytest.mark.parametrize("form", ROWS)
def test_they_are_what_the_nodes_say(form: str) -> None:
    given = feed(5, 2, 7, 0)
    (y,), (wanted,) = (session("ReduceMean", form, 5, **o).run(None, given) for o in ({}, {"ep__cpu__codegen": "0"}))
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


def test_an_index_out_of_range_is_the_gather_s_fault() -> None:
    given = feed(5, 2, 4, 0)
    given["listed"][3] = 9
    made = session("ReduceSum", "listed", 5)
    with pytest.raises(Exception, match=r"Gather.*bounds"):
        made.run(None, given)
    assert made.run(None, {**given, "end": np.array([3])})[0].shape == (1, 5), "nobody reads it"


def test_one_weight_for_all_rows_is_for_the_nodes() -> None:
    given = feed(5, 2, 4, 0)
    (y,) = session("ReduceSum", "weighted", 5).run(None, {**given, "weights": given["weights"][:3]})
    rows = given["table"][given["listed"][2:4]] * given["weights"][2]
    np.testing.assert_allclose(y[0], 0.5 * rows.sum(0), rtol=1e-5, atol=1e-6)


def test_rows_that_others_read_too_are_cut_as_before() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[9, 4] table, int64[1] start, int64[1] end)
        => (float[1, 4] y, float[N, 4] w) <int64[1] zero = {0}> {
        n = Neg(start) s = Neg(n) m = Neg(end) e = Neg(m) w = Slice(table, s, e, zero) r = ReduceSum(w, zero) y = Neg(r) }"""
    made = onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[CPU])
    table = np.arange(36, dtype=np.float32).reshape(9, 4)
    for start, end in ((0, 3), (4, 4), (7, 20)):
        y, w = made.run(None, {"table": table, "start": np.array([start]), "end": np.array([end])})
        np.testing.assert_array_equal(w, table[start:end])
        np.testing.assert_array_equal(y[0], -table[start:end].sum(0))


def test_rows_that_are_split_are_cut_as_before() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[9, 4] table, int64[1] start, int64[1] end) => (float[1, 2] y, float[N, 2] v)
        <int64[1] zero = {0}> { w = Slice(table, start, end, zero) u, v = Split<axis = 1, num_outputs = 2>(w) y = ReduceSum(u, zero) }"""
    made = onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[CPU])
    table = np.arange(36, dtype=np.float32).reshape(9, 4)
    y, v = made.run(None, {"table": table, "start": np.array([2]), "end": np.array([5])})
    np.testing.assert_array_equal(v, table[2:5, 2:])
    np.testing.assert_array_equal(y[0], table[2:5, :2].sum(0))


@pytest.mark.parametrize(("weights", "more"), [
    ("float[9] few", "float[1, 4] z) { z = ReduceMax <axes = [0]> (w)"), ("float[12] few", "float[1, 4] z) { z = Neg(y)"),
])  # fmt: skip
def test_no_weights_are_cut_without_the_rows(weights: str, more: str) -> None:
    result, first = more.split(" {")
    text = f"""<ir_version: 9, opset_import: ["" : 13]> g (float[9, 4] table, {weights}, int64[1] start, int64[1] end)
        => (float[1, 4] y, {result} <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
        w = Slice(table, start, end, zero) p = Slice(few, start, end, zero) q = Unsqueeze(p, one) v = Mul(w, q)
        y = ReduceSum(v, zero) {first} }}"""
    made = onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[CPU])
    assert not any(n["region"] for n in made.explain().nodes if n["op_type"] == "Slice")
    few = np.arange(9 if "[9]" in weights else 12, dtype=np.float32)
    table, start, end = np.arange(36, dtype=np.float32).reshape(9, 4), np.array([2]), np.array([5])
    y, _ = made.run(None, {"table": table, "few": few, "start": start, "end": end})
    np.testing.assert_array_equal(y[0], (table[2:5] * few[2:5, None]).sum(0))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_the_mean_of_nothing_is_zero(shape: tuple[int, ...]) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float{list(shape)} x) => (float[M, N] y)
        <int64[1] axis = {{{len(shape) - 2}}}> {{ n = Neg(x) y = ReduceMean <keepdims = {int(len(shape) == 2)}> (n, axis) }}"""
    made = onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[CPU])
    (y,) = made.run(None, {"x": np.empty(shape, np.float32)})
    np.testing.assert_array_equal(y, np.zeros((1, 3) if len(shape) == 2 else (2, 3)))
