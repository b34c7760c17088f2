"""Texts to counts of n-grams: normalizer, tokenizer and vectorizer as one region."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug as ort

POOL = ["a", "b", "ab", "ä", "i", "k", "ss", "1", "a-b", "a", "b", "b", "a", "a", "a", "ab", "a", "b", "a"]
"""Nine tokens, three pairs, and behind them one of three."""
GRAMS: dict[str, Any] = {
    "ngram_counts": [0, 9, 15], "ngram_indexes": [4, 0, 2, 12, 1, 3, 5, 6, 7, 8, 9, 10, 11], "pool_strings": [*POOL[:15], *POOL[15:18]],
    "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, "weights": [0.5 * n - 2 for n in range(13)],
}  # fmt: skip
PIECES = [
    "a",
    "b",
    "ab",
    " ",
    "-",
    "A",
    "B",
    "Ä",
    "ä",
    "İ",
    "\u212a",
    "ß",
    "1",
    "0",
    "\n",
    "\0",
    "\U0001f600",
    "ﬁ",
    "x",
]
CUTS: dict[str, dict[str, Any]] = {
    "letters": {"tokenexp": "[a-zA-Z]+"},
    "words": {"tokenexp": r"\b\w\w+\b"},
    "two and more": {"tokenexp": "[a-z1][a-z1]+"},
    "no space": {"tokenexp": r"[^ \n]+", "mincharnum": 2},
    "ends": {"tokenexp": "[^-]+", "mark": 1},
    "characters": {"separators": [""]},
    "each": {"tokenexp": "."},
    "blanks": {"separators": [r"\s", "-"]},
    "runs of blanks": {"separators": [" +"], "mark": 1, "mincharnum": 2},
}


def model(case: str | None, cut: dict[str, Any], mode: str, shape: list[Any], behind: bool, **grams: Any) -> bytes:
    """Texts of a shape, each of which becomes a row ``y``; ``z`` is twice that."""
    rows = shape if case is None else [None]
    nodes = [] if case is None else [helper.make_node("Reshape", ["x", "all"], ["r"])]
    if case is not None:
        nodes.append(helper.make_node("StringNormalizer", ["r"], ["n"], case_change_action=case))
    tokens = {"mark": 0, "mincharnum": 1, "pad_value": "#", **cut}
    nodes.append(helper.make_node("Tokenizer", ["x" if case is None else "n"], ["t"], domain="com.microsoft", **tokens))
    if behind:
        nodes.append(helper.make_node("Flatten", ["t"], ["f"]))
    nodes.append(helper.make_node("TfIdfVectorizer", ["f" if behind else "t"], ["y"], mode=mode, **(GRAMS | grams)))
    nodes.append(helper.make_node("Add", ["y", "y"], ["z"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"],
        [helper.make_tensor("all", TensorProto.INT64, [1], [-1])] if len(rows) < 2 else [],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def session(data: bytes, codegen: bool = True, **options: Any) -> ort.InferenceSession:
    made = ort.SessionOptions()
    made.add_session_config_entry("ep.cpu.codegen", str(int(codegen)))
    for name, value in options.items():
        setattr(made, name, value)
    return ort.InferenceSession(data, made, providers=["CPUExecutionProvider"])


def is_together(made: ort.InferenceSession) -> bool:
    names = {node["op_type"]: node["name"] for node in made.explain().nodes}
    return any({names["Tokenizer"], names["TfIdfVectorizer"]} <= set(r["nodes"]) for r in made.explain().regions)


def agree(made: ort.InferenceSession, plain: ort.InferenceSession, x: Any) -> None:
    for ours, theirs in zip(made.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize("cut", CUTS)
@settings(max_examples=3, deadline=None)
@given(st.data())
def test_counts_are_those_of_the_operators_one_by_one(cut: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([None, "NONE", "LOWER", "UPPER"]))
    mode, behind = data.draw(st.sampled_from(["TF", "IDF", "TFIDF"])), case is None or data.draw(st.booleans())
    made_of = model(case, CUTS[cut], mode, ["N", 1], behind, max_gram_length=data.draw(st.integers(1, 3)))
    made, plain = session(made_of), session(made_of, codegen=False)
    assert is_together(made)
    for _ in range(6):
        texts = data.draw(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=4))
        agree(made, plain, np.array(texts, object).reshape(-1, 1))


def test_more_distinct_tokens_than_one_looks_at() -> None:
    words = [f"w{n}" for n in range(3000)]
    grams = {"ngram_counts": [0], "ngram_indexes": list(range(3000)), "pool_strings": words, "weights": None}
    made_of = model("LOWER", {"separators": [" "]}, "TF", ["N", 1], True, max_gram_length=1, **grams)
    texts = [" ".join(f"W{(n * k) % 3500}" for n in range(200)) for k in range(1, 20)]
    agree(session(made_of), session(made_of, codegen=False), np.array(texts, object).reshape(-1, 1))


@pytest.mark.parametrize(
    ("cut", "grams"),
    [
        ({"tokenexp": "[a-z]+|[0-9]+"}, {}),
        ({"tokenexp": "[a-zäöü]+"}, {}),
        ({"tokenexp": "[a-z]"}, {}),
        ({"tokenexp": "(?i)[a-z]+"}, {}),
        ({"separators": ["ab"]}, {}),
        ({"separators": ["ö"]}, {}),
        ({"separators": [" "], "pad_value": "a"}, {}),
        ({"separators": [" "]}, {"max_skip_count": 1}),
    ],
)
def test_what_takes_more_is_left_to_the_operators(cut: dict[str, Any], grams: dict[str, Any]) -> None:
    made_of = model("LOWER", cut, "TF", ["N", 1], True, **grams)
    made = session(made_of)
    assert not is_together(made)
    agree(made, session(made_of, codegen=False), np.array([["A b a AB ä1"], ["ab"]], object))


@pytest.mark.parametrize("shape", [(0, 1), (1, 1), (2, 2), (3,), (1, 0)])
def test_shapes(shape: tuple[int, ...]) -> None:
    made_of = model(None, {"separators": [" "]}, "TF", ["N"] * len(shape), True)
    x = np.array([f"a b {n}" for n in range(np.prod(shape, dtype=int))], object).reshape(shape)
    agree(session(made_of), session(made_of, codegen=False), x)


def test_what_has_no_bytes_is_left_to_the_operators() -> None:
    made_of = model("LOWER", {"separators": [" "]}, "TF", ["N", 1], True)
    x = np.array([["a \ud800 b"], ["ab"], ["Ä \ud800"]], object)  # no UTF-8 has a lone surrogate
    agree(session(made_of), session(made_of, codegen=False), x)


def test_nothing_is_kept_of_texts() -> None:
    made = session(model("LOWER", {"separators": [" "]}, "TF", ["N", 1], True))
    x = np.array([["Ä" * 10000], ["A b"], ["\ud800" * 10000]], object)
    made.run(None, {"x": x})
    made.run(None, {"x": x[:2]})
    references = [sys.getrefcount(text) for text in x.flat]
    held = []
    for _ in range(3):  # other threads may be at work once
        tracemalloc.start()
        for _ in range(200):
            made.run(None, {"x": x[:2]})
            made.run(None, {"x": x})
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert [sys.getrefcount(text) for text in x.flat] == references
    assert min(held) < 1 << 20, held  # of what would be four megabytes


def test_a_profile_names_the_operators(tmp_path: Path) -> None:
    made = session(
        model("LOWER", {"separators": [" "]}, "TF", ["N", 1], True),
        enable_profiling=True, profile_file_prefix=str(tmp_path / "p"),
    )  # fmt: skip
    assert made.run(["z"], {"x": np.array([["a B"]], object)})[0].sum() == 4 + 2
    events = json.loads(Path(made.end_profiling()).read_text())
    seen = {event.get("args", {}).get("op_name") for event in events}
    assert {"Reshape", "StringNormalizer", "Tokenizer", "Flatten", "TfIdfVectorizer"} <= seen


def test_texts_that_are_constant() -> None:
    proto = onnx.load_from_string(model("LOWER", CUTS["words"], "TF", [2, 1], True))
    proto.graph.initializer.append(helper.make_tensor("x", TensorProto.STRING, [2, 1], [b"a ab", b"ss"]))
    fed, made = (
        session(data) for data in (model("LOWER", CUTS["words"], "TF", [2, 1], True), proto.SerializeToString())
    )
    del proto.graph.input[:]
    held = session(proto.SerializeToString())
    wanted = fed.run(None, {"x": np.array([["a ab"], ["ss"]], object)})
    for results in (made.run(None, {}), held.run(None, {})):
        np.testing.assert_array_equal(results, wanted)
