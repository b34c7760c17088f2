"""Generated loops over Python objects: what they give is what the catalogue's kernels give, errors included; they keep no reference,
and hand on what they are not for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug as ort
from onnxplug_ep_cpu.codegen import sequences, text, words
from onnxplug_ep_cpu.codegen.objects import make
from onnxplug_ep_cpu.definitions import OBJECTS
from onnxplug_ep_cpu.kernels.objects import RULES

HEAD = '<ir_version: 9, opset_import: ["": 21, "ai.onnx.ml": 4, "com.microsoft": 1]>\n'
WORDS = st.one_of(
    st.sampled_from(["", "a", "b", "A b", " a  b ", "ß", "İstanbul", "a\0b", "🙂 x", "12", "1.5", "#"]),
    st.text(max_size=6),
)
BUILTIN = type(len)


def session(source: str, codegen: str = "1") -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    model = onnx.parser.parse_model(HEAD + source).SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def generated(made: ort.InferenceSession) -> list[str]:
    """The operators whose kernels are generated functions."""
    bound = made._engine.built.runtime._bound
    return sorted(unit.node.op_type for unit, kernel in bound.items() if type(kernel) is BUILTIN)


def outcome(made: ort.InferenceSession, feed: dict[str, Any]) -> list[Any]:
    try:
        return made.run(None, feed)
    except Exception as error:
        return [type(error), str(error)]


def assert_same(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(got, list):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert_same(a, b)
    elif isinstance(got, np.ndarray):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        if got.dtype == object:
            assert got.ravel().tolist() == wanted.ravel().tolist()
            assert {type(word) for word in got.ravel().tolist()} <= {str}
        else:
            assert got.tobytes() == wanted.tobytes()
    else:
        assert got == wanted


def strings(*shape: int) -> st.SearchStrategy[np.ndarray]:
    size = int(np.prod(shape))
    return st.lists(WORDS, min_size=size, max_size=size).map(lambda words: array_of(words).reshape(shape))


def array_of(words: list[str]) -> np.ndarray:
    made = np.empty(len(words), object)
    made[:] = words
    return made


NUMBERS = st.sampled_from(
    ["1", " 2 ", "-3.5", "1e40", "nan", "inf", "x", "", "0x1", "99999999999999999999", "٣", "1_0"]
)
FLOATS = st.one_of(
    st.floats(width=32), st.sampled_from([0.1, 1e20, 1e-7, -0.0, 16777217.0, float("nan"), float("inf"), -float("inf")])
)
CASES: dict[str, tuple[str, list[str], Callable[[Any], dict[str, Any]]]] = {
    "words joined": (
        "g (string[N, M] x, string[M] z, string s) => (string[N, M] a, string[N, M] b) { a = StringConcat(x, x) b = StringConcat(s, x) }",
        ["StringConcat", "StringConcat"],
        lambda draw: {"x": draw(strings(2, 3)), "z": draw(strings(3)), "s": draw(strings())},
    ),
    "broadcast in unusual ways": (
        "g (string[N, M] x, string[M] z) => (string[N, M] a, bool[N, M] e) { a = StringConcat(x, z) e = Equal(z, x) }",
        ["Equal", "StringConcat"],
        lambda draw: {"x": draw(strings(2, 3)), "z": draw(strings(3))},
    ),
    "chosen": (
        "g (string[N] x, bool[N] c, string[1] z) => (string[N] a, string[N] b, bool[N] e) { a = Where(c, x, z) b = Where(c, z, z) "
        "e = Equal(x, z) }",
        ["Equal", "Where", "Where"],
        lambda draw: {
            "x": draw(strings(4)), "z": draw(strings(1)),
            "c": np.array(draw(st.lists(st.booleans(), min_size=4, max_size=4))),
        },
    ),
    "parts and repeats": (
        "g (string[N, M] x) => (string a, string b, string c, string d, string e, string f) <int64[2] s = {0, -2}, int64[2] e1 = {5, -1}, "
        "int64[2] by = {2, 1}, int64[1] one = {1}, int64[1] far = {9223372036854775807}, int64[1] last = {-1}, int64[2] twice = {2, 3}, "
        "int64[3] wide = {2, 1, 3}> { a = Slice(x, s, e1, , by) b = Slice(x, one, far, last) c = Tile(x, twice) d = Expand(x, wide) "
        "e = Transpose(x) f = Transpose<perm = [0, 1]>(x) }",
        ["Expand", "Slice", "Slice", "Tile", "Transpose", "Transpose"],
        lambda draw: {"x": draw(st.sampled_from([(2, 3), (1, 3), (4, 1), (0, 3), (2, 0)]).flatmap(lambda s: strings(*s)))},
    ),
    "cut": (
        "g (string[N, M] x) => (string a, string b, string c, string d, string e, string f, string h) <int64[2] s = {1, 3}> { "
        "a, b = Split<axis = 1>(x, s) c, d = Split<num_outputs = 2>(x) e, f, h = Split<axis = -1, num_outputs = 3>(x) }",
        ["Split"] * 3,
        lambda draw: {"x": draw(st.sampled_from([(3, 4), (2, 4), (1, 4), (2, 5), (0, 4)]).flatmap(lambda s: strings(*s)))},
    ),
    "cut evenly": (
        "g (string[N, M] x) => (string a, string b) { a, b = Split(x) }",
        ["Split"],
        lambda draw: {"x": draw(st.sampled_from([(4, 1), (3, 2), (0, 1)]).flatmap(lambda s: strings(*s)))},
    ),
    "case": (
        'g (string[N] x) => (string[N] a, string[N] b, bool[N] m) { a = StringNormalizer<case_change_action = "UPPER">(x) '
        'b = StringNormalizer<case_change_action = "LOWER">(x) m = RegexFullMatch<pattern = "[a-z ]+">(x) }',
        ["RegexFullMatch", "StringNormalizer", "StringNormalizer"],
        lambda draw: {"x": draw(st.integers(0, 4).flatmap(strings))},
    ),
    "split": (
        'g (string[N, M] x) => (string a, int64 n, string b, int64 m, string c, int64 k) { a, n = StringSplit<delimiter = " ">(x) '
        'b, m = StringSplit(x) c, k = StringSplit<delimiter = "a", maxsplit = 1>(x) }',
        ["StringSplit"] * 3,
        lambda draw: {"x": draw(st.sampled_from([(2, 2), (0, 2), (1, 1)]).flatmap(lambda s: strings(*s)))},
    ),
    "labels": (
        'g (string[N] x, int64[M] i) => (int64[N] a, float[N] b, string[N] c, string[M] d, int64[N] e, float[N, K] f) { '
        'a = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "", "a"], values_int64s = [1, 2, 3]>(x) '
        'b = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [0.1, 2.0], default_float = -0.5>(x) '
        'c = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "ß"], values_strings = ["", "z"]>(x) '
        'd = ai.onnx.ml.LabelEncoder<keys_int64s = [1, -2], values_strings = ["u", "v"]>(i) '
        'e = ai.onnx.ml.CategoryMapper<cats_strings = ["a", "b"], cats_int64s = [5, 6]>(x) '
        'f = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "b", "12"]>(x) }',
        ["CategoryMapper", "LabelEncoder", "LabelEncoder", "LabelEncoder", "LabelEncoder", "OneHotEncoder"],
        lambda draw: {"x": draw(strings(3)), "i": np.array(draw(st.lists(st.integers(-3, 3), max_size=4)), np.int64)},
    ),
    "hashes": (
        "g (string[N, M] x) => (uint32[N, M] a, int32[N, M] b, uint32[N, M] c) { a = com.microsoft.MurmurHash3(x) "
        "b = com.microsoft.MurmurHash3<positive = 0, seed = 7>(x) c = com.microsoft.MurmurHash3<seed = -1>(x) }",
        ["MurmurHash3"] * 3,
        lambda draw: {"x": draw(st.sampled_from([(2, 3), (0, 2), (1, 1)]).flatmap(lambda s: strings(*s)))},
    ),
    "numbers of words": (
        "g (string[N] x) => (float[N] a) { a = Cast<to = 1>(x) }", ["Cast"],
        lambda draw: {"x": array_of(draw(st.lists(NUMBERS, max_size=4)))},
    ),
    "doubles of words": (
        "g (string[N] x) => (double[N] a) { a = Cast<to = 11>(x) }", ["Cast"],
        lambda draw: {"x": array_of(draw(st.lists(NUMBERS, max_size=4)))},
    ),
    "whole numbers of words": (
        "g (string[N] x) => (int64[N] a) { a = Cast<to = 7>(x) }", ["Cast"],
        lambda draw: {"x": array_of(draw(st.lists(NUMBERS, max_size=4)))},
    ),
    "words of numbers": (
        "g (float[N] x, double[N] d, int64[N] i) => (string[N] a, string[N] b, string[N] c) { a = Cast<to = 8>(x) b = Cast<to = 8>(d) "
        "c = Cast<to = 8>(i) }",
        ["Cast"] * 3,
        lambda draw: {
            "x": np.array(draw(st.lists(FLOATS, min_size=3, max_size=3)), np.float32),
            "d": np.array(draw(st.lists(st.one_of(FLOATS, st.floats()), min_size=3, max_size=3)), np.float64),
            "i": np.array(draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3)), np.int64),
        },
    ),
    "taken": (
        "g (string[2, 3] x, int64[M] i) => (string a, string b, string c) { a = Gather<axis = -1>(x, i) b = Gather(x, i) "
        "c = ai.onnx.ml.ArrayFeatureExtractor(x, i) }",
        ["ArrayFeatureExtractor", "Gather", "Gather"],
        lambda draw: {"x": draw(strings(2, 3)), "i": np.array(draw(st.lists(st.integers(-2, 2), max_size=3)), np.int64)},
    ),
    "tokens": (
        'g (string[N] x) => (string a, string b, string c) { '
        'a = com.microsoft.Tokenizer<mark = 1, pad_value = "#", mincharnum = 1, separators = [" "]>(x) '
        'b = com.microsoft.Tokenizer<mark = 0, pad_value = "", mincharnum = 2, tokenexp = "[a-z]+|[0-9]+">(x) '
        'c = com.microsoft.Tokenizer<mark = 0, pad_value = "#", mincharnum = 1, separators = [""]>(x) }',
        ["Tokenizer"] * 3,
        lambda draw: {"x": draw(st.integers(0, 3).flatmap(strings))},
    ),
    "shown": (
        "g (string[N, M] x, string s) => (string a, string b, string c, string d, string e, string f) <int64[3] r = {-1, 1, 2}, "
        "int64[1] t = {4}, int64[2] u = {3, 0}, int64[1] v = {0}> { a = Reshape(x, r) b = Reshape(x, t) "
        "c = Flatten(x) d = Flatten<axis = -2>(x) e = Unsqueeze(x, u) f = Unsqueeze(s, v) }",
        ["Flatten", "Flatten", "Reshape", "Reshape", "Unsqueeze", "Unsqueeze"],
        lambda draw: {
            "x": draw(st.sampled_from([(2, 2), (2, 2), (4, 1), (0, 2), (3, 1)]).flatmap(lambda s: strings(*s))),
            "s": draw(strings()),
        },
    ),
    "parts": (
        "g (float[N, 4] x, int64[K] n, int64 s) => (seq(float[M, 4]) a, seq(float[N, P]) b, seq(float[1, 4]) c) { "
        "a = SplitToSequence(x, n) b = SplitToSequence<axis = -1>(x, s) c = SplitToSequence(x) }",
        ["SplitToSequence"] * 3,
        lambda draw: {
            "x": np.arange(20, dtype=np.float32).reshape(5, 4),
            "n": np.array(draw(st.lists(st.integers(-1, 5), max_size=3)), np.int64),
            "s": np.array(draw(st.integers(-1, 6))),
        },
    ),
    "parts put together": (
        "g (seq(float[A, B]) q, seq(string[C]) w) => (float[D, E] a, float[F, G, H] b, string[I] c, float[J, K] d) { "
        "a = ConcatFromSequence<axis = -1>(q) "
        "b = ConcatFromSequence<axis = 1, new_axis = 1>(q) c = ConcatFromSequence<axis = 0>(w) "
        "d = ConcatFromSequence<axis = 0>(q) }",
        ["ConcatFromSequence"] * 4,
        lambda draw: {
            "q": [
                np.full(draw(st.sampled_from([(2, 3), (2, 3), (1, 3), (2, 0), (2,)])), at, np.float32)
                for at in range(draw(st.integers(1, 3)))
            ],
            "w": [draw(strings(2)) for _ in range(draw(st.integers(1, 3)))],
        },
    ),
}  # fmt: skip
made_once: dict[str, tuple[ort.InferenceSession, ort.InferenceSession]] = {}


def both(name: str) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    if name not in made_once:
        made_once[name] = session(CASES[name][0]), session(CASES[name][0], "0")
    return made_once[name]


def test_the_registry_knows_the_operators_without_importing_the_rules() -> None:
    assert {op_type for _, op_type in RULES} == OBJECTS


@pytest.mark.parametrize("name", CASES)
def test_functions_are_generated(name: str) -> None:
    fast, plain = both(name)
    assert generated(fast) == CASES[name][1]
    assert generated(plain) == []


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_same_as_the_catalogue(name: str, data: st.DataObject) -> None:
    fast, plain = both(name)
    feed = CASES[name][2](data.draw)
    assert_same(outcome(fast, feed), outcome(plain, feed))


FED: dict[str, list[dict[str, Any]]] = {
    "words joined": [{"x": array_of(list("abcdef")).reshape(2, 3), "z": array_of(list("abc")), "s": np.array("s", object)}],
    "chosen": [{"x": array_of(list("abcd")), "z": array_of(["q"]), "c": np.array([True, False, True, False])}],
    "case": [{"x": array_of(["Ab", "c d"])}],
    "split": [{"x": array_of(["a b c", "", "d", " e "]).reshape(2, 2)}],
    "labels": [{"x": array_of(["a", "b", "zz"]), "i": np.array([1, 7])}],
    "numbers of words": [{"x": array_of(["1", "2.5"])}, {"x": array_of(["1", "x"])}],
    "whole numbers of words": [{"x": array_of(["1", "77777777"])}, {"x": array_of(["1", "y"])}],
    "words of numbers": [{"x": np.array([0.1, np.nan], np.float32), "d": np.array([0.1, -np.inf]), "i": np.array([1, 2**60])}],
    "taken": [
        {"x": array_of(list("abcdef")).reshape(2, 3), "i": np.array([1, 0])},
        {"x": array_of(list("abcdef")).reshape(2, 3), "i": np.array([1, 9])},
    ],
    "shown": [
        {"x": array_of(list("abcd")).reshape(2, 2), "s": np.array("s", object)},
        {"x": array_of(list("abc")).reshape(3, 1), "s": np.array("s", object)},
    ],
    "tokens": [{"x": array_of(["a bc 12", "", "d"])}],
    "parts": [
        {"x": np.ones((5, 4), np.float32), "n": np.array([2, 3]), "s": np.array(3)},
        {"x": np.ones((5, 4), np.float32), "n": np.array([2, 2]), "s": np.array(3)},
        {"x": np.ones((5, 4), np.float32), "n": np.array([6, -1]), "s": np.array(3)},
    ],
    "parts put together": [
        {"q": [np.ones((2, 3), np.float32)] * 2, "w": [array_of(["a"]), array_of(["b"])]},
        {"q": [np.ones((2, 3), np.float32), np.ones(2, np.float32)], "w": [array_of(["a"])]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FED)
def test_no_reference_is_kept_or_lost(name: str) -> None:
    """What is fed and what the session knows is referred to as often after many runs as before, failed ones among them, and the
    interpreter holds no more memory. A reference too few would be a crash sooner or later."""
    made, _ = both(name)
    kernels = [k for k in made._engine.built.runtime._bound.values() if type(k) is BUILTIN]
    held = [k.__module__[1] for k in kernels]  # dicts and texts in tuples
    known = [v for each in held if isinstance(each, tuple) for v in each]
    known += [v for each in known if isinstance(each, dict) for v in (*each.keys(), *each.values())]
    known += ["", None]
    for feed in FED[name]:
        words = [w for x in feed.values() for w in (x.ravel().tolist() if isinstance(x, np.ndarray) else x)]
        for _ in range(20):
            outcome(made, feed)
        grown = []
        for _ in range(3):  # the blocks are those of the process, and other threads may be at work once
            gc.collect()
            before, blocks = list(map(sys.getrefcount, [*words, *known])), sys.getallocatedblocks()
            for _ in range(500):
                outcome(made, feed)
            gc.collect()
            after = list(map(sys.getrefcount, [*words, *known]))
            assert all(abs(a - b) < 100 for a, b in zip(before, after, strict=True)), (before, after)
            grown.append(sys.getallocatedblocks() - blocks)
        assert min(grown) < 200, grown


def recorded(written: Any, *own: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function with a fallback that notes how it is called."""
    calls: list[Any] = []

    def fallback(*operands: Any) -> str:
        calls.append(operands)
        return "fallback"

    return make(written, fallback, *map(id, (text.OBJECT, *own)), held=own), calls


X = array_of(["a", "b", "c", "d"])


@pytest.mark.parametrize(
    "operands",
    [
        (),
        (X,),
        (X, X, X),
        (X, X[::2]),
        (X, X.astype("U1")),
        (X, np.arange(4)),
        (X, list("abcd")),
        (X, None),
        (X, "abcd"),
        (X, X.reshape(2, 2)),
        (X[:0], X),
        (X.reshape(4, 1), X),
    ],
)
def test_what_is_not_for_a_function_is_handed_on(operands: tuple[Any, ...]) -> None:
    function, calls = recorded(text.Concat())
    assert function(*operands) == "fallback"
    assert len(calls) == 1 and all(a is b for a, b in zip(calls[0], operands, strict=True))


def test_elements_that_are_no_strings() -> None:
    """Nothing feeds such arrays to a session; a function that is given one says so like Python."""
    function, calls = recorded(text.Concat())
    with pytest.raises(TypeError):
        function(array_of(["a", 1]), array_of(["b", "c"]))  # type: ignore[list-item]
    change, _ = recorded(text.Change(), str.lower)
    with pytest.raises(TypeError):
        change(array_of(["a", None]))  # type: ignore[list-item]
    lookup = make(words.Lookup(True, "int64"), len, *map(id, held := (text.OBJECT, {"a": 1}, 0)), held=held)
    with pytest.raises(TypeError, match="unhashable"):
        lookup(array_of(["a", []]))  # type: ignore[list-item]
    assert not calls


def test_an_array_of_another_list_type() -> None:
    class Listed(list[Any]):
        pass

    calls: list[Any] = []
    joined = make(sequences.Concat(0, False, False), calls.append, id(list), id(text.OBJECT))
    assert joined(Listed([np.ones(2)])) is None and len(calls) == 1
    assert joined([np.ones(2), [1.0, 2.0]]) is None and len(calls) == 2
    assert joined([]) is None and len(calls) == 3
    np.testing.assert_array_equal(joined([np.ones(2), np.zeros(1)]), [1, 1, 0])


def test_parts_show_what_they_were_cut_from() -> None:
    """Views as NumPy makes them: they keep the whole alive, and have its flags."""
    whole = np.arange(12.0).reshape(3, 4)
    whole.flags.writeable = False
    cut = make(sequences.Split(1, 2), len, id(text.INT64), held=text.INT64)
    parts = cut(whole, np.array([1, 3]))
    for part, wanted in zip(parts, (whole[:, :1], whole[:, 1:]), strict=True):
        assert part.base is wanted.base and part.strides == wanted.strides and not part.flags.writeable
        assert part.flags.c_contiguous == wanted.flags.c_contiguous and not part.flags.owndata
        np.testing.assert_array_equal(part, wanted)
    turned = cut(whole.T, np.array(2))
    np.testing.assert_array_equal(turned[1], whole.T[:, 2:])
    del whole
    gc.collect()
    assert parts[1].sum() == sum(range(12)) - (0 + 4 + 8)
