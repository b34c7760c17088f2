"""Operators on strings, and n-gram counting. They take and give NumPy object arrays of ``str``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op

Strings = Callable[[np.ndarray], np.ndarray]


def _strings(words: Iterable[str], shape: tuple[int, ...]) -> np.ndarray:
    listed = list(words)
    made = np.empty(len(listed), dtype=object)
    made[:] = listed
    return made if len(shape) == 1 else made.reshape(shape)


def prepare_normalizer(
    xp: Any,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> Strings:
    """StringNormalizer-10. Case is Unicode's, in every ``locale``."""
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    if case_change_action not in changes:
        raise ValueError(f"StringNormalizer: unknown case_change_action {case_change_action!r}")
    change = changes[case_change_action]
    compared: Callable[[str], str] = str if is_case_sensitive else str.lower
    dropped = {compared(w) for w in stopwords}

    def normalized(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise ValueError(f"StringNormalizer takes shape [C] or [1, C], got {list(x.shape)}")
        words = x.reshape(-1).tolist()
        if dropped:
            words = [w for w in words if compared(w) not in dropped]
        kept = [*map(change, words)] or [""]
        return _strings(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))

    return normalized


@op("StringNormalizer", 10, portable=False, prepare=prepare_normalizer)
def string_normalizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """A row of strings without ``stopwords``, in lower or upper case; one empty string where none is left."""
    return prepare_normalizer(xp, **attributes)(x)


@op("StringConcat", 20, portable=False)
def string_concat(xp: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x + y`` by element, broadcast."""
    left, right = (v if v.dtype == object else v.astype(object) for v in (x, y))
    return np.asarray(left + right, dtype=object)


@op("StringSplit", 20, portable=False)
def string_split(
    xp: Any, x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The substrings between delimiters (by default runs of white space) along a new last axis, and how many there are.

    Shorter rows are filled up with empty strings. An empty string has no substrings, as in onnxruntime; the specification does not say.
    """
    limit = -1 if maxsplit is None else maxsplit
    words = x.reshape(-1).tolist()
    if delimiter:
        rows = [w.split(delimiter, limit) if w else [] for w in words]
    else:
        rows = [w.strip().split(None, limit) if w else [] for w in words]
    lengths = [*map(len, rows)]
    width = max(lengths, default=0)
    filled = [word for row in rows for word in (row if len(row) == width else [*row, *[""] * (width - len(row))])]
    return _strings(filled, (*x.shape, width)), np.array(lengths, dtype=np.int64).reshape(x.shape)


def prepare_full_match(xp: Any, *, pattern: str = "") -> Strings:
    """RegexFullMatch-20."""
    matches = re2.compile(pattern).fullmatch

    def matched(x: np.ndarray) -> np.ndarray:
        found = [matches(w) is not None for w in x.reshape(-1).tolist()]
        return np.array(found, dtype=np.bool_).reshape(x.shape)

    return matched


@op("RegexFullMatch", 20, portable=False, prepare=prepare_full_match)
def regex_full_match(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """Whether all of each string matches ``pattern``, in RE2's syntax."""
    return prepare_full_match(xp, **attributes)(x)


Gram = Any
"""A token, or a tuple of several."""


def prepare_vectorizer(
    xp: Any,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Callable[[np.ndarray], np.ndarray]:
    """TfIdfVectorizer-9."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"TfIdfVectorizer: unknown mode {mode!r}")
    lengths = range(max(1, min_gram_length), min(max_gram_length, len(ngram_counts)) + 1)
    places = _ngram_places(pool_strings or pool_int64s or (), ngram_counts, lengths)
    grams = [(n, found) for n in lengths if (found := places[n])]
    width = max(ngram_indexes) + 1
    single = [1.0] * len(ngram_indexes) if mode == "TF" or not weights else list(weights)

    def vectorized(x: np.ndarray) -> np.ndarray:
        if x.ndim > 2:
            raise ValueError(f"TfIdfVectorizer takes shape [C] or [N, C], got {list(x.shape)}")
        rows = (
            x.reshape(-1, x.shape[-1] if x.ndim else 1) if x.size else np.empty((x.shape[0] if x.ndim == 2 else 1, 0))
        )
        made: dict[int, float] = {}
        for start, tokens in zip(range(0, width * len(rows), width), rows.tolist(), strict=True):
            for place, count in _count_ngrams(tokens, grams, max_skip_count).items():
                at = start + ngram_indexes[place]
                made[at] = made.get(at, 0.0) + (single[place] if mode == "IDF" else single[place] * count)
        result = np.zeros((rows.shape[0], width), dtype=np.float32)
        result.reshape(-1)[list(made)] = list(made.values())
        return result if x.ndim == 2 else result[0]

    return vectorized


@op("TfIdfVectorizer", 9, portable=False, prepare=prepare_vectorizer)
def tfidf_vectorizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """For each row of tokens, the number of each n-gram of the pool (TF), weighted (TFIDF), or its weight alone (IDF).

    Tokens of an n-gram may stand up to ``max_skip_count`` + 1 apart, all at one distance (ONNX, TfIdfVectorizer-9).
    """
    return prepare_vectorizer(xp, **attributes)(x)


def _ngram_places(pool: Sequence[Any], starts: Sequence[int], lengths: range) -> dict[int, dict[Gram, int]]:
    """For each length, where each n-gram stands in a pool of 1-grams, then 2-grams, ...; ``starts`` says where each kind begins."""
    if list(starts) != sorted(starts) or not all(0 <= start <= len(pool) for start in starts):
        raise ValueError(f"TfIdfVectorizer: ngram_counts {list(starts)} do not ascend within a pool of {len(pool)}")
    places: dict[int, dict[Gram, int]] = {n: {} for n in lengths}
    place = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for first in range(start, end, n):
            if n in lengths:
                places[n][pool[first] if n == 1 else tuple(pool[first : first + n])] = place
            place += 1
    return places


def _count_ngrams(
    tokens: Sequence[Any], grams: Sequence[tuple[int, dict[Gram, int]]], max_skip_count: int
) -> dict[int, int]:
    """How often the n-grams that are known come, by their places."""
    counts: dict[int, int] = {}
    for n, known in grams:
        # Distance does not matter for a single token, which is counted once; beyond the last token there is nothing.
        farthest = 1 if n == 1 else min(max_skip_count + 1, (len(tokens) - 1) // (n - 1))
        for distance in range(1, farthest + 1):
            read = tokens if n == 1 else zip(*(tokens[i * distance :] for i in range(n)), strict=False)
            for place in map(known.get, read):
                if place is not None:
                    counts[place] = counts.get(place, 0) + 1
    return counts
