"""Regions that take strings: label encoders and one-hot encoders, fused with what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import onnxplug as ort
from onnxplug_kernels.ops.ml_features import prepare_one_hot_encoder
from onnxplug_kernels.ops.ml_maps import prepare_label_encoder, prepare_label_encoder_2

WORDS = ["red", "green", "", "blü", "x"]


def session(text: str, ml: int = 3) -> ort.InferenceSession:
    source = parser.parse_model(f'<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": {ml}]> {text}')
    return ort.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])


def native(made: ort.InferenceSession) -> list[int]:
    """How many nodes each region has."""
    return [len(region["nodes"]) for region in made.explain().regions]


def quoted(words: list[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.sampled_from([2, 4]),
    st.lists(st.lists(st.sampled_from([*WORDS, "other"]), min_size=2, max_size=2), min_size=1, max_size=4),
)
def test_two_readers_of_one_text(keys: list[str], categories: list[str], ml: int, rows: list[list[str]]) -> None:
    """Of equal keys the first is taken; a category may stand twice."""
    values = [0.5 * at - 1 for at in range(len(keys))]
    made = session(
        f"""g (string[N, 2] x) => (float y, float z) {{
        a = ai.onnx.ml.LabelEncoder<keys_strings = {quoted(keys)}, values_floats = {values}, default_float = 7.0>(x)
        h = ai.onnx.ml.OneHotEncoder<cats_strings = {quoted(categories)}>(x) y = Neg(a) z = Neg(h) }}""",
        ml,
    )
    assert native(made) and sum(native(made)) == 4
    encode = prepare_label_encoder if ml == 4 else prepare_label_encoder_2
    x = np.array(rows, object)
    y, z = made.run(None, {"x": x})
    np.testing.assert_array_equal(
        y, -encode(np, keys_strings=keys, values_floats=values, default_float=7.0)(x), strict=True
    )
    np.testing.assert_array_equal(z, -prepare_one_hot_encoder(np, cats_strings=categories)(x), strict=True)


def test_columns_of_words_and_numbers() -> None:
    """As a column transformer is exported; the same region for one row and many."""
    made = session(
        """g (string[N, 1] a, string[N, 1] b, float[N, 2] c) => (float[N, M] y, int64[N, 1] n) <int64[2] s = {-1, 2}> {
        p = ai.onnx.ml.OneHotEncoder<cats_strings = ["u", "v"]>(a) q = Reshape(p, s)
        n = ai.onnx.ml.LabelEncoder<keys_strings = ["k", "l"], values_int64s = [3, 4], default_int64 = -1>(b)
        d = Cast<to = 1>(n) y = Concat<axis = 1>(q, d, c) }"""
    )
    assert native(made) == [5]
    for rows in (1, 3, 2, 3):
        a, b = np.array([["u", "v", "w"]], object).T[:rows], np.array([["l", "", "k"]], object).T[:rows]
        c = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        wanted = np.array([[1, 0, 4], [0, 1, -1], [0, 0, 3]], np.float32)[:rows]
        y, n = made.run(None, {"a": a, "b": b, "c": c})
        np.testing.assert_array_equal(y, np.concatenate([wanted, c], axis=1), strict=True)
        np.testing.assert_array_equal(n, wanted[:, 2:].astype(np.int64), strict=True)


def test_data_that_only_numpy_answers_to() -> None:
    """The nodes' own kernels get the words, not their numbers."""
    made = session(
        """g (string[N] x, float[4] t) => (float y) {
        i = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [1, 9]>(x) g = Gather<axis = 0>(t, i) y = Neg(g) }"""
    )
    t = np.arange(4, dtype=np.float32)
    assert made.run(None, {"x": np.array(["a", "z"], object), "t": t})[0].tolist() == [-1, -3]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="Gather"):
        made.run(None, {"x": np.array(["a", "b"], object), "t": t})


@pytest.mark.parametrize("column", ["Gather<axis = 1>", "ai.onnx.ml.ArrayFeatureExtractor"])
def test_columns_of_one_matrix_of_words(column: str) -> None:
    """As scikit-learn's encoders are exported: the columns are taken of the words' numbers."""
    made = session(
        f"""g (string[N, 2] x, string[N, 1] c) => (float[N, M] y) <int64[1] i = {{-1}}, int64[1] j = {{0}}, int64[2] s = {{-1, 1}}> {{
        w = Concat<axis = 1>(x, c) p = {column}(w, j) q = {column}(x, j) t = Identity(x)
        k = Gather<axis = 1>(t, i) r = Reshape(k, s) m = ai.onnx.ml.OneHotEncoder<cats_strings = ["u", "v"]>(q) h = Flatten(m)
        n = ai.onnx.ml.LabelEncoder<keys_strings = ["v", "l"], values_floats = [3.0, 4.0], default_float = 7.0>(r)
        o = ai.onnx.ml.LabelEncoder<keys_strings = ["u", "l"], values_floats = [5.0, 6.0], default_float = 8.0>(p)
        y = Concat<axis = 1>(h, n, o) }}"""
    )
    assert len(native(made)) == 1 and native(made)[0] >= 9
    x, c = np.array([["u", "l"], ["v", "v"], ["", "u"]], object), np.array([["a"], ["v"], ["l"]], object)
    wanted = np.array([[1, 0, 4, 5], [0, 1, 3, 8], [0, 0, 7, 8]], np.float32)
    for rows in (3, 1, 0, 2):
        (y,) = made.run(None, {"x": x[:rows], "c": c[:rows]})
        np.testing.assert_array_equal(y, wanted[:rows], strict=True)


def test_words_that_others_read_stay_words() -> None:
    made = session(
        """g (string[N, 2] x) => (float[N, M] y, string[N, 1] q, string[N, 1] u) <int64[1] i = {0}, int64[1] j = {1}> {
        q = Gather<axis = 1>(x, i) p = Gather<axis = 1>(x, j) u = StringConcat(p, p)
        a = ai.onnx.ml.OneHotEncoder<cats_strings = ["u", "v"]>(q) m = ai.onnx.ml.OneHotEncoder<cats_strings = ["l"]>(p)
        b = Flatten(a) n = Flatten(m) y = Concat<axis = 1>(b, n) }"""
    )
    y, q, u = made.run(None, {"x": np.array([["u", "l"], ["v", "k"]], object)})
    assert (y.tolist(), q.tolist(), u.tolist()) == ([[1, 0, 1], [0, 1, 0]], [["u"], ["v"]], [["ll"], ["kk"]])


@pytest.mark.parametrize("shown", ["y", "y, a", "y, a, q, b"])
def test_words_that_a_region_makes(shown: str) -> None:
    """As paths through forests are exported; what is put together has another list of words than its parts, which may be wanted too."""
    outputs = ", ".join(f"string[{'N' if name in 'ab' else 'N, M'}] {name}" for name in shown.split(", "))
    made = session(
        f"""g (float[N] x, int64[N] i) => ({outputs}) <int64[2] s = {{-1, 1}}> {{
        a = ai.onnx.ml.LabelEncoder<keys_floats = [1.0, 2.0], values_strings = ["u", "v"], default_string = "none">(x)
        b = ai.onnx.ml.LabelEncoder<keys_int64s = [7, 7000000], values_strings = ["v", "w"]>(i)
        p = Reshape(a, s) q = Reshape(b, s) y = Concat<axis = -1>(p, q, p) }}"""
    )
    assert native(made) == [5]
    x, i = np.array([2, 1, np.nan, 3], np.float32), np.array([7, 7000000, 8, 7])
    a, b = np.array(["v", "u", "none", "none"], object), np.array(["v", "w", "_Unused", "v"], object)
    wanted = {"a": a, "b": b, "q": b[:, None], "y": np.stack([a, b, a], 1)}
    for rows in (4, 1, 0, 3):
        for name, got in zip(shown.split(", "), made.run(None, {"x": x[:rows], "i": i[:rows]}), strict=True):
            np.testing.assert_array_equal(got, wanted[name][:rows], strict=True)


def test_words_that_are_numbered_again(caplog: pytest.LogCaptureFixture) -> None:
    made = session(
        """g (int64[N] x) => (float[N, 1] y) <int64[2] s = {-1, 1}> {
        a = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2], values_strings = ["u", "v"]>(x) b = Reshape(a, s)
        c = ai.onnx.ml.LabelEncoder<keys_strings = ["u", "v"], values_floats = [5.0, 6.0]>(b) y = Neg(c) }"""
    )
    assert made.run(None, {"x": np.array([2, 1])})[0].tolist() == [[-6], [-5]]
    assert "node by node" not in caplog.text


@pytest.mark.parametrize("operator", ["LabelEncoder<keys_strings", "OneHotEncoder<cats_strings"])
def test_one_reader_alone_needs_no_region(operator: str) -> None:
    values: Any = ", values_floats = [1.0]" if operator.startswith("Label") else ""
    made = session(f'g (string[N] x) => (float y) {{ y = ai.onnx.ml.{operator} = ["a"]{values}>(x) }}')
    assert native(made) == []
    assert made.run(None, {"x": np.array(["a"], object)})[0].ravel().tolist() == [1]


def test_words_that_have_to_be_in_a_category() -> None:
    made = session(
        'g (string[N] x) => (float z) { y = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "b"], zeros = 0>(x) z = Neg(y) }'
    )
    assert len(native(made)) == 1
    assert made.run(None, {"x": np.array(["b", "a"], object)})[0].tolist() == [[0, -1], [-1, 0]]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="OneHotEncoder"):
        made.run(None, {"x": np.array(["b", "c"], object)})
    assert made.run(None, {"x": np.array(["a"], object)})[0].tolist() == [[-1, 0]]
