"""Attention of generated code: the written-out forms that exporters make, and what stays outside the one kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, run_native
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnxplug_ep_cpu.codegen.lower import attention_pattern as attention

node = helper.make_node
Arrays = dict[str, np.ndarray]


@pytest.fixture
def fused() -> Iterator[Any]:
    with mock.patch.object(attention, "attend", wraps=attention.attend) as spy:
        yield spy


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = 0.0, scale: float = 1.0) -> np.ndarray:
    scores = np.einsum("...md,...sd->...ms", q.astype(np.float64), k.astype(np.float64)) * scale + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True) @ v.astype(np.float64))


def values(batch: int, heads: int, rows: int, keys: int, depth: int, columns: int, shared: int = 1) -> Arrays:
    rng = np.random.default_rng(rows + keys)
    shapes = {
        "q": (batch, rows, heads, depth),
        "k": (batch, keys, heads // shared, depth),
        "v": (batch, keys, heads // shared, columns),
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def heads_first(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3)


SPLIT = [node("Transpose", [name], [f"{name}_"], perm=[0, 2, 1, 3]) for name in "qv"]
KEYS = node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1])
JOIN = node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3])


@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), st.integers(1, 20), st.integers(1, 40),
    st.sampled_from(["none", "keys", "rows", "all", "bool"]),
)  # fmt: skip
def test_any_shape_and_mask(batch: int, heads: int, rows: int, keys: int, depth: int, columns: int, kind: str) -> None:
    feeds = values(batch, heads, rows, keys, depth, columns)
    rng = np.random.default_rng(0)
    nodes = [*SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Mul", ["s", "scale"], ["s1"])]
    mask: Any = 0.0
    last = "s1"
    if kind == "bool":
        feeds["mask"] = rng.random((batch, 1, rows, keys)) < 0.7
        mask = np.where(feeds["mask"], 0.0, -1e30)
        nodes.append(node("Where", ["mask", "s1", "low"], ["s2"]))
        last = "s2"
    elif kind != "none":
        shape = {"keys": (batch, 1, 1, keys), "rows": (rows, 1), "all": (batch, heads, rows, keys)}[kind]
        feeds["mask"] = mask = (3 * rng.standard_normal(shape)).astype(np.float32)
        nodes.append(node("Add", ["mask", "s1"], ["s2"]))
        last = "s2"
    nodes += [node("Softmax", [last], ["p"]), node("MatMul", ["p", "v_"], ["r"]), JOIN]
    constants = {"scale": np.float32(0.3), "low": np.float32(-1e30)}
    with mock.patch.object(attention, "attend", wraps=attention.attend) as spy:
        (got,) = run_native(model(nodes, feeds, ["y"], constants), feeds)
    assert spy.call_count == 1
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    np.testing.assert_allclose(heads_first(got), exact(q, k, v, mask, 0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("batch", [1, 2])
def test_what_pytorch_exports(fused: Any, rows: int, batch: int) -> None:
    """Queries and keys scaled each, keys turned about in three dimensions, shared heads repeated, NaN rows made
    zero."""
    heads, shared, keys, depth = 6, 3, 19, 16
    feeds = values(batch, heads, rows, keys, depth, depth, shared)
    mask = np.zeros((batch, 1, rows, keys), np.float32)
    mask[..., 11:] = -np.inf
    mask[0, 0, 0] = -np.inf
    feeds["mask"] = mask
    nodes = [*SPLIT, node("Transpose", ["k"], ["k_"], perm=[0, 2, 1, 3])]
    for name in "kv":
        nodes += [
            node("Unsqueeze", [f"{name}_", "two"], [f"{name}1"]), node("Expand", [f"{name}1", "spread"], [f"{name}2"]),
            node("Reshape", [f"{name}2", "heads"], [f"{name}3"]),
        ]  # fmt: skip
    nodes += [
        node("Reshape", ["k3", "merged"], ["k4"]), node("Transpose", ["k4"], ["k5"], perm=[0, 2, 1]),
        node("Reshape", ["k5", "turned"], ["k6"]), node("Mul", ["q_", "root"], ["q1"]), node("Mul", ["k6", "root"], ["k7"]),
        node("MatMul", ["q1", "k7"], ["s"]), node("Add", ["s", "mask"], ["s1"]), node("Softmax", ["s1"], ["p"]),
        node("IsNaN", ["p"], ["nan"]), node("Where", ["nan", "zero", "p"], ["p1"]), node("MatMul", ["p1", "v3"], ["r"]), JOIN,
    ]  # fmt: skip
    constants = {
        "two": np.array([2]), "spread": np.array([batch, heads // shared, shared, keys, depth]),
        "heads": np.array([batch, heads, keys, depth]), "merged": np.array([batch * heads, keys, depth]),
        "turned": np.array([batch, heads, depth, keys]), "root": np.float32(0.5), "zero": np.float32(0),
    }  # fmt: skip
    (got,) = run_native(model(nodes, feeds, ["y"], constants), feeds)
    assert fused.call_count == 1
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    with np.errstate(invalid="ignore"):
        want = exact(q, k.repeat(shared, 1), v.repeat(shared, 1), mask, 0.25)
    want[0, :, 0] = 0.0
    np.testing.assert_allclose(heads_first(got), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wide", [False, True], ids=["by rows", "by weights"])
def test_weights_that_a_condition_makes_zero(fused: Any, wide: bool) -> None:
    """Rows of the softmax that are replaced are rows of zeros, NaN or not; NaN of other rows stays."""
    batch, heads, rows, keys = 2, 3, 7, 11
    feeds = values(batch, heads, rows, keys, 8, 5)
    feeds["mask"] = np.zeros((batch, 1, rows, keys), np.float32)
    feeds["mask"][0, 0, :3] = -np.inf
    feeds["hidden"] = np.zeros((batch, 1, rows, keys if wide else 1), bool)
    feeds["hidden"][0, 0, 1:5] = True
    nodes = [
        *SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Add", ["s", "mask"], ["s1"]),
        node("Softmax", ["s1"], ["p"]), node("Where", ["hidden", "zero", "p"], ["p1"]),
        node("MatMul", ["p1", "v_"], ["r"]), JOIN,
    ]  # fmt: skip
    (got,) = run_native(model(nodes, feeds, ["y"], {"zero": np.float32(0)}), feeds)
    assert fused.call_count == (0 if wide else 1)
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    with np.errstate(invalid="ignore"):
        want = exact(q, k, v, feeds["mask"])
    want[0, :, 1:5] = 0.0
    assert np.isnan(want[0, :, 0]).all()
    np.testing.assert_allclose(heads_first(got), want, rtol=1e-4, atol=1e-5)


def test_a_mask_that_cannot_be_read_is_applied_to_written_scores() -> None:
    feeds = values(2, 2, 7, 9, 8, 8)
    feeds["mask"] = np.random.default_rng(0).standard_normal((9, 7)).astype(np.float32)
    nodes = [
        *SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Mul", ["s", "scale"], ["s1"]),
        node("Transpose", ["mask"], ["turned"]), node("Add", ["s1", "turned"], ["s2"]), node("Softmax", ["s2"], ["p"]),
        node("MatMul", ["p", "v_"], ["r"]), JOIN,
    ]  # fmt: skip
    (got,) = run_native(model(nodes, feeds, ["y"], {"scale": np.float32(0.5)}), feeds)
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    np.testing.assert_allclose(heads_first(got), exact(q, k, v, feeds["mask"].T, 0.5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "keys"), [(1, 9), (3, 3), (13, 20), (40, 40), (20, 9)])
def test_rows_that_see_the_first_keys(rows: int, keys: int) -> None:
    seen = max(1, keys - rows + 1)
    feeds = values(2, 2, rows, keys, 8, 24)
    nodes = [
        *SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v_"], ["r"]), JOIN,
    ]  # fmt: skip
    with mock.patch.object(attention, "attend", functools.partial(attention.attend, seen=seen)):
        (got,) = run_native(model(nodes, feeds, ["y"]), feeds)
    hidden = np.arange(keys) >= seen + np.arange(rows)[:, None]
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    want = exact(q, k, v, np.where(hidden, -np.inf, 0.0))
    np.testing.assert_allclose(heads_first(got), want, rtol=1e-4, atol=1e-5)


def test_three_dimensions(fused: Any) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((4, n, 24)).astype(np.float32) for name, n in (("q", 10), ("k", 30), ("v", 30))}
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=2), node("MatMul", ["p", "v"], ["y"]),
    ]  # fmt: skip
    (got,) = run_native(model(nodes, feeds, ["y"]), feeds)
    assert fused.call_count == 1
    np.testing.assert_allclose(got, exact(feeds["q"], feeds["k"], feeds["v"]), rtol=1e-4, atol=1e-5)


def test_scores_that_something_else_reads_stay_in_memory(fused: Any) -> None:
    feeds = values(1, 2, 5, 6, 8, 8)
    nodes = [
        *SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v_"], ["r"]), JOIN, node("Neg", ["p"], ["z"]),
    ]  # fmt: skip
    got, other = run_native(model(nodes, feeds, ["y", "z"]), feeds)
    assert fused.call_count == 0
    q, k, v = (heads_first(feeds[name]) for name in "qkv")
    np.testing.assert_allclose(heads_first(got), exact(q, k, v), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(-other.sum(-1), 1.0, rtol=1e-5)


def test_threads_do_not_change_a_bit() -> None:
    feeds = values(2, 3, 70, 90, 32, 32)
    nodes = [
        *SPLIT, KEYS, node("MatMul", ["q_", "kt"], ["s"]), node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v_"], ["r"]), JOIN,
    ]  # fmt: skip
    proto = model(nodes, feeds, ["y"])
    (one,), (three,) = (run_native(proto, feeds, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)
