"""Bags of embeddings, which exporters write as a Loop, are one kernel."""

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
    "ReduceSum": ("<keepdims = 0>", ", zero", lambda rows: rows.sum(0)),
    "ReduceMean": ("<keepdims = 0, axes = [0]>", "", lambda rows: rows.mean(0)),
    "ReduceMax": ("<keepdims = 0, axes = [0]>", "", lambda rows: rows.max(0, initial=-np.inf)),
}


def session(reduction: str, columns: int, weighted: bool = False, **body: str) -> Any:
    attributes, axes, _ = REDUCED[reduction]
    weigh = "p = Slice(weights, s1, e1, zero) q = Unsqueeze(p, one) w = Mul(v, q)" if weighted else "w = Identity(v)"
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[V, {columns}] table, int64[K] listed, float[K] weights, int64[B] starts, int64[B] ends) => (float[B, M] y)
            <int64[1] zero = {{0}}, int64[1] one = {{1}}, bool t = {{1}}> {{
        shape = Shape(starts) n = Squeeze(shape, zero)
        bags = Loop(n, t) <body = b (int64 i, bool c) => (bool d, float[{columns}] r) {{ d = {body.get("again", "Identity(c)")}
            s = Gather(starts, i) s1 = Unsqueeze(s, zero) e = Gather(ends, i) e1 = Unsqueeze(e, zero)
            j = Slice(listed, s1, e1, zero) v = Gather(table, j) {weigh} r = {reduction} {attributes} (w{axes}) }}>
        y = Concat<axis = 1>(bags, bags) }}"""
    return onnxplug.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[CPU])


def is_native(made: Any) -> bool:
    return next(n["region"] for n in made.explain().nodes if n["op_type"] == "Loop") is not None


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(REDUCED)), st.sampled_from([1, 3, 8, 13, 40, 96]), st.booleans(), st.integers(0, 12),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_each_bag_is_one_row(reduction: str, columns: int, weighted: bool, bags: int, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    feed = {
        "table": numbers.standard_normal((9, columns)).astype(np.float32), "listed": numbers.integers(-9, 9, 30),
        "weights": numbers.standard_normal(30).astype(np.float32), "starts": numbers.integers(-35, 35, bags),
        "ends": numbers.integers(-35, 35, bags),
    }  # fmt: skip
    made = session(reduction, columns, weighted)
    assert is_native(made)
    (y,) = made.run(None, feed)
    assert y.shape == (bags, 2 * columns)
    factors = feed["weights"][:, None].astype(np.float64) if weighted else np.ones((30, 1))
    for row, start, end in zip(y, feed["starts"], feed["ends"], strict=True):
        rows = (feed["table"][feed["listed"]] * factors)[start:end]
        with np.errstate(all="ignore"):
            wanted = REDUCED[reduction][2](rows) if len(rows) or reduction != "ReduceMean" else np.zeros(columns)
        np.testing.assert_allclose(row[:columns], wanted, rtol=1e-5, atol=1e-5 * np.abs(rows).sum(initial=0))
        np.testing.assert_array_equal(row[:columns], row[columns:])


def test_what_is_no_number_stays_so_in_a_maximum() -> None:
    feed = {
        "table": np.array([[1], [np.nan], [2]], np.float32),
        "listed": np.array([0, 1, 2]),
        "weights": np.ones(3, np.float32),
    }
    (y,) = session("ReduceMax", 1).run(None, {**feed, "starts": np.array([0, 2]), "ends": np.array([3, 3])})
    np.testing.assert_array_equal(y[:, 0], [np.nan, 2])


@pytest.mark.parametrize("reduction", REDUCED)
def test_an_index_out_of_range_is_the_loop_s_fault(reduction: str) -> None:
    feed = {"table": np.ones((4, 5), np.float32), "listed": np.array([0, 4]), "weights": np.ones(2, np.float32)}
    with pytest.raises(Exception, match=r"Loop_0.*is no place on an axis"):
        session(reduction, 5).run(None, {**feed, "starts": np.array([0]), "ends": np.array([2])})


def test_a_loop_that_may_end_early_is_none() -> None:
    made = session("ReduceSum", 4, again="Less(i, i)")
    assert not any(n["op_type"] == "Loop" for n in made.explain().nodes)
    feed = {"table": np.ones((4, 4), np.float32), "listed": np.array([0, 3]), "weights": np.ones(2, np.float32)}
    assert made.run(None, {**feed, "starts": np.array([0, 0]), "ends": np.array([2, 2])})[0].shape == (1, 8)
