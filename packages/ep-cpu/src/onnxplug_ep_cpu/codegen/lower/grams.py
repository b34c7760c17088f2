"""TfIdfVectorizer: n-grams of integers, or of strings that the region numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.grams import ENTRY, FACTORS, Grams
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.numbered import numbered, word_numbers
from onnxplug_ep_cpu.codegen.lower.support import attributes, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref

ROOM = 8
"""Places that a table has at most for each entry, if that lets entries be found at once."""
MODES = ("TF", "IDF", "TFIDF")
EXACT = 1 << 24
"""Counts up to which float32 has each."""


def supports(node: NodeView) -> str | None:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None and y is not None
    if x.dtype != object and (reason := typed(x, {"int32", "int64"})) is not None:
        return reason
    indexes = node.attributes["ngram_indexes"]
    if not _is_whole(node):
        return "its pool is not as its counts and indexes say"
    if node.attributes["mode"] != "TF" and len(set(indexes)) < len(indexes):
        return "several of its n-grams have one column, and are weighted apart"
    return typed(y, {"float32"})


def _is_whole(node: NodeView) -> bool:
    """Whether the pool falls into n-grams, and each of them has a column."""
    given, starts = attributes(node, pool_int64s=(), pool_strings=()), list(node.attributes["ngram_counts"])
    size = len(given["pool_strings"] or given["pool_int64s"])
    spans = [end - start for start, end in zip(starts, [*starts[1:], size], strict=True)]
    fits = all(span >= 0 and span % n == 0 for n, span in enumerate(spans, 1)) and starts[:1] == [0]
    grams = sum(span // n for n, span in enumerate(spans, 1))
    return fits and grams == len(node.attributes["ngram_indexes"]) and node.attributes["mode"] in MODES


@lowering("TfIdfVectorizer", supports=supports)
def tfidf(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.tfidf``."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    numbers = word_numbers(b, x) if x.dtype == object else None
    table = b.prepared.made(node, lambda: Table(node, numbers))
    tensor = b.dense(x)
    if len(tensor.shape) not in (1, 2):
        raise Unsupported(f"it takes shape [C] or [N, C], got {list(tensor.shape)}")
    size = tensor.shape[-1]
    rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
    farthest = 1 if table.longest == 1 else max(1, min(table.skips + 1, size - 1))
    if size * farthest >= EXACT:
        raise Unsupported("its counts may be beyond what float32 has exactly")
    out = b.output(y)
    made = out if out.is_dense else b.scratch(out.shape)
    if made.size != rows * table.width:
        raise Unsupported(f"its result has shape {list(made.shape)}, not {table.width} columns for each row")
    args: list[int | Ref] = [
        made.ref, tensor.ref, b.tensor_of(table.entries).ref, b.tensor_of(table.weights).ref, size, table.width,
        table.longest, farthest, len(table.entries) - 1, table.probes,
    ]  # fmt: skip
    kernel = Grams(node.attributes["mode"], 8 * tensor.itemsize)
    b.program.call(
        kernel, args, rows, rows * (0.5 * table.width + 4.0 * table.probes * size * farthest * table.longest)
    )
    b.values[y.name] = made


class Table:
    """The pool as ``Grams`` follows it. ``numbers``: those of words, to which the pool's are added."""

    def __init__(self, node: NodeView, numbers: dict[str, int] | None) -> None:
        given = attributes(node, pool_int64s=(), pool_strings=(), weights=())
        pool: Any = given["pool_strings"] or given["pool_int64s"]
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
        if given["weights"]:
            self.weights[list(columns)] = given["weights"]

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
