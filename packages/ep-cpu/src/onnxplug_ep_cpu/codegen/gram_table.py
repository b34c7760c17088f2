"""The n-grams that a TfIdfVectorizer knows, as a table for ``kernels.grams``. Regions of texts read it without the lowerings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.grams import ENTRY, FACTORS
from onnxplug_ep_cpu.codegen.words import numbered

ROOM = 8
"""Places that a table has at most for each entry, if that lets entries be found at once."""
MODES = ("TF", "IDF", "TFIDF")


def unfit(node: NodeView) -> str | None:
    """Why there is no table of a node's n-grams, or None."""
    indexes = node.attributes["ngram_indexes"]
    if not _is_whole(node):
        return "its pool is not as its counts and indexes say"
    if node.attributes["mode"] != "TF" and len(set(indexes)) < len(indexes):
        return "several of its n-grams have one column, and are weighted apart"
    return None


def _is_whole(node: NodeView) -> bool:
    """Whether the pool falls into n-grams, and each of them has a column."""
    starts, size = list(node.attributes["ngram_counts"]), len(_pool(node))
    spans = [end - start for start, end in zip(starts, [*starts[1:], size], strict=True)]
    fits = all(span >= 0 and span % n == 0 for n, span in enumerate(spans, 1)) and starts[:1] == [0]
    grams = sum(span // n for n, span in enumerate(spans, 1))
    return fits and grams == len(node.attributes["ngram_indexes"]) and node.attributes["mode"] in MODES


def _pool(node: NodeView) -> Any:
    return node.attributes.get("pool_strings") or node.attributes.get("pool_int64s", ())


class Table:
    """The pool as ``Grams`` follows it. ``numbers``: those of words, to which the pool's are added."""

    def __init__(self, node: NodeView, numbers: dict[str, int] | None) -> None:
        pool, weights = _pool(node), node.attributes.get("weights", ())
        if numbers is not None:
            pool = numbered(pool, numbers).tolist()
        columns, starts = node.attributes["ngram_indexes"], node.attributes["ngram_counts"]
        lowest, highest = max(1, node.attributes["min_gram_length"]), node.attributes["max_gram_length"]
        self.skips: int = node.attributes["max_skip_count"]
        self.width, self.longest = max(columns) + 1, 1
        following: dict[tuple[int, int], int] = {}
        ends: dict[tuple[int, int], int] = {}
        place = 0
        for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
            for first in range(start, end, n):
                if lowest <= n <= highest:
                    self._enter(pool[first : first + n], columns[place], following, ends)
                    self.longest = max(self.longest, n)
                place += 1
        self.entries, self.probes = _laid([(*key, state, ends.get(key, -1)) for key, state in following.items()])
        self.weights = np.ones(self.width)
        if weights:
            self.weights[list(columns)] = weights

    @staticmethod
    def _enter(gram: Any, column: int, following: dict[Any, int], ends: dict[Any, int]) -> None:
        state = 0
        for token in gram:
            key = state, int(token)
            state = following.setdefault(key, len(following) + 1)
        ends[key] = column


def _laid(entries: list[tuple[int, ...]]) -> tuple[np.ndarray, int]:
    """A hash table, a power of two of places, and in how many of them an entry may be."""
    listed = np.array(entries, np.int64).reshape(-1, ENTRY)
    factors = [np.uint64(factor % 2**64) for factor in FACTORS]
    mixed = listed[:, 1].astype(np.uint64) * factors[0] + listed[:, 0].astype(np.uint64) * factors[1]
    hashes = mixed ^ (mixed >> np.uint64(32))
    least = max(3, math.ceil(math.log2(2 * len(entries) + 1)))
    probes = 1
    while True:
        for bits in range(least, least + int(math.log2(ROOM))):
            table = _placed(listed, (hashes & np.uint64((1 << bits) - 1)).tolist(), 1 << bits, probes)
            if table is not None:
                return table, probes
        probes *= 2


def _placed(entries: np.ndarray, firsts: list[int], size: int, probes: int) -> np.ndarray | None:
    """The table, unless an entry is too far from where it should be."""
    table = np.full((size, ENTRY), -2, np.int64)
    taken = bytearray(size)
    for entry, first in zip(entries, firsts, strict=True):
        free = (place for i in range(probes) if not taken[place := (first + i) & (size - 1)])
        at = next(free, None)
        if at is None:
            return None
        taken[at], table[at] = 1, entry
    return table
