"""Ensembles as the kernel of ``kernels.crossing`` reads them."""

from __future__ import annotations

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.crossing import CONDITION, TOGETHER, WORD
from onnxplug_ep_cpu.codegen.lower.tree_tables import Nodes
from onnxplug_kernels.ops.ml_tree_tables import LEAF, Trees

_CONDITION = np.dtype([("feature", "<i4"), ("threshold", "<f4"), ("stay", "<u4")])


@record(frozen=True, slots=True, eq=False)
class LeafWords:
    """The kernel's tables. Conditions that hold for NaN read features that are ``filled``, in which NaN is what is below all thresholds:
    where there are ``both`` kinds these follow the others."""

    conditions: np.ndarray
    words: np.ndarray
    trees: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    small: bool
    filled: bool
    both: bool

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """In the order of the kernel's arguments."""
        return self.conditions, self.words, self.trees, self.targets, self.weights

    def time(self, features: int) -> float:
        """Estimated time of a block of rows, in which so many features are laid side by side, in the unit of ``Ensemble.time``."""
        return self.conditions.size / CONDITION + 6 * self.words.size + 6 * self.targets.size + 8 * features


def leaf_words(trees: Trees, features: int) -> LeafWords | None:
    """Tables for rows of so many features. None where nodes have several parents, or conditions are not x <= threshold."""
    nodes = Nodes(trees)
    leaf, roots = nodes.mode == LEAF, np.asarray(trees.roots)
    if nodes.equality.any() or np.isnan(nodes.threshold[nodes.for_nan]).any() or not roots.size:
        return None
    if nodes.threshold.dtype != np.float32:
        return None
    levels, tree = [roots], np.full(leaf.size, -1)
    tree[roots] = np.arange(roots.size)
    while (inner := levels[-1][~leaf[levels[-1]]]).size:
        below = np.concatenate([nodes.holds[inner], nodes.fails[inner]])
        tree[below] = np.tile(tree[inner], 2)
        levels.append(below)
        if sum(level.size for level in levels) > leaf.size:
            return None
    every = np.concatenate(levels)
    if np.bincount(every).max() > 1:
        return None
    count = np.ones(leaf.size, np.int64)
    for level in reversed(levels):
        inner = level[~leaf[level]]
        count[inner] = count[nodes.holds[inner]] + count[nodes.fails[inner]]
    start = np.zeros(leaf.size, np.int64)
    for level in levels:
        inner = level[~leaf[level]]
        start[nodes.holds[inner]] = start[inner]
        start[nodes.fails[inner]] = start[inner] + count[nodes.holds[inner]]
    sizes = -(-count[roots] // WORD)
    conditions, words = _conditions(nodes, every[~leaf[every]], start, count[nodes.holds], tree, sizes, features)
    votes, targets, weights = _votes(trees, every[leaf[every]], start, tree, sizes)
    ends = np.stack([np.cumsum(sizes), votes], axis=1).astype(np.int32)
    flagged = nodes.for_nan[every[~leaf[every]]]
    return LeafWords(
        conditions.view(np.uint8), words, ends, targets, weights, bool((sizes == 1).all()), bool(flagged.any()),
        bool(flagged.any() and not flagged.all()),
    )  # fmt: skip


def _conditions(
    nodes: Nodes, inner: np.ndarray, start: np.ndarray, held: np.ndarray, tree: np.ndarray, sizes: np.ndarray, features: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The conditions of each word, filled up with such as cross out nothing, and where those of a word end. A node is a condition of every
    word that has a leaf where it holds."""
    first, end = start[inner], start[inner] + held[inner]
    of, number = _runs((end - 1) // WORD - first // WORD + 1)
    node, place = inner[of], (first // WORD)[of] + number
    low, high = np.maximum(first[of] - WORD * place, 0), np.minimum(end[of] - WORD * place, WORD)
    crossed = (np.left_shift(1, high) - np.left_shift(1, low)).astype(np.uint32)
    word = np.cumsum(sizes)[tree[node]] - 1 - place  # the last word comes first
    many = np.bincount(word, minlength=int(sizes.sum()))
    ends = np.cumsum(-(-many // TOGETHER) * TOGETHER)
    order = np.argsort(word, kind="stable")
    at = np.empty(order.size, np.int64)
    at[order] = (ends - (-(-many // TOGETHER) * TOGETHER))[word[order]] + _runs(many)[1]
    table = np.zeros(int(ends[-1]), _CONDITION)
    table["threshold"], table["stay"] = np.inf, 2**32 - 1
    flagged = nodes.for_nan[node]
    apart = features if flagged.any() and not flagged.all() else 0
    table["feature"][at] = nodes.feature[node] + np.where(flagged, apart, 0)
    table["threshold"][at], table["stay"][at] = nodes.threshold[node], ~crossed
    return table, ends.astype(np.int32)


def _votes(
    trees: Trees, leaves: np.ndarray, start: np.ndarray, tree: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the votes of each tree end, their targets, and the weights of the tree's leaves for each, 0 where one has none."""
    leaves = leaves[np.lexsort((start[leaves], tree[leaves]))]
    rows, of = np.asarray(trees.leaf_row)[leaves], tree[leaves]
    votes = np.asarray(trees.votes)[rows]
    weights = np.where(votes, np.asarray(trees.weights)[rows], 0).astype(np.float32)
    voted = np.logical_or.reduceat(votes, np.searchsorted(of, np.arange(sizes.size)), axis=0)
    own, targets = np.nonzero(voted)
    room = WORD * sizes[own]
    begins = np.cumsum(room) - room
    table = np.zeros(int(room.sum()), np.float32)
    vote, number = _runs(np.bincount(of, minlength=sizes.size)[own])
    leaf = np.searchsorted(of, own)[vote] + number
    table[begins[vote] + start[leaves][leaf]] = weights[leaf, targets[vote]]
    return np.cumsum(voted.sum(axis=1)), targets.astype(np.int32), table


def _runs(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For so many elements each: which one an element is of, and its number there."""
    of = np.repeat(np.arange(counts.size), counts)
    return of, np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)
