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
# onnxruntime, by which models are made, adds base values to what a row has a weight for, where there are several targets.


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
    base = _given(a, "base_values")
    added = np.zeros(a["n_targets"]) if base is None else np.array(base)
    scores = np.zeros((len(x[0]), a["n_targets"])) + (added if a["n_targets"] == 1 else 0)
    for n, row in enumerate(x[0]):
        for target, weights in _votes(case, row, "target").items():
            scores[n, target] = added[target] + (
                sum(weights) / len(set(a["nodes_treeids"])) if name == "AVERAGE" else AGGREGATES[name](weights)
            )
    return transformed(scores, a.get("post_transform", "NONE"))


@oracle(
    "TreeEnsemble",
    domain=ML,
    sentence="the least or greatest leaf weight by target; of a target that no leaf votes for it is 0, as in onnxruntime: the specification"
    " is silent",
    wrong=lambda case: case.attributes.get("aggregate_function") in (2, 3),
)
def ensemble(case: Case, x: list[Any]) -> Any:
    a = case.attributes
    modes = a["nodes_modes"].tolist()
    groups = iter(_members(a.get("membership_values", np.zeros(0))))
    sets = [next(groups) if mode == 6 else None for mode in modes]
    comparisons = list(COMPARISONS.values())
    scores = np.zeros((len(x[0]), a["n_targets"]))
    for n, row in enumerate(x[0]):
        found: dict[int, list[float]] = defaultdict(list)
        for node in a["tree_roots"]:
            leaf = 0
            while not leaf:
                value, mode = row[a["nodes_featureids"][node]], modes[node]
                holds = value in sets[node] if mode == 6 else comparisons[mode](value, a["nodes_splits"][node])
                side = "true" if holds else "false"
                leaf, node = a[f"nodes_{side}leafs"][node], a[f"nodes_{side}nodeids"][node]
            found[a["leaf_targetids"][node]].append(float(a["leaf_weights"][node]))
        for target, weights in found.items():
            scores[n, target] = (min if a["aggregate_function"] == 2 else max)(weights)
    return scores


def _members(values: np.ndarray) -> list[set[float]]:
    """The sets of values that the nodes of mode MEMBER test for, each ended by NaN."""
    sets: list[set[float]] = [set()]
    for value in values.tolist():
        if math.isnan(value):
            sets.append(set())
        else:
            sets[-1].add(value)
    return sets


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
