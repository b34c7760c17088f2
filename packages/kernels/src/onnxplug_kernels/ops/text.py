"""Operators on strings, and n-gram counting. They take and give NumPy object arrays of ``str``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op

Strings = Callable[[np.ndarray], np.ndarray]


_OBJECT, _INT64, _BOOL = np.dtype(object), np.dtype(np.int64), np.dtype(np.bool_)


def filled(rows: list[list[str]], pad: str, shape: tuple[int, ...]) -> np.ndarray:
    """(``*shape``, longest row): the rows, to which ``pad`` is added as often as they lack of it."""
    lengths = [*map(len, rows)]
    width = max(lengths, default=0)
    if min(lengths, default=0) < width:
        for row, length in zip(rows, lengths, strict=True):
            if length < width:
                row += [pad] * (width - length)
    return np.fromiter(chain.from_iterable(rows), _OBJECT).reshape(*shape, width)


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
        words = x.ravel().tolist()
        if dropped:
            words = [w for w in words if compared(w) not in dropped]
        kept = np.fromiter([change(w) for w in words] or [""], _OBJECT)
        return kept if x.ndim == 1 else kept.reshape(1, -1)

    return normalized


@op("StringNormalizer", 10, portable=False, prepare=prepare_normalizer)
def string_normalizer(xp: Any, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """A row of strings without ``stopwords``, in lower or upper case; one empty string where none is left."""
    return prepare_normalizer(xp, **attributes)(x)


@op("StringConcat", 20, portable=False)
def string_concat(xp: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x + y`` by element, broadcast."""
    joined = np.add(x, y, dtype=_OBJECT)
    return joined if joined.__class__ is np.ndarray else np.asarray(joined, dtype=_OBJECT)


@op("StringSplit", 20, portable=False)
def string_split(
    xp: Any, x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The substrings between delimiters (by default runs of white space) along a new last axis, and how many there are.

    Shorter rows are filled up with empty strings. An empty string has no substrings, as in onnxruntime; the specification does not say.
    """
    limit = -1 if maxsplit is None else maxsplit
    words = x.ravel().tolist()
    if delimiter:
        rows = [w.split(delimiter, limit) if w else [] for w in words]
    else:
        rows = [w.strip().split(None, limit) if w else [] for w in words]
    lengths = np.fromiter(map(len, rows), _INT64, len(rows))
    return filled(rows, "", x.shape), lengths if x.ndim == 1 else lengths.reshape(x.shape)


def prepare_full_match(xp: Any, *, pattern: str = "") -> Strings:
    """RegexFullMatch-20."""
    matches = re2.compile(pattern).fullmatch

    def matched(x: np.ndarray) -> np.ndarray:
        found = np.fromiter([matches(w) is not None for w in x.ravel().tolist()], _BOOL, x.size)
        return found if x.ndim == 1 else found.reshape(x.shape)

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
    width = max(ngram_indexes) + 1
    columns = np.array(ngram_indexes, np.intp)
    single: np.ndarray = np.ones(len(columns)) if mode == "TF" or not weights else np.array(weights, np.float64)
    distinct = len(set(ngram_indexes)) == len(ngram_indexes)
    if distinct:  # a place is then its column
        places = {n: {gram: ngram_indexes[place] for gram, place in known.items()} for n, known in places.items()}
        by_column = np.zeros(width)
        by_column[columns] = single
        single = by_column
    grams, count = [(n, found) for n in lengths if (found := places[n])], len(single)

    def vectorized(x: np.ndarray) -> np.ndarray:
        if x.ndim > 2:
            raise ValueError(f"TfIdfVectorizer takes shape [C] or [N, C], got {list(x.shape)}")
        rows, size = (x.shape if x.ndim == 2 else (1, x.size)) if x.size else (x.shape[0] if x.ndim == 2 else 1, 0)
        counted = Counter(_known_ngrams(x.ravel().tolist(), size, grams, max_skip_count, count))
        at = np.fromiter(counted, np.intp, len(counted))
        scores = np.ones(len(at)) if mode == "IDF" else np.fromiter(counted.values(), np.float64, len(at))
        if mode != "TF":
            scores *= single[at % count]
        result = np.zeros((rows, width), np.float32)
        if distinct:
            result.reshape(-1)[at] = scores
        else:
            sums = np.zeros((rows, width))
            np.add.at(sums, (at // count, columns[at % count]), scores)
            result[...] = sums
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


def _known_ngrams(
    tokens: list[Any], size: int, grams: Sequence[tuple[int, dict[Gram, int]]], max_skip_count: int, count: int
) -> list[int]:
    """``row * count + place`` of each n-gram that is known, in rows of ``size`` tokens."""
    found: list[int] = []
    for n, known in grams:
        # Distance does not matter for a single token, which is counted once; beyond the last token there is nothing.
        farthest = 1 if n == 1 else min(max_skip_count + 1, (size - 1) // (n - 1))
        for distance in range(1, farthest + 1):
            beyond = (n - 1) * distance
            read = tokens if n == 1 else zip(*(tokens[i * distance :] for i in range(n)), strict=False)
            last = size - beyond  # what begins there or later ends in the next row
            found += [
                at // size * count + place
                for at, place in enumerate(map(known.get, read))
                if place is not None and at % size < last
            ]
    return found
