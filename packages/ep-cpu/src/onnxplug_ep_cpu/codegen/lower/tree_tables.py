"""Ensembles as the kernel of ``kernels.trees`` reads them, made once per session from the tables of ``ml_tree_tables``."""

from __future__ import annotations

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.trees import DEEPEST, EQUALITY, HOLDS_FOR_NAN, MARK, WAYS
from onnxplug_kernels.ops.ml_tree_tables import LEAF, MEMBER, MODES, Trees

LEQ, LT, GTE, GT, EQ, NEQ = range(6)
assert MODES[:6] == ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEW_TARGETS = 4
"""Up to so many targets every leaf votes for each."""


@record(frozen=True, slots=True, eq=False)
class Ensemble:
    """Records of nodes, where trees begin (bytes), and votes: ``width`` of each leaf, with their targets (bytes into a row of
    ``columns`` sums) unless ``dense``; ``voted`` as of ``Trees``. Behind the last tree are trees of no vote, to fill up ``WAYS``."""

    nodes: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    targets: np.ndarray
    trees: int
    columns: int
    width: int
    features: int
    depth: int
    wide: bool
    missing: bool
    equality: bool
    voted: tuple[bool | None, ...]

    @property
    def dense(self) -> bool:
        return not self.targets.size

    @property
    def time(self) -> float:
        """Estimated time of a row."""
        return self.trees * (2.0 * (self.depth or 10) + 2.0 * self.width)


def ensemble(trees: Trees, kind: str, total: str, wide: bool, unit: int) -> Ensemble:
    """``kind`` and ``total`` as in ``kernels.trees.Walk``; a feature takes ``unit`` bytes; thresholds are float64 if ``wide`` or given
    so."""
    wide = wide or trees.split.dtype == np.float64
    nodes = Nodes(trees)
    weights, targets, width, columns = _votes(trees, kind, np.dtype(total))
    flags = np.where(nodes.for_nan, HOLDS_FOR_NAN, 0) | np.where(nodes.equality, EQUALITY, 0)
    size = 24 if wide else 16
    record = np.dtype(
        {
            "names": ["threshold", "mark", "feature", "fails", "holds"],
            "formats": ["<f8" if wide else "<f4", "<i4", "<i4", "<i4", "<i4"],
            "offsets": [0, 4, 8, 16, 20] if wide else [0, 0, 4, 8, 12],
            "itemsize": size,
        }
    )
    table = np.zeros(len(nodes.mode) + 1, record)
    last = len(table) - 1  # a leaf without votes
    table["threshold"][:-1] = nodes.threshold
    table["feature"][:-1] = nodes.feature * unit + flags
    table["fails"] = np.append(nodes.fails, last) * size
    table["holds"] = np.append(nodes.holds, last) * size
    leaf = np.append(nodes.mode == LEAF, True)
    first = np.append(nodes.leaf_row, len(weights) - 1)[leaf] * width
    if wide:
        table["mark"][leaf] = MARK
    payload = np.ndarray(len(table), "<i4", table, 0, (size,))
    payload[leaf] = first | (0 if wide else MARK)
    roots = np.asarray(trees.roots)
    spare = -len(roots) % WAYS
    starts = np.append(roots, np.full(spare, last)) * size
    return Ensemble(
        table.view(np.uint8), starts.astype(np.int32), weights.reshape(-1), targets.reshape(-1), len(roots), columns, width,
        int(nodes.feature.max(initial=-1)) + 1, trees.depth + nodes.longest if trees.depth + nodes.longest <= DEEPEST else 0,
        wide, bool(nodes.for_nan.any()), bool(nodes.equality.any()), trees.voted,
    )  # fmt: skip


class Nodes:
    """Nodes by the one condition the kernel knows: x <= threshold, in some also x >= it, or x is NaN."""

    def __init__(self, trees: Trees) -> None:
        mode, split = np.asarray(trees.mode), np.asarray(trees.split)
        children = np.asarray(trees.children).reshape(-1, 2)
        missing = np.zeros(mode.size, bool) if trees.missing_true is None else np.asarray(trees.missing_true)
        feature, self.leaf_row = np.asarray(trees.feature), np.asarray(trees.leaf_row)
        self.longest = 0
        if (mode == MEMBER).any():
            mode, split, children, missing, feature = self._unfolded(trees, mode, split, children, missing, feature)
        leaf = mode == LEAF
        swapped = np.isin(mode, (GTE, GT, NEQ))
        below = np.isin(mode, (LT, GTE))
        self.threshold = np.where(below, np.nextafter(split, split.dtype.type(-np.inf)), split)
        self.threshold[below & (split == -np.inf)] = np.nan  # nothing is below it
        self.threshold[leaf] = 0
        nan_holds = missing | (mode == NEQ)
        self.for_nan = ~leaf & (swapped != nan_holds)
        self.holds = np.where(swapped, children[:, 0], children[:, 1])
        self.fails = np.where(swapped, children[:, 1], children[:, 0])
        # no number compares with NaN: x > NaN fails, and so leads where it fails
        never = np.isin(mode, (GTE, GT)) & np.isnan(split)
        self.fails = np.where(never, children[:, 0], self.fails)
        self.holds = np.where(never, children[:, 1], self.holds)
        self.for_nan = np.where(never, missing, self.for_nan)
        self.equality = np.isin(mode, (EQ, NEQ))
        self.mode, self.feature = mode, feature

    def _unfolded(
        self,
        trees: Trees,
        mode: np.ndarray,
        split: np.ndarray,
        children: np.ndarray,
        missing: np.ndarray,
        feature: np.ndarray,
    ) -> tuple[np.ndarray, ...]:
        """Membership of a set as a chain of equalities; the first one looks for NaN."""
        mode, split, children, missing = mode.copy(), split.copy(), children.copy(), missing.copy()
        more: list[tuple[float, int, int, int]] = []
        rows = np.asarray(trees.member_row)
        for node in np.flatnonzero(mode == MEMBER):
            exact = np.unique(np.asarray(trees.members)[rows[node]])
            values = exact.astype(split.dtype)
            values[values != exact] = np.nan  # no sample is equal to it either
            fails, holds = children[node]
            mode[node], split[node] = EQ, values[0]
            at = int(node)
            for value in values[1:]:
                new = len(mode) + len(more)
                if at == node:
                    children[node, 0] = new
                else:
                    more[-1] = (*more[-1][:2], new, holds)
                more.append((value, int(feature[node]), fails, holds))
                at = new
            self.longest += len(values) - 1
        count = len(more)
        self.leaf_row = np.append(self.leaf_row, np.zeros(count, np.int64))
        return (
            np.append(mode, np.full(count, EQ)),
            np.append(split, np.array([m[0] for m in more], split.dtype)),
            np.append(children, np.array([m[2:] for m in more], np.int64).reshape(-1, 2), axis=0),
            np.append(missing, np.zeros(count, bool)),
            np.append(feature, np.array([m[1] for m in more], np.int64)),
        )


def _votes(trees: Trees, kind: str, total: np.dtype) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Weights and targets (bytes) of each leaf's votes, and of one more leaf that has none; votes a leaf, columns of sums."""
    neutral = {"add": 0.0, "min": np.inf, "max": -np.inf}[kind]
    votes = np.asarray(trees.votes)
    weights = np.where(votes, np.asarray(trees.weights), neutral).astype(total)
    count = weights.shape[1]
    width = max(1, int(votes.sum(axis=1).max(initial=0)))
    if count <= FEW_TARGETS or 2 * width > count:
        return np.append(weights, np.full((1, count), neutral, total), axis=0), np.zeros(0, np.int32), count, count
    order = np.argsort(~votes, axis=1, kind="stable")[:, :width]
    given = np.take_along_axis(votes, order, axis=1)
    chosen = np.take_along_axis(weights, order, axis=1)
    targets = np.where(given, order, count)  # the last column is nobody's
    chosen = np.append(chosen, np.full((1, width), neutral, total), axis=0)
    targets = np.append(targets, np.full((1, width), count), axis=0)
    return chosen, (total.itemsize * targets).astype(np.int32), width, count + 1
