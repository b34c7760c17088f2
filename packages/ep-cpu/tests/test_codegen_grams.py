"""TfIdfVectorizer in native regions: n-grams of integers, and of strings that the region numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug as ort
from onnxplug_ep_cpu.codegen import gram_table
from onnxplug_kernels.ops.tfidf import prepare_vectorizer

WORDS = ["alpha", "b", "", "d", "ü", "f"]
TYPES = {"string": TensorProto.STRING, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


def session(kinds: list[str], nodes: list[Any], rank: int) -> ort.InferenceSession:
    """Nodes that read ``x0``, ``x1``, ... and give float32 ``y0``, ``y1``, ..."""
    dims = list("NC")[-rank:]
    inputs = [helper.make_tensor_value_info(f"x{i}", TYPES[kind], dims) for i, kind in enumerate(kinds)]
    made = [name for node in nodes for name in node.output if name.startswith("y")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def is_native(made: ort.InferenceSession, operator: str = "TfIdfVectorizer") -> bool:
    explained = made.explain()
    native = {name for region in explained.regions for name in region["nodes"]}
    return all(node["name"] in native for node in explained.nodes if node["op_type"] == operator)


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes, the pool as numbers of words."""
    token = st.integers(0, len(WORDS) - 1)
    kinds = [draw(st.lists(st.tuples(*[token] * n), unique=True, min_size=n == 1, max_size=6)) for n in (1, 2, 3)]
    starts, pool = [], []
    for kind in kinds:
        starts.append(len(pool))
        pool += [token for gram in kind for token in gram]
    count = sum(map(len, kinds))
    lowest = draw(st.integers(1, 3))
    return {
        "mode": draw(st.sampled_from(["TF", "TFIDF", "IDF"])), "min_gram_length": lowest,
        "max_gram_length": draw(st.integers(lowest, 3)), "max_skip_count": draw(st.sampled_from([0, 1, 3, 2**40])),
        "ngram_counts": starts, "ngram_indexes": draw(st.permutations(range(count))), "pool_int64s": pool,
        "weights": [0.25 * draw(st.integers(-8, 8)) for _ in range(count)],
    }  # fmt: skip


def of_kind(attributes: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind != "string":
        return attributes
    rest = {name: value for name, value in attributes.items() if name != "pool_int64s"}
    return {**rest, "pool_strings": [WORDS[token] for token in attributes["pool_int64s"]]}


@settings(max_examples=40, deadline=None)
@given(pools(), st.sampled_from(sorted(TYPES)), st.integers(1, 2), st.data())
def test_n_grams(attributes: dict[str, Any], kind: str, rank: int, data: st.DataObject) -> None:
    given_ = of_kind(attributes, kind)
    made = session([kind], [helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **given_)], rank)
    assert is_native(made)
    wanted = prepare_vectorizer(np, **given_)
    for _ in range(3):
        shape = [data.draw(st.integers(0, 5)) for _ in range(rank)]
        tokens = data.draw(
            st.lists(st.integers(-1, len(WORDS)), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
        )
        if kind == "string":
            x = np.array([WORDS[t] if 0 <= t < len(WORDS) else f"w{t}" for t in tokens], object).reshape(shape)
        else:
            x = np.array(tokens, kind).reshape(shape)
        np.testing.assert_array_equal(made.run(None, {"x0": x})[0], wanted(x), strict=True)


def simple(pool: list[Any], mode: str = "TF", indexes: list[int] | None = None) -> dict[str, Any]:
    name = "pool_strings" if isinstance(pool[0], str) else "pool_int64s"
    return {
        "mode": mode, "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
        "ngram_indexes": indexes or list(range(len(pool))), name: pool,
    }  # fmt: skip


def test_one_text_by_two_pools() -> None:
    """Each word has one number in the region, whoever knows it; what else computes there fuses."""
    nodes = [
        helper.make_node("TfIdfVectorizer", ["x0"], ["a"], **simple(["b", "alpha"])),
        helper.make_node("TfIdfVectorizer", ["x0"], ["b"], **simple(["f", "b"])),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    made = session(["string"], nodes, 2)
    assert is_native(made) and len(made.explain().regions) == 1
    x = np.array([["b", "f", "x"], ["alpha", "b", "b"]], object)
    np.testing.assert_array_equal(made.run(None, {"x0": x})[0], [[0, -1], [2, -1]])


@pytest.mark.parametrize(
    "wrong", [{"ngram_counts": [0, 1]}, {"ngram_counts": [1]}, {"ngram_indexes": [0, 1]}, {"mode": "MANY"}]
)
def test_pools_that_are_not_as_told(wrong: dict[str, Any]) -> None:
    """They are left to the kernel, which says what is wrong with them, or makes of them what it can."""
    attributes = {**simple([1, 2, 3, 4]), **wrong}
    try:
        wanted = prepare_vectorizer(np, **attributes)(np.array([1, 2]))
    except (ValueError, IndexError) as error:
        told = "do not go together" if isinstance(error, IndexError) else str(error)[:20]
        with pytest.raises(Exception, match=told):
            session(["int64"], [helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **attributes)], 1)
    else:
        made = session(["int64"], [helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **attributes)], 1)
        assert not is_native(made)
        np.testing.assert_array_equal(made.run(None, {"x0": np.array([1, 2])})[0], wanted)


def test_extreme_tokens() -> None:
    least: Any = prepare_vectorizer(np, **simple([-(2**63), 1 - 2**63]))
    assert least(np.full(30, -(2**63))).tolist() == [30, 0]
    pool = [-(2**63), 2**63 - 1, 0, -1, 2**32, 1]
    made = session(["int64"], [helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **simple(pool))], 1)
    x = np.array([*pool, *pool[:2], 2, -(2**31)], np.int64)
    assert made.run(None, {"x0": x})[0].tolist() == [2, 2, 1, 1, 1, 1]


def test_a_large_pool() -> None:
    rng = np.random.default_rng(0)
    pool = rng.choice(1 << 40, 3000, replace=False).tolist()
    made = session(["int64"], [helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **simple(pool))], 2)
    x = rng.choice(np.array([*pool, 5]), (4, 500))
    np.testing.assert_array_equal(made.run(None, {"x0": x})[0], prepare_vectorizer(np, **simple(pool))(x))


def test_columns_that_several_share() -> None:
    """They add up where they are counted; weighted they are left to NumPy."""
    node = helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **simple([1, 2, 3], indexes=[0, 1, 0]))
    made = session(["int64"], [node], 1)
    assert is_native(made) and made.run(None, {"x0": np.array([3, 1, 2])})[0].tolist() == [2, 1]
    node = helper.make_node("TfIdfVectorizer", ["x0"], ["y"], **simple([1, 2, 3], "IDF", [0, 1, 0]))
    made = session(["int64"], [node], 1)
    assert not is_native(made) and made.run(None, {"x0": np.array([3, 1, 2, 1])})[0].tolist() == [2, 1]


def test_what_the_run_refuses() -> None:
    """A rank that TfIdfVectorizer does not take is told by its kernel, strings or not."""
    graph = helper.make_graph(
        [helper.make_node("TfIdfVectorizer", ["x"], ["y"], **simple(["a"]))], "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, None)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"\[C\] or \[N, C\]"):
        made.run(None, {"x": np.full((1, 1, 1), "a", object)})


@pytest.mark.parametrize("count", [1, 7, 300])
def test_every_entry_is_within_its_probes(count: int) -> None:
    entries = [(state, 7 * state, state + 1, state) for state in range(count)]
    table, probes = gram_table._laid(entries)
    assert len(table) & (len(table) - 1) == 0
    held = {tuple(row) for row in table.tolist() if row[0] != -2}
    assert held == set(entries) and probes < 32
