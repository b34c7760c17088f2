"""Strings and n-grams against plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug_kernels.ops.contrib_text import prepare_tokenizer
from onnxplug_kernels.ops.text import filled
from onnxplug_kernels.ops.tfidf import prepare_vectorizer

POOL = ["a", "b", "c", "a", "b", "b", "c", "c", "a", "a", "b", "c"]
"""Three 1-grams, three 2-grams, one 3-gram."""
GRAMS = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("c", "a"), ("a", "b", "c")]
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
)
def test_n_grams(rows: list[list[str]], mode: str, indexes: list[int], skip: int) -> None:
    run: Any = prepare_vectorizer(
        np, mode=mode, min_gram_length=1, max_gram_length=3, max_skip_count=skip, ngram_counts=[0, 3, 9],
        ngram_indexes=indexes, pool_strings=POOL, weights=WEIGHTS,
    )  # fmt: skip
    x = np.empty((len(rows), len(rows[0])), object)
    x[...] = rows
    np.testing.assert_array_equal(run(x), expected(rows, mode, indexes, skip), strict=True)


@pytest.mark.parametrize(
    ("mark", "tokens"), [(0, [["a", "bb"], ["#", "#"]]), (1, [["\x02", "a", "bb", "\x03"], ["\x02", "\x03", "#", "#"]])]
)
def test_tokens_and_what_fills_up(mark: int, tokens: list[list[str]]) -> None:
    run = prepare_tokenizer(np, mark=mark, mincharnum=1, pad_value="#", tokenexp="[a-z]+")
    assert run(np.array(["a 1 bb", "12"], object)).tolist() == tokens


def test_rows_of_different_lengths() -> None:
    made = filled([["a"], [], ["b", "c"]], "-", (3, 1))
    assert made.shape == (3, 1, 2) and made.tolist() == [[["a", "-"]], [["-", "-"]], [["b", "c"]]]
    assert filled([], "-", (0,)).shape == (0, 0)
