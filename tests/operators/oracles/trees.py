"""Ensembles of decision trees, one row and tree at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle
from operators.oracles.ml import ML, transformed

COMPARISONS: dict[str, Any] = {
    "BRANCH_LEQ": lambda a, b: a <= b, "BRANCH_LT": lambda a, b: a < b, "BRANCH_GTE": lambda a, b: a >= b, "BRANCH_GT": lambda a, b: a > b,
    "BRANCH_EQ": lambda a, b: a == b, "BRANCH_NEQ": lambda a, b: a != b,
}  # fmt: skip
AGGREGATES: dict[str, Any] = {"SUM": sum, "MIN": min, "MAX": max}
SENTENCE = "each row goes down each tree; the weights at the leaves are added (averaged over trees, least, greatest) by target, then base values"


def _given(a: dict[str, Any], name: str) -> Any:
    return a[name] if name in a else a.get(f"{name}_as_tensor")


def _votes(case: Case, row: np.ndarray, prefix: str) -> dict[int, list[float]]:
    """The weights that one row's leaves give each target."""
    a = case.attributes
    place = {key: i for i, key in enumerate(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))}
    found: dict[int, list[float]] = defaultdict(list)
    leaves = list(
        zip(
            a[f"{prefix}_treeids"],
            a[f"{prefix}_nodeids"],
            a[f"{prefix}_ids"],
            _given(a, f"{prefix}_weights"),
            strict=True,
        )
    )
    tracks = a.get("nodes_missing_value_tracks_true")
    for tree in dict.fromkeys(a["nodes_treeids"]):
        node = 0
        while a["nodes_modes"][(i := place[tree, node])] != "LEAF":
            value = float(row[a["nodes_featureids"][i]])
            true = COMPARISONS[a["nodes_modes"][i]](value, _given(a, "nodes_values")[i])
            true = bool(tracks[i]) if math.isnan(value) and tracks else true
            node = a["nodes_truenodeids" if true else "nodes_falsenodeids"][i]
        for leaf_tree, leaf, target, weight in leaves:
            if (leaf_tree, leaf) == (tree, node):
                found[target].append(float(weight))
    return found


@oracle("TreeEnsembleRegressor", domain=ML, sentence=SENTENCE, wrong=always)
def regressor(case: Case, x: list[Any]) -> Any:
    a, name = case.attributes, case.attributes.get("aggregate_function", "SUM")
    scores = np.zeros((len(x[0]), a["n_targets"]))
    for n, row in enumerate(x[0]):
        for target, weights in _votes(case, row, "target").items():
            scores[n, target] = (
                sum(weights) / len(set(a["nodes_treeids"])) if name == "AVERAGE" else AGGREGATES[name](weights)
            )
    base = _given(a, "base_values")
    return transformed(scores if base is None else scores + np.array(base), a.get("post_transform", "NONE"))


@oracle("TreeEnsembleClassifier", domain=ML, sentence=SENTENCE, wrong=always)
def classifier(case: Case, x: list[Any]) -> Any:
    a = case.attributes
    words = a.get("classlabels_strings") or a["classlabels_int64s"]
    scores = np.zeros((len(x[0]), len(words)))
    for n, row in enumerate(x[0]):
        for target, weights in _votes(case, row, "class").items():
            scores[n, target] = sum(weights)
    base = _given(a, "base_values")
    scores = scores if base is None else scores + np.array(base)
    named = np.array([words[i] for i in scores.argmax(1)], object if isinstance(words[0], str) else np.int64)
    return named, transformed(scores, a.get("post_transform", "NONE"))
