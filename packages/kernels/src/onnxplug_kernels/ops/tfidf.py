"""TfIdfVectorizer: n-grams of strings or integers, counted and weighted.

Tokens become numbers, and an n-gram is followed token by token through tables: each has, for what was read so far and the number of
the next token, what is read then. The last table has the place in the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op

DENSE = 1 << 16
"""Entries up to which a table is laid out whole, rather than searched."""
SPARSE = 1 << 14
"""Elements of a result from which n-grams are counted where they are, rather than in every place."""

FEW = 24
"""Tokens up to which n-grams are looked up one by one."""
KEPT, MOST = 1 << 14, 32
"""Of how many n-grams, and of how many shapes, is kept where these have their tokens."""

Array = np.ndarray[Any, Any]
Table = Callable[[Array], Array]
_PLACE = np.dtype(np.intp)


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
) -> Callable[[Array], Array]:
    """TfIdfVectorizer-9."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"TfIdfVectorizer: unknown mode {mode!r}")
    pool: Sequence[Any] = pool_strings or pool_int64s or ()
    asked = range(max(1, min_gram_length), min(max_gram_length, len(ngram_counts)) + 1)
    places = _ngram_places(pool, ngram_counts, asked)
    width, columns = max(ngram_indexes) + 1, np.array(ngram_indexes, _PLACE)
    weighed: Array = np.ones(len(columns)) if mode == "TF" or not weights else np.array(weights, np.float64)
    distinct = len(set(ngram_indexes)) == len(ngram_indexes)
    if distinct:  # a place is then its column
        places = {n: {gram: ngram_indexes[place] for gram, place in known.items()} for n, known in places.items()}
        by_column = np.zeros(width)
        by_column[columns] = weighed
        weighed = by_column
    tokens = list(dict.fromkeys(pool))
    number, count, own = _numberer(tokens), len(weighed), len(tokens) + 1
    ids = {token: at for at, token in enumerate(tokens, 1)}
    lengths = [n for n, known in places.items() if known]
    grams = [_tables(places[n], n, ids, count) for n in lengths]
    layouts: dict[tuple[int, int], _Layout] = {}
    score = _scorer(mode, weighed)
    few = _counter(mode, places, max_skip_count, weighed.tolist()) if distinct else None

    def vectorized(x: Array) -> Array:
        if x.ndim > 2:
            raise ValueError(f"TfIdfVectorizer takes shape [C] or [N, C], got {list(x.shape)}")
        rows, size = x.shape if x.ndim == 2 else (1, x.size)
        if few is not None and x.size <= FEW:
            counted = few(x.reshape(rows, size).tolist())
        elif not rows or not size or not grams:
            counted = np.zeros((rows, count), np.float32)
        else:
            layout = layouts.get((rows, size))
            if layout is None:
                layout = _Layout(rows, size, lengths, max_skip_count, count)
                if len(layout.rooms) <= KEPT and len(layouts) < MOST:
                    layouts[rows, size] = layout
            counted = score(_found(number(x), layout, grams, own), rows)
        if distinct:
            result = counted
        else:
            sums = np.zeros((width, rows))
            np.add.at(sums, columns, counted.T)
            result = np.ascontiguousarray(sums.T, np.float32)
        return result if x.ndim == 2 else result[0]

    return vectorized


@op("TfIdfVectorizer", 9, portable=False, prepare=prepare_vectorizer)
def tfidf_vectorizer(xp: Any, x: Array, **attributes: Any) -> Array:
    """For each row of tokens, the number of each n-gram of the pool (TF), weighted (TFIDF), or its weight alone (IDF).

    Tokens of an n-gram may stand up to ``max_skip_count`` + 1 apart, all at one distance (ONNX, TfIdfVectorizer-9).
    """
    return prepare_vectorizer(xp, **attributes)(x)


def _ngram_places(pool: Sequence[Any], starts: Sequence[int], lengths: range) -> dict[int, dict[tuple[Any, ...], int]]:
    """For each length, where each n-gram stands in a pool of 1-grams, then 2-grams, ...; ``starts`` says where each kind begins."""
    if list(starts) != sorted(starts) or not all(0 <= start <= len(pool) for start in starts):
        raise ValueError(f"TfIdfVectorizer: ngram_counts {list(starts)} do not ascend within a pool of {len(pool)}")
    places: dict[int, dict[tuple[Any, ...], int]] = {n: {} for n in lengths}
    place = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for first in range(start, end, n):
            if n in lengths:
                places[n][tuple(pool[first : first + n])] = place
            place += 1
    return places


def _numberer(tokens: Sequence[Any]) -> Table:
    """Tokens -> their numbers from 1 on, 0 for others."""
    ids = {token: at for at, token in enumerate(tokens, 1)}
    get = ids.get

    def looked_up(x: Array) -> Array:
        words = x.tolist() if x.ndim == 1 else x.ravel().tolist()
        return np.fromiter(map(get, words, repeat(0)), _PLACE, x.size)

    if not tokens or isinstance(tokens[0], str) or max(tokens) - min(tokens) > DENSE:
        return looked_up
    table = np.zeros(max(tokens) - min(tokens) + 3, _PLACE)
    before = np.int64(min(tokens) - 1)
    table[np.array(tokens) - before] = range(1, len(tokens) + 1)
    return lambda x: table.take(x.reshape(-1) - before, mode="clip")  # the ends of the table are no token's


def _tables(places: Mapping[tuple[Any, ...], int], n: int, ids: Mapping[Any, int], count: int) -> list[Table]:
    """What is read after a first token, a second one, ...: numbers from 1 on, 0 for what begins no n-gram of the pool. The last
    table gives a place, ``count`` for none."""
    if n == 1:
        return [_table({ids[gram[0]]: place for gram, place in places.items()}, len(ids) + 1, count)]
    tables, own = [], len(ids) + 1
    reached = {gram: ids[gram[0]] for gram in places}
    states = own
    for k in range(1, n):
        codes = {gram: state * own + ids[gram[k]] for gram, state in reached.items()}
        if k == n - 1:
            tables.append(_table({code: places[gram] for gram, code in codes.items()}, states * own, count))
            break
        numbered = {code: at for at, code in enumerate(dict.fromkeys(codes.values()), 1)}
        tables.append(_table(numbered, states * own, 0))
        reached, states = {gram: numbered[code] for gram, code in codes.items()}, len(numbered) + 1
    return tables


def _table(entries: Mapping[int, int], size: int, otherwise: int) -> Table:
    """codes below ``size`` -> entries."""
    if size <= DENSE:
        whole = np.full(size, otherwise, _PLACE)
        whole[list(entries)] = list(entries.values())
        return whole.__getitem__
    ordered = sorted(entries)
    keys = np.array([*ordered, size], np.int64)  # no code is the last
    values = np.array([*[entries[key] for key in ordered], otherwise], _PLACE)

    def searched(codes: Array) -> Array:
        at = keys.searchsorted(codes)
        return np.where(keys.take(at) == codes, values.take(at), otherwise)

    return searched


def _counter(
    mode: str, places: Mapping[int, Mapping[tuple[Any, ...], int]], max_skip_count: int, weights: Sequence[float]
) -> Callable[[list[list[Any]]], Array]:
    """Rows of tokens -> (rows, places) float32."""
    width = len(weights)
    # from 1 on, so that all that is found is true; a token by itself needs no tuple
    lookups = [
        (n, {gram[0] if n == 1 else gram: place + 1 for gram, place in known.items()}.get)
        for n, known in places.items()
        if known
    ]

    def counted(listed: list[list[Any]]) -> Array:
        result = np.zeros(len(listed) * width, np.float32)
        cells: Any = result.data
        for before, row in zip(range(-1, len(result), width or 1), listed, strict=False):
            for n, get in lookups:
                if n == 1:
                    for place in filter(None, map(get, row)):
                        cells[before + place] += 1.0
                    continue
                for distance in range(1, min(max_skip_count + 1, (len(row) - 1) // (n - 1)) + 1):
                    shifted = [row[k * distance :] for k in range(1, n)]
                    for place in filter(None, map(get, zip(row, *shifted, strict=False))):
                        cells[before + place] += 1.0
        made = result.reshape(len(listed), width)
        if mode == "TF":
            return made
        at = np.flatnonzero(result)
        known = weighed.take(at % width)
        result[at] = known * result[at] if mode == "TFIDF" else known
        return made

    weighed = np.array(weights)
    return counted


class _Layout:
    """Where the n-grams of a matrix of tokens have theirs. For one shape."""

    def __init__(self, rows: int, size: int, lengths: Sequence[int], max_skip_count: int, count: int) -> None:
        self.tokens: list[list[Array]] = []
        """For each length, the places of all first tokens, of all second ones, ..."""
        rooms, starts = [], np.arange(rows * size, dtype=_PLACE).reshape(rows, size)
        for n in lengths:
            # distance does not matter for a single token, which is counted once
            farthest = 1 if n == 1 else min(max_skip_count + 1, (size - 1) // (n - 1))
            ends = [(distance, size - (n - 1) * distance) for distance in range(1, farthest + 1)]
            self.tokens.append(
                [_joined([starts[:, k * distance : k * distance + end] for distance, end in ends]) for k in range(n)]
            )
            rooms.append(self.tokens[-1][0] // size)
        self.rooms = _joined(rooms) * (count + 1)
        """Where the results of an n-gram's row begin."""


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate([part.reshape(-1) for part in parts]) if parts else np.zeros(0, _PLACE)


def _found(ids: Array, layout: _Layout, grams: Sequence[Sequence[Table]], own: int) -> Array:
    """``row * (count + 1) + place`` of each n-gram of each row; ``count`` is the place of those that are not known."""
    parts = []
    for tables, (first, *others) in zip(grams, layout.tokens, strict=True):
        read = ids[first]
        if not others:
            read = tables[0](read)
        for table, places in zip(tables, others, strict=False):
            read = table(read * own + ids[places])
        parts.append(read)
    found = parts[0] + layout.rooms if len(parts) == 1 else np.concatenate(parts)
    if len(parts) > 1:
        found += layout.rooms
    return found


def _scorer(mode: str, weighed: Array) -> Callable[[Array, int], Array]:
    """What ``_found`` gave and the number of rows -> (rows, places) float32."""
    count = len(weighed)

    def score(found: Array, rows: int) -> Array:
        size = rows * (count + 1)
        if size > SPARSE and size > 2 * found.size:
            return sparsely(found, rows)
        counts = np.bincount(found, minlength=size).reshape(rows, count + 1)[:, :count]
        if mode == "TF":
            return counts.astype(np.float32)
        return (counts * weighed if mode == "TFIDF" else np.where(counts, weighed, 0.0)).astype(np.float32)

    def sparsely(found: Array, rows: int) -> Array:
        row, place = np.divmod(found, count + 1)
        known = place < count
        row, place = row[known], place[known]
        at, counts = np.unique(row * count + place, return_counts=True)
        result = np.zeros(rows * count, np.float32)
        result[at] = counts if mode == "TF" else weighed[at % count] * (counts if mode == "TFIDF" else 1)
        return result.reshape(rows, count)

    return score
