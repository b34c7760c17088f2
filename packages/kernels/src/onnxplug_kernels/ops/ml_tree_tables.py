"""Decision trees as tables of nodes, and walking many samples through them at once (operators: ``ml_tree``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug_kernels.distinct import distinct
from onnxplug_kernels.precision import is_inexact, widen

MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
    "LEAF",
)
MEMBER, LEAF = MODES.index("BRANCH_MEMBER"), MODES.index("LEAF")
# Rows are walked in blocks of about this many (row, tree, target) entries, so that the working arrays stay in cache.
BLOCK = 1 << 17

Array = np.ndarray[Any, Any]

_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a <= b,
    lambda a, b: a < b,
    lambda a, b: a >= b,
    lambda a, b: a > b,
    lambda a, b: a == b,
    lambda a, b: a != b,
)


@dataclass(frozen=True, slots=True)
class Trees:
    """Arrays of ``xp`` with an entry for each node, inner nodes and leaves alike.

    ``children[2 * node]`` is where a node leads when its comparison fails, the next entry where it holds; a leaf leads
    to itself. ``members`` has a row for each BRANCH_MEMBER node (``member_row`` leads there). ``weights`` (leaves,
    targets) is read at ``leaf_row``, ``votes`` says which of its entries a leaf has. ``voted`` says of each target whether
    every sample has a vote for it, or (False) none, or that depends on the sample (None). ``mode`` is needed only where
    nodes differ in ``modes``, and ``missing_true`` (NaN takes the true branch) where a node sets it.
    """

    xp: Any
    roots: Any
    feature: Any
    split: Any
    mode: Any
    modes: tuple[int, ...]
    children: Any
    missing_true: Any | None
    member_row: Any
    members: Any
    leaf_row: Any
    weights: Any
    votes: Any
    voted: tuple[bool | None, ...]
    depth: int

    def scores(self, x: Any, aggregate: str, base: Any = None) -> Any:
        """(N, targets): each sample's leaf weights over all trees, plus ``base``; a target of several gets 0, without its base value,
        where the sample has no vote for it, as in onnxruntime. For doubles they are float64, else
        float32, and are added tree by tree, since what rounding makes of a tie is a classifier's answer: onnxruntime's."""
        xp = self.xp
        total = xp.float64 if x.dtype == xp.float64 else xp.float32
        x = widen(xp, x) if is_inexact(x.dtype) else xp.astype(x, xp.float64)
        if x.ndim == 1:
            x = xp.reshape(x, (1, -1))
        step = max(1, BLOCK // max(1, self.roots.shape[0] * self.weights.shape[1]))
        base = None if base is None else self._based(base)
        blocks = [
            self._block(x[i : min(i + step, x.shape[0]), :], aggregate, total, base) for i in range(0, x.shape[0], step)
        ]
        return xp.concat(blocks, axis=0) if blocks else xp.zeros((0, self.weights.shape[1]), dtype=total)

    def _based(self, base: Any) -> Any:
        """Base values, 0 for targets of several that nothing votes for."""
        if len(self.voted) == 1 or all(self.voted):
            return base
        return self.xp.where(self.xp.asarray([voted is not False for voted in self.voted]), base, 0.0)

    def _block(self, x: Any, aggregate: str, total: Any, base: Any) -> Any:
        xp = self.xp
        leaf = self._leaves(x)
        shape = (*leaf.shape, self.weights.shape[1])
        weights = xp.reshape(xp.take(xp.astype(self.weights, total), xp.reshape(leaf, (-1,)), axis=0), shape)
        adds = aggregate in ("SUM", "AVERAGE")
        asked = base is not None and len(self.voted) > 1 and None in self.voted
        voted = any_voted = None
        if asked or not adds:
            voted = xp.reshape(xp.take(self.votes, xp.reshape(leaf, (-1,)), axis=0), shape)
            any_voted = xp.any(voted, axis=1)
        if adds or not shape[1]:
            added = xp.cumulative_sum(weights, axis=1, dtype=total)[:, -1, :] if shape[1] else xp.sum(weights, axis=1)
            scores = added / shape[1] if aggregate == "AVERAGE" and shape[1] else added
        else:
            reduce, worst = (xp.min, xp.inf) if aggregate == "MIN" else (xp.max, -xp.inf)
            scores = xp.where(any_voted, reduce(xp.where(voted, weights, worst), axis=1), 0.0)
        if base is None:
            return scores
        return xp.where(any_voted, scores + base, 0.0) if asked else scores + base

    def _leaves(self, x: Any) -> Any:
        """(N, trees): the row of ``weights`` each sample comes to in each tree."""
        xp = self.xp
        node = xp.broadcast_to(self.roots[None, :], (x.shape[0], self.roots.shape[0]))
        for _ in range(self.depth):
            value = xp.take_along_axis(x, self._at(self.feature, node), axis=1)
            taken = xp.astype(self._holds(value, node), node.dtype)
            node = self._at(self.children, 2 * node + taken)
        return self._at(self.leaf_row, node)

    def _holds(self, value: Any, node: Any) -> Any:
        xp = self.xp
        split = self._at(self.split, node)
        mode = self._at(self.mode, node) if len(self.modes) > 1 else None
        holds = None
        for code in self.modes:
            if code == MEMBER:
                rows = xp.reshape(self._at(self.member_row, node), (-1,))
                sets = xp.reshape(xp.take(self.members, rows, axis=0), (*node.shape, -1))
                answer = xp.any(value[..., None] == sets, axis=-1)
            else:
                answer = _COMPARISONS[code](value, split)
            holds = answer if holds is None else xp.where(mode == code, answer, holds)
        if self.missing_true is not None:
            holds = holds | (xp.isnan(value) & self._at(self.missing_true, node))
        return holds

    def _at(self, table: Any, index: Any) -> Any:
        return self.xp.reshape(self.xp.take(table, self.xp.reshape(index, (-1,)), axis=0), index.shape)


def build_trees(
    xp: Any,
    *,
    roots: Array,
    feature: Array,
    split: Array,
    mode: Array,
    true: Array,
    false: Array,
    missing_true: Array,
    membership_values: Any,
    leaf_row: Array,
    weights: Array,
    votes: Array,
) -> Trees:
    """``Trees`` on ``xp`` from NumPy tables. ``membership_values`` are sets, each closed by NaN, in order of the nodes
    that use them. ValueError for a number that no node, or no feature, can have: NumPy would count it from the end.
    """
    members = _members(membership_values, int(np.sum(mode == MEMBER)))
    is_leaf = mode == LEAF
    _check_numbers("a tree begins at node", roots, mode.size)
    _check_numbers("a node leads to node", np.concatenate([true, false]), mode.size)
    if (lowest := feature[~is_leaf].min(initial=0)) < 0:
        raise ValueError(f"a node reads feature {lowest}")
    depth = _depth(roots, true, false, is_leaf)
    return Trees(
        xp=xp,
        roots=xp.asarray(roots),
        feature=xp.asarray(np.where(is_leaf, 0, feature)),
        split=xp.asarray(split),
        mode=xp.asarray(mode),
        modes=tuple(distinct(mode[~is_leaf])[0].tolist()),
        children=xp.asarray(np.stack([false, true], axis=1).reshape(-1)),
        missing_true=xp.asarray(missing_true) if missing_true.any() else None,
        member_row=xp.asarray(np.maximum(np.cumsum(mode == MEMBER) - 1, 0)),
        members=xp.asarray(members),
        leaf_row=xp.asarray(leaf_row),
        weights=xp.asarray(weights),
        votes=xp.asarray(votes),
        voted=_voted(roots, true, false, is_leaf, votes[leaf_row]),
        depth=depth,
    )


def _voted(roots: Array, true: Array, false: Array, is_leaf: Array, votes: Array) -> tuple[bool | None, ...]:
    """``Trees.voted`` from ``votes`` (nodes, targets): every sample has the votes that all leaves of a tree have."""
    never: Array = np.logical_not(np.any(votes[is_leaf], axis=0))
    always: Array = np.asarray(np.all(votes[is_leaf], axis=0)) & ~never  # without leaves both
    if (never | always).all():
        return tuple(bool(a) for a in always)
    tree = np.full(is_leaf.size, -1)
    tree[roots] = np.arange(roots.size)
    level = roots
    while (level := level[~is_leaf[level]]).size:
        for to in (true, false):
            tree[to[level]] = tree[level]
        level, _ = distinct(np.concatenate([true[level], false[level]]))
    complete = np.ones((roots.size, votes.shape[1]), dtype=bool)
    there = is_leaf & (tree >= 0)
    np.logical_and.at(complete, tree[there], votes[there])
    return tuple(
        True if c else False if n else None for c, n in zip(np.asarray(complete.any(axis=0)), never, strict=True)
    )


def _check_numbers(what: str, numbers: Array, count: int) -> None:
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if outside.size:
        raise ValueError(f"{what} {outside[0]} of {count}")


def split_table(values: Any) -> Array:
    """Thresholds in the precision they were given in, at least float32."""
    table = np.asarray(values)
    return table if table.dtype == np.float64 and hasattr(values, "dtype") else table.astype(np.float32)


def leaf_table(rows: int, targets: int, row: Any, target: Any, weight: Any) -> tuple[Array, Array]:
    """(weights, votes), both (rows, targets), from parallel lists. Weights for one place add up, but where there is one target the first
    counts, as in onnxruntime: skl2onnx gives a leaf's number once for each class."""
    at, given = (np.asarray(row, dtype=np.int64), np.asarray(target, dtype=np.int64)), np.asarray(weight)
    _check_numbers("a leaf votes for target", at[1], targets)
    if targets == 1:
        _, first = distinct(at[0])
        at, given = (at[0][first], at[1][first]), given[first]
    weights, votes = np.zeros((rows, targets)), np.zeros((rows, targets), dtype=bool)
    np.add.at(weights, at, given)
    votes[at] = True
    return weights, votes


def _members(values: Any, needed: int) -> Array:
    """A row of members for each set, filled up by repeating one; NaN, which equals nothing, for an empty set."""
    sets: list[list[float]] = []
    current: list[float] = []
    for value in [] if values is None else np.asarray(values).astype(np.float64).tolist():
        if value == value:
            current.append(value)
        else:
            sets.append(current)
            current = []
    if current:
        sets.append(current)
    if len(sets) != needed:
        raise ValueError(f"membership_values has {len(sets)} sets for {needed} BRANCH_MEMBER nodes")
    width = max((len(s) for s in sets), default=0)
    filled = [s + (s[-1:] or [np.nan]) * (width - len(s)) for s in sets]
    return np.asarray(filled, dtype=np.float64).reshape(len(sets), width)


def _depth(roots: Array, true: Array, false: Array, is_leaf: Array) -> int:
    """The longest way from a root to a leaf."""
    level, depth = distinct(roots)[0], 0
    while (level := level[~is_leaf[level]]).size:
        level, _ = distinct(np.concatenate([true[level], false[level]]))
        depth += 1
        if depth > is_leaf.size:
            raise ValueError("the nodes of a tree lead in a circle")
    return depth
