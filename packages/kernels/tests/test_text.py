"""Strings and n-grams against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug_kernels import re2
from onnxplug_kernels.dtypes import ElementType
from onnxplug_kernels.ops import tfidf
from onnxplug_kernels.ops.cast import cast_to
from onnxplug_kernels.ops.contrib_text import prepare_tokenizer
from onnxplug_kernels.ops.gather import gather_nd
from onnxplug_kernels.ops.text import filled, prepare_normalizer
from onnxplug_kernels.ops.tfidf import prepare_vectorizer
from onnxplug_kernels.refusals import Refusal

POOL = ["a", "b", "c", "a", "b", "b", "c", "c", "a", "a", "b", "c"]
"""Three 1-grams, three 2-grams, one 3-gram."""
GRAMS = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("c", "a"), ("a", "b", "c")]
NUMBERS = {"a": -7, "b": 2, "c": 5, "d": 2**31 - 1}
WEIGHTS = [0.5, 1.5, 2.25, -1.0, 3.0, 0.125, 7.0]


def expected(rows: list[list[str]], mode: str, indexes: list[int], skip: int) -> np.ndarray:
    made = np.zeros((len(rows), max(indexes) + 1))
    for number, row in enumerate(rows):
        counts: Counter[tuple[str, ...]] = Counter((token,) for token in row)
        for n in (2, 3):
            for distance in range(1, skip + 2):
                for at in range(len(row) - (n - 1) * distance):
                    counts[tuple(row[at + i * distance] for i in range(n))] += 1
        for gram, index, weight in zip(GRAMS, indexes, WEIGHTS, strict=True):
            count = counts[gram]
            made[number, index] += {"TF": count, "TFIDF": count * weight, "IDF": weight * (count > 0)}[mode]
    return made.astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 6).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from("abcd"), min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.sampled_from(["TF", "TFIDF", "IDF"]),
    st.sampled_from([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [0, 3, 0, 9, 3, 1, 1]]),
    st.integers(0, 3),
    st.sampled_from([{}, {"FEW": -1}, {"FEW": -1, "SPARSE": 0}, {"FEW": -1, "DENSE": 0, "KEPT": 0}]),
)
def test_n_grams(rows: list[list[str]], mode: str, indexes: list[int], skip: int, limits: dict[str, int]) -> None:
    """By dictionaries and by tables, laid out whole or searched, counted in every place or where they are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(tfidf, name, value)
        check_n_grams(rows, mode, indexes, skip)


def check_n_grams(rows: list[list[str]], mode: str, indexes: list[int], skip: int) -> None:
    run: Any = prepare_vectorizer(
        np, mode=mode, min_gram_length=1, max_gram_length=3, max_skip_count=skip, ngram_counts=[0, 3, 9],
        ngram_indexes=indexes, pool_strings=POOL, weights=WEIGHTS,
    )  # fmt: skip
    x = np.empty((len(rows), len(rows[0])), object)
    x[...] = rows
    wanted = expected(rows, mode, indexes, skip)
    for _ in range(2):
        np.testing.assert_array_equal(run(x), wanted, strict=True)
    numbers: Any = prepare_vectorizer(
        np, mode=mode, min_gram_length=1, max_gram_length=3, max_skip_count=skip, ngram_counts=[0, 3, 9],
        ngram_indexes=indexes, pool_int64s=list(map(NUMBERS.__getitem__, POOL)), weights=WEIGHTS,
    )  # fmt: skip
    for dtype in (np.int32, np.int64):
        y = np.array([[NUMBERS[token] for token in row] for row in rows], dtype).reshape(x.shape)
        np.testing.assert_array_equal(numbers(y), wanted, strict=True)


@pytest.mark.parametrize(
    ("mark", "tokens"), [(0, [["a", "bb"], ["#", "#"]]), (1, [["\x02", "a", "bb", "\x03"], ["\x02", "\x03", "#", "#"]])]
)
def test_tokens_and_what_fills_up(mark: int, tokens: list[list[str]]) -> None:
    run = prepare_tokenizer(np, mark=mark, mincharnum=1, pad_value="#", tokenexp="[a-z]+")
    assert run(np.array(["a 1 bb", "12"], object)).tolist() == tokens


ATOMS = ["a", "[ab]", "b+", "[c-d]*", "(?:ab)", "c?", "(?:a|ab)", "(?i)d", "\\b"]


def longest_from_the_left(expression: Any, word: str) -> list[tuple[int, int]]:
    """Matches that are not empty, each as long as can be, where the one before ended or behind it."""
    found, start = [], 0
    while start < len(word):
        ends = [end for end in range(len(word), start, -1) if expression.fullmatch(word, start, end)]
        if ends:
            found.append((start, ends[0]))
        start = ends[0] if ends else start + 1
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.text("abcdAD ", max_size=8), min_size=1, max_size=3),
)
def test_tokens_by_expression(branches: list[list[str]], words: list[str]) -> None:
    """The longest match at each place, by whatever way the expression allows; one without alternatives is taken to be greedy."""
    pattern = "|".join(map("".join, branches))
    expression = re2.compile(pattern)
    if len(branches) == 1 and "|" not in pattern:
        wanted = [[match.group() for match in expression.finditer(word) if match.group()] for word in words]
    elif all(len(branch) == 1 for branch in branches):  # what a branch of one atom matches first is its longest
        wanted = [[word[a:b] for a, b in longest_from_the_left(expression, word)] for word in words]
    else:
        return
    run = prepare_tokenizer(np, mark=0, mincharnum=1, pad_value="", tokenexp=pattern)
    got = [[token for token in row if token] for row in run(np.array(words, object)).tolist()]
    assert got == wanted


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([" ", ",", "ab", "[ ,]", " +", "a|ab", "b|,", "\\."]), min_size=1, max_size=3),
    st.lists(st.text("ab ,.", max_size=8), min_size=1, max_size=3),
)
def test_tokens_between_separators(separators: list[str], words: list[str]) -> None:
    def pieces(word: str) -> list[str]:
        tokens = [word]
        for separator in separators:
            parts = []
            for token in tokens:
                start = 0
                for a, b in longest_from_the_left(re2.compile(separator), token):
                    parts.append(token[start:a])
                    start = b
                parts.append(token[start:])
            tokens = parts
        return [token for token in tokens if token]

    run = prepare_tokenizer(np, mark=0, mincharnum=1, pad_value="", separators=separators)
    got = [[token for token in row if token] for row in run(np.array(words, object)).tolist()]
    assert got == list(map(pieces, words))


@pytest.mark.parametrize(
    ("pattern", "literals", "firsts"),
    [
        ("a.c", [None], ["a"]),
        ("ab|c", ["ab", "c"], ["a", "c"]),
        ("a*|(b)", [None, None], [None, None]),
        ("(?i)x", [None], [None]),
    ],
)
def test_alternatives(pattern: str, literals: list[str | None], firsts: list[str | None]) -> None:
    found = re2.alternatives(pattern)
    assert [branch.literal for branch in found] == literals
    assert [branch.first for branch in found] == [f if f is None else [(ord(f), ord(f))] for f in firsts]


@pytest.mark.parametrize(
    ("pattern", "least", "endless"),
    [("[ab]+", 1, True), ("[ab][ab]+", 2, True), ("[ab]", 1, False), (r"\b\w\w+\b", 2, True), (r"\w+", 1, True)],
)
def test_runs(pattern: str, least: int, endless: bool) -> None:
    (branch,) = re2.alternatives(pattern)
    assert branch.run is not None and (branch.run.least, branch.run.endless) == (least, endless)
    assert branch.run.characters == branch.first or branch.first is None


@pytest.mark.parametrize(
    "pattern", ["[ab]*", "[ab]+[a]", "[ab]+[ab]", "(?i)[ab]+", r"\b[ab]+\b", r"\b\w\b", r"\b\w+", "", "^[ab]+"]
)
def test_what_is_no_run(pattern: str) -> None:
    assert [branch.run for branch in re2.alternatives(pattern)] == [None]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32), max_size=5), st.sampled_from([np.float32, np.float64]))
def test_floats_as_text(values: list[float], dtype: Any) -> None:
    """What is written reads back as what was there, in the type it was in, and 8 digits are enough where they do that."""
    x = np.array(values, dtype)
    words = cast_to(np, x, 8).tolist()
    code = 1 if dtype is np.float32 else 11
    back = cast_to(np, np.array([w.replace("INF", "inf") for w in words], object).reshape(x.shape), code)
    np.testing.assert_array_equal(back, x, strict=True)
    assert all(
        w == f"{v:.8g}" for w, v in zip(words, x.tolist(), strict=True) if dtype(f"{v:.8g}") == v and abs(v) < np.inf
    )


def test_text_as_numbers() -> None:
    words = np.array([["1", "-2"], ["18446744073709551615", "3.7"]], object)
    np.testing.assert_array_equal(
        cast_to(np, words, 13), np.array([[1, 2**64 - 2], [2**64 - 1, 3]], np.uint64), strict=True
    )
    np.testing.assert_array_equal(cast_to(np, words[:1], 6), np.array([[1, -2]], np.int32), strict=True)
    wide = np.array(["1e300", "-1e300", "nan", "0.1"], object)
    np.testing.assert_array_equal(
        cast_to(np, wide, 1), np.array([np.inf, -np.inf, np.nan, 0.1], np.float32), strict=True
    )


def test_rows_of_different_lengths() -> None:
    made = filled([["a"], [], ["b", "c"]], "-", (3, 1))
    assert made.shape == (3, 1, 2) and made.tolist() == [[["a", "-"]], [["-", "-"]], [["b", "c"]]]
    assert filled([], "-", (0,)).shape == (0, 0)


@pytest.mark.parametrize(
    "to", [ElementType.FLOAT, ElementType.DOUBLE, ElementType.INT64, ElementType.INT8, ElementType.BOOL]
)
@pytest.mark.parametrize("word", ["1_0", "٣", "\uff11", "\u20031"])
def test_what_only_python_reads_as_a_number(word: str, to: ElementType) -> None:
    with pytest.raises(Refusal, match=r"could not convert string to a number: .*'"):
        cast_to(np, np.array(["1", word], object), to)


def test_the_case_of_each_character_changes_by_itself_as_in_onnxruntime() -> None:
    def changed(word: str, action: str, locale: str = "en_US") -> Any:
        return prepare_normalizer(np, case_change_action=action, locale=locale)(np.array([word], object)).item()

    assert changed("Straße \ufb01 \u1fb3 \u0131\u01c6", "UPPER") == "STRAßE \ufb01 \u1fbc I\u01c4"
    assert changed("\u03a3\u0391\u03a3 İI \u01c4", "LOWER") == "\u03c3\u03b1\u03c3 ii \u01c6"
    assert changed("ÇA éŁ", "LOWER", "C") == "Ça éŁ"
    assert changed("çA éŁ", "UPPER", "POSIX") == "çA éŁ"


def test_stop_words_are_compared_in_lower_case_whatever_the_action() -> None:
    words = np.array(["i", "\u0131", "İ", "ß", "ẞ", "É", "é"], object)
    stop: dict[str, Any] = {"stopwords": ["i", "ß", "É"], "case_change_action": "UPPER"}
    assert prepare_normalizer(np, **stop)(words).tolist() == ["I"]
    assert prepare_normalizer(np, **stop, locale="C")(words).tolist() == ["\u0131", "İ", "ẞ", "é"]


def test_alternatives_of_what_is_not_re2_are_refused() -> None:
    with pytest.raises(ValueError, match="not an RE2 pattern: missing"):
        re2.alternatives("(ab")


@pytest.mark.parametrize(
    "indices", [[[0, 1], [-1, -3]], [[1], [-2]], [1, -1], [[[0, 0]], [[1, 2]]], np.zeros((0, 2), np.int64)]
)
def test_strings_are_gathered_as_numbers_are(indices: Any) -> None:
    numbers = np.arange(6).reshape(2, 3)
    taken = gather_nd(np, numbers, np.asarray(indices))
    assert gather_nd(np, numbers.astype(str).astype(object), np.asarray(indices)).tolist() == taken.astype(str).tolist()


@pytest.mark.parametrize("indices", [[[0, 3]], [[0, 0], [-3, 1]]])
def test_indices_of_strings_outside_are_named(indices: list[list[int]]) -> None:
    with pytest.raises(Refusal, match=r"^invalid index found, index = -?3$"):
        gather_nd(np, np.array([["a", "b", "c"]] * 2, object), np.array(indices))
