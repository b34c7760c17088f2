"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier.

Turning attributes into tables costs more than a prediction: a provider that makes use of ``OpKernel.prepare`` does it once for a
node; the catalogue's functions do both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.distinct import distinct
from onnxplug_kernels.ops.ml_scores import labels, two_columns
from onnxplug_kernels.ops.ml_scores import post_transform as apply_transform
from onnxplug_kernels.ops.ml_tree_tables import LEAF, MODES, Array, Trees, build_trees, leaf_table, split_table

ML = "ai.onnx.ml"
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

Predictor = Callable[[Any], Any]


def prepare_ensemble(xp: Any, *, aggregate_function: int = 1, post_transform: int = 0, **nodes: Any) -> Predictor:
    """TreeEnsemble-5; ``nodes`` are its other attributes."""
    trees = ensemble_trees(xp, **nodes)
    aggregate, transform = AGGREGATES[aggregate_function], TRANSFORMS[post_transform]
    return lambda x: xp.astype(apply_transform(xp, trees.scores(x, aggregate), transform), x.dtype)


def ensemble_trees(
    xp: Any,
    *,
    leaf_targetids: Sequence[int],
    leaf_weights: Any,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int] = (),
    tree_roots: Sequence[int],
    membership_values: Any = None,
    n_targets: int | None = None,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
) -> Trees:
    """Tables of TreeEnsemble-5. Leaves are numbered behind the inner nodes."""
    inner, leaves = len(nodes_featureids), len(leaf_targetids)
    count = inner + leaves

    def links(ids: Sequence[int], are_leaves: Sequence[int]) -> Array:
        to = np.asarray(ids, dtype=np.int64) + np.where(np.asarray(are_leaves, dtype=bool), inner, 0)
        return np.concatenate([to, np.arange(inner, count)])

    weights, votes = leaf_table(
        leaves,
        max(leaf_targetids, default=0) + 1 if n_targets is None else n_targets,
        range(leaves),
        leaf_targetids,
        leaf_weights,
    )
    return build_trees(
        xp,
        roots=np.asarray(tree_roots, dtype=np.int64),
        feature=_filled(nodes_featureids, count, np.int64),
        split=_filled(split_table(nodes_splits), count),
        mode=_filled(nodes_modes, count, np.int64, LEAF),
        true=links(nodes_truenodeids, nodes_trueleafs),
        false=links(nodes_falsenodeids, nodes_falseleafs),
        missing_true=_filled(nodes_missing_value_tracks_true, count, np.bool_),
        membership_values=membership_values,
        leaf_row=np.maximum(np.arange(count) - inner, 0),
        weights=weights,
        votes=votes,
    )


def prepare_regressor(
    xp: Any,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    base_values_as_tensor: Any = None,
    n_targets: int = 1,
    post_transform: str = "NONE",
    target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (),
    target_treeids: Sequence[int] = (),
    target_weights: Sequence[float] = (),
    target_weights_as_tensor: Any = None,
    **nodes: Any,
) -> Predictor:
    """TreeEnsembleRegressor-1 to -5; ``nodes`` are its attributes of that prefix. Base values are added after
    aggregation, where there are several targets to those that a sample has a vote for, as in onnxruntime.
    """
    weights = target_weights if target_weights_as_tensor is None else target_weights_as_tensor
    trees = trees_by_id(xp, n_targets, target_treeids, target_nodeids, target_ids, weights, **nodes)
    base = _base(xp, base_values, base_values_as_tensor)
    if aggregate_function not in AGGREGATES:
        raise ValueError(f"aggregate_function is {aggregate_function!r}; it must be one of {AGGREGATES}")

    def predict(x: Any) -> Any:
        return xp.astype(apply_transform(xp, trees.scores(x, aggregate_function, base), post_transform), xp.float32)

    return predict


def prepare_classifier(
    xp: Any,
    *,
    base_values: Sequence[float] = (),
    base_values_as_tensor: Any = None,
    class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (),
    class_treeids: Sequence[int] = (),
    class_weights: Sequence[float] = (),
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    post_transform: str = "NONE",
    **nodes: Any,
) -> Predictor:
    """TreeEnsembleClassifier-1 to -5; ``nodes`` are its attributes of that prefix. The label is the class with the
    highest score.

    Where all votes are for class 0 of two, they are the score s of class 1, as exporters write and onnxruntime reads
    binary models: class 1 wins above 0 (above 0.5 where no weight is negative), and class 0 is given -s (1 - s). Where all are for
    class 1, it wins alike, and class 0 is given 0. A single base value of two classes is that of class 0, for samples that have
    a vote for it. Labels of a single class are 0 and 1, as in onnxruntime.
    """
    weights = class_weights if class_weights_as_tensor is None else class_weights_as_tensor
    count = max(len(classlabels_int64s), len(classlabels_strings))
    trees = trees_by_id(xp, count, class_treeids, class_nodeids, class_ids, weights, **nodes)
    base = _base(xp, base_values, base_values_as_tensor)
    sizes = 0 if base is None else base.shape[0]
    probabilities = bool(np.all(np.asarray(weights) >= 0))
    single = count == 1 or (count == 2 and set(class_ids) == {0} and sizes < 2)
    second = count == 2 and set(class_ids) == {1} and sizes < 2
    voters = xp.concat([base, xp.zeros_like(base)]) if count == 2 and sizes == 1 else None
    threshold = 0.5 if probabilities and count == 2 else 0.0

    def named(index: Any) -> Any:
        if count > 1:
            return labels(xp, index, classlabels_int64s, classlabels_strings)
        return labels(xp, index, (0, 1), ("0", *classlabels_strings) if classlabels_strings else ())

    def predict(x: Any) -> tuple[Any, Any]:
        if single:
            scores = trees.scores(x, "SUM")
            exact = scores[:, 0] if base is None else scores[:, 0] + base[0]
            index, score = xp.astype(exact > threshold, xp.int64), xp.astype(exact, xp.float32)
            if count == 1:
                return named(index), apply_transform(xp, score[:, None], post_transform)
            return named(index), two_columns(xp, score, post_transform, complement=probabilities)
        scores = trees.scores(x, "SUM", voters)
        scores = scores if base is None or voters is not None else scores + base
        best = xp.astype(scores[:, 1] > threshold, xp.int64) if second else xp.argmax(scores, axis=1)
        return named(best), apply_transform(xp, xp.astype(scores, xp.float32), post_transform)

    return predict


@op("TreeEnsemble", 5, domain=ML, prepare=prepare_ensemble)
def tree_ensemble(xp: Any, x: Any, **attributes: Any) -> Any:
    """(N, n_targets) in x's type."""
    return prepare_ensemble(xp, **attributes)(x)


@op("TreeEnsembleRegressor", 1, 5, domain=ML, prepare=prepare_regressor)
def tree_ensemble_regressor(xp: Any, x: Any, **attributes: Any) -> Any:
    """(N, n_targets) float32."""
    return prepare_regressor(xp, **attributes)(x)


@op("TreeEnsembleClassifier", 1, 5, domain=ML, portable=False, prepare=prepare_classifier)
def tree_ensemble_classifier(xp: Any, x: Any, **attributes: Any) -> tuple[Any, Any]:
    """Labels (N,) and scores (N, classes) float32."""
    labels, scores = prepare_classifier(xp, **attributes)(x)
    return labels, scores


def trees_by_id(
    xp: Any,
    targets: int,
    leaf_treeids: Sequence[int],
    leaf_nodeids: Sequence[int],
    leaf_targets: Sequence[int],
    leaf_weights: Any,
    *,
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (),
    nodes_values_as_tensor: Any = None,
    nodes_hitrates: Sequence[float] = (),
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] = (),
) -> Trees:
    """Tables of the operators that name nodes by (tree id, node id). A tree's first node is its root."""
    tree_of = np.asarray(nodes_treeids, dtype=np.int64)
    found = _places(tree_of, np.asarray(nodes_nodeids, dtype=np.int64))
    mode = np.asarray([MODES.index(m) for m in nodes_modes], dtype=np.int64)
    is_leaf = mode == LEAF
    inner = np.nonzero(~is_leaf)[0]

    def links(ids: Sequence[int]) -> Array:
        to = np.arange(mode.size)
        to[inner] = found(tree_of[inner], np.asarray(ids, dtype=np.int64)[inner])
        return to

    roots = np.sort(distinct(tree_of)[1])
    leaf_row = np.maximum(np.cumsum(is_leaf) - 1, 0)
    voting = found(np.asarray(leaf_treeids, dtype=np.int64), np.asarray(leaf_nodeids, dtype=np.int64))
    keep = np.nonzero(is_leaf[voting])[0]
    weights, votes = leaf_table(
        int(is_leaf.sum()),
        targets,
        leaf_row[voting[keep]],
        np.asarray(leaf_targets, dtype=np.int64)[keep],
        split_table(leaf_weights)[keep],
    )
    return build_trees(
        xp,
        roots=roots,
        feature=np.asarray(nodes_featureids, dtype=np.int64),
        split=split_table(nodes_values if nodes_values_as_tensor is None else nodes_values_as_tensor),
        mode=mode,
        true=links(nodes_truenodeids),
        false=links(nodes_falsenodeids),
        missing_true=_filled(nodes_missing_value_tracks_true, mode.size, np.bool_) & ~is_leaf,
        membership_values=None,
        leaf_row=leaf_row,
        weights=weights,
        votes=votes,
    )


def _places(trees: Array, nodes: Array) -> Callable[[Array, Array], Array]:
    """From (tree id, node id) to where it stands among all nodes. ValueError for nodes that are there twice, or not at all."""
    lowest, span = nodes.min(initial=0), int(np.ptp(nodes)) + 1 if nodes.size else 1
    names, _ = distinct(trees)

    def code(tree: Array, node: Array) -> Array:
        numbers: Array = np.searchsorted(names, tree) * span + (node - lowest)
        return numbers

    codes = code(trees, nodes)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("two nodes of a tree have the same id")

    def found(tree: Array, node: Array) -> Array:
        at = np.minimum(np.searchsorted(ordered, code(tree, node)), max(ordered.size - 1, 0))
        place = order[at] if ordered.size else at
        there = np.zeros(tree.size, bool) if not ordered.size else (trees[place] == tree) & (nodes[place] == node)
        if not there.all():
            wrong = int(np.argmin(there))
            raise ValueError(f"node {node[wrong]} of tree {tree[wrong]} is named but not there")
        return place

    return found


def _filled(values: Any, count: int, dtype: Any = None, fill: Any = 0) -> Array:
    """The first ``count`` of ``values``, followed by as many ``fill`` as are missing."""
    values = np.asarray(values, dtype=dtype)[:count]
    return np.concatenate([values, np.full(count - values.size, fill, dtype=values.dtype)])


def _base(xp: Any, values: Sequence[float], tensor: Any) -> Any:
    given = split_table(values if tensor is None else tensor)
    return xp.asarray(given) if given.size else None
