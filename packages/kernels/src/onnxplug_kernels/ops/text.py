"""Operators on strings, and n-gram counting. They take and give NumPy object arrays of ``str``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug_kernels import re2
from onnxplug_kernels.catalogue import op


def _strings(words: Iterable[str], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(list(words), dtype=object).reshape(shape)


@op("StringNormalizer", 10, portable=False)
def string_normalizer(
    xp: Any,
    x: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> np.ndarray:
    """A row of strings without ``stopwords``, in lower or upper case; one empty string where none is left.

    Case is Unicode's, in every ``locale``.
    """
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"StringNormalizer takes shape [C] or [1, C], got {list(x.shape)}")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    if case_change_action not in changes:
        raise ValueError(f"StringNormalizer: unknown case_change_action {case_change_action!r}")
    compared: Callable[[str], str] = str if is_case_sensitive else str.lower
    dropped = {compared(w) for w in stopwords}
    kept = [changes[case_change_action](w) for w in x.reshape(-1).tolist() if compared(w) not in dropped]
    kept = kept or [""]
    return _strings(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


@op("StringConcat", 20, portable=False)
def string_concat(xp: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x + y`` by element, broadcast."""
    return np.asarray(x.astype(object) + y.astype(object), dtype=object)


@op("StringSplit", 20, portable=False)
def string_split(
    xp: Any, x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The substrings between delimiters (by default runs of white space) along a new last axis, and how many there are.

    Shorter rows are filled up with empty strings. An empty string has no substrings, as in onnxruntime; the specification does not say.
    """
    limit = -1 if maxsplit is None else maxsplit
    words = x.reshape(-1).tolist()
    rows = [(w.split(delimiter, limit) if delimiter else w.strip().split(None, limit)) if w else [] for w in words]
    counts = np.array([len(row) for row in rows], dtype=np.int64).reshape(x.shape)
    width = int(counts.max(initial=0))
    filled = (word for row in rows for word in [*row, *[""] * (width - len(row))])
    return _strings(filled, (*x.shape, width)), counts


@op("RegexFullMatch", 20, portable=False)
def regex_full_match(xp: Any, x: np.ndarray, *, pattern: str = "") -> np.ndarray:
    """Whether all of each string matches ``pattern``, in RE2's syntax."""
    matches = re2.compile(pattern).fullmatch
    return np.array([matches(w) is not None for w in x.reshape(-1).tolist()], dtype=np.bool_).reshape(x.shape)


@op("TfIdfVectorizer", 9, portable=False)
def tfidf_vectorizer(
    xp: Any,
    x: np.ndarray,
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
) -> np.ndarray:
    """For each row of tokens, the number of each n-gram of the pool (TF), weighted (TFIDF), or its weight alone (IDF).

    Tokens of an n-gram may stand up to ``max_skip_count`` + 1 apart, all at one distance (ONNX, TfIdfVectorizer-9).
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"TfIdfVectorizer: unknown mode {mode!r}")
    if x.ndim > 2:
        raise ValueError(f"TfIdfVectorizer takes shape [C] or [N, C], got {list(x.shape)}")
    lengths = range(max(1, min_gram_length), min(max_gram_length, len(ngram_counts)) + 1)
    places = _ngram_places(pool_strings or pool_int64s or (), ngram_counts, lengths)
    rows = x.reshape(-1, x.shape[-1] if x.ndim else 1) if x.size else np.empty((x.shape[0] if x.ndim == 2 else 1, 0))
    result = np.zeros((rows.shape[0], max(ngram_indexes) + 1), dtype=np.float32)
    for output, tokens in zip(result, rows.tolist(), strict=True):
        for ngram, count in _count_ngrams(tokens, lengths, max_skip_count, places).items():
            place = places[ngram]
            weight = 1.0 if mode == "TF" or not weights else weights[place]
            output[ngram_indexes[place]] += weight if mode == "IDF" else weight * count
    return result if x.ndim == 2 else result[0]


def _ngram_places(pool: Sequence[Any], starts: Sequence[int], lengths: range) -> dict[tuple[Any, ...], int]:
    """Where each n-gram stands in a pool of 1-grams, then 2-grams, ...; ``starts`` says where each kind begins."""
    if list(starts) != sorted(starts) or not all(0 <= start <= len(pool) for start in starts):
        raise ValueError(f"TfIdfVectorizer: ngram_counts {list(starts)} do not ascend within a pool of {len(pool)}")
    places: dict[tuple[Any, ...], int] = {}
    place = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for first in range(start, end, n):
            if n in lengths:
                places[tuple(pool[first : first + n])] = place
            place += 1
    return places


def _count_ngrams(
    tokens: Sequence[Any], lengths: range, max_skip_count: int, known: dict[tuple[Any, ...], int]
) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for n in lengths:
        # Distance does not matter for a single token, which is counted once; beyond the last token there is nothing.
        farthest = 1 if n == 1 else min(max_skip_count + 1, (len(tokens) - 1) // (n - 1))
        for distance in range(1, farthest + 1):
            for first in range(len(tokens) - (n - 1) * distance):
                ngram = tuple(tokens[first : first + (n - 1) * distance + 1 : distance])
                if ngram in known:
                    counts[ngram] += 1
    return counts
