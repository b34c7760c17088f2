"""Ensembles of decision trees of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.strategies.ml import TRANSFORMS, floats, labels

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def samples(d: Draw, parameter: str) -> np.ndarray:
    """Rows that lie on and off the thresholds."""
    x = np.round(d.rng.uniform(-2, 2, (d.integer(1, 4), 3)))
    return x.astype(numpy_dtype(d.element(parameter)))


def forest(d: Draw, prefix: str, outputs: int) -> dict[str, Any]:
    """Two-level trees, and the weights at their leaves for targets or classes."""
    tables: dict[str, list[Any]] = {
        key: [] for key in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    leaves: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}
    missing: list[int] = []
    mode = d.pick(*MODES)
    for tree in range(d.pick(2, 1, 3)):
        deep = d.pick(True, False)  # node 1 branches too
        branching = {0: (1, 2), **({1: (3, 4)} if deep else {})}
        for node in range(5 if deep else 3):
            branch = branching.get(node)
            row = (
                tree,
                node,
                d.integer(0, 2) if branch else 0,
                mode if branch else "LEAF",
                float(d.pick(0, 1, -1)) if branch else 0.0,
            )
            for key, value in zip(tables, (*row, *(branch or (0, 0))), strict=True):
                tables[key].append(value)
            missing.append(d.pick(0, 1) if branch else 0)
            if branch is None:
                for key, value in zip(leaves, (tree, node, d.integer(0, outputs - 1), floats(d, 1)[0]), strict=True):
                    leaves[key].append(value)
    found: dict[str, Any] = {f"nodes_{key}": value for key, value in tables.items()}
    found |= {f"{prefix}_{key}": value for key, value in leaves.items()}
    return {**found, "nodes_missing_value_tracks_true": missing} if d.flag() else found


def as_tensors(d: Draw, attributes: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Version 3 may give numbers as tensors."""
    if d.version < 3 or not d.flag():
        return attributes
    dtype = np.float64 if d.element(d.main) == "double" else np.float32
    return {
        f"{k}_as_tensor" if k in names else k: np.array(v, dtype) if k in names else v for k, v in attributes.items()
    }


@strategy("TreeEnsembleRegressor", domain=ML)
def regressor(d: Draw) -> Case:
    targets = d.pick(2, 1)
    attributes = {
        **forest(d, "target", targets),
        "n_targets": targets,
        **d.maybe(aggregate_function=d.pick("SUM", "AVERAGE", "MIN", "MAX")),
    }
    if d.flag():
        attributes["base_values"] = floats(d, targets)
    if targets > 1 and d.flag():
        attributes["post_transform"] = d.pick(*TRANSFORMS[:3])
    return Case([samples(d, "T")], as_tensors(d, attributes, ("nodes_values", "target_weights", "base_values")))


@strategy("TreeEnsembleClassifier", domain=ML)
def classifier(d: Draw) -> Case:
    classes = d.pick(3, 4)
    attributes = {**forest(d, "class", classes), **labels(d, "T2", classes, "classlabels_int64s")}
    if d.flag():
        attributes["base_values"] = floats(d, classes)
    if d.flag():
        attributes["post_transform"] = d.pick(*TRANSFORMS[:3])
    return Case([samples(d, "T1")], as_tensors(d, attributes, ("nodes_values", "class_weights", "base_values")), 2)


@strategy("TreeEnsemble", domain=ML)
def ensemble(d: Draw) -> Case:
    """One or two trees of three nodes: a root, an inner node on its true side, and leaves."""
    dtype, targets = numpy_dtype(d.element()), d.pick(2, 1)
    trees = d.pick(2, 1)
    roots, fields = (
        [],
        {key: [] for key in ("featureids", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")},
    )
    splits, members, weights, ids = [], [], [], []
    for tree in range(trees):
        roots.append(2 * tree)
        for node, (true, false, true_leaf) in enumerate(((2 * tree + 1, 3 * tree, 0), (3 * tree + 1, 3 * tree + 2, 1))):
            mode = d.pick(0, 1, 2, 3, 4, 5, 6)
            if mode == 6:
                members += [-1.0, 1.0, float("nan")]
            row = (d.integer(0, 2), mode, true, false, true_leaf, 1)
            for key, value in zip(fields, row, strict=True):
                fields[key].append(value)
            splits.append(float(d.pick(0, 1, -1)) + 0 * node)
        weights += floats(d, 3)
        ids += [d.integer(0, targets - 1) for _ in range(3)]
    attributes: dict[str, Any] = {
        "tree_roots": roots, "n_targets": targets, "leaf_targetids": ids, "leaf_weights": np.array(weights, dtype),
        "nodes_splits": np.array(splits, dtype), "nodes_modes": np.array(fields.pop("modes"), np.uint8),
        **{f"nodes_{key}": value for key, value in fields.items()},
    }  # fmt: skip
    if members:
        attributes["membership_values"] = np.array(members, dtype)
    if d.flag():
        attributes["aggregate_function"] = d.pick(0, 1, 2, 3)
    return Case([samples(d, "T")], attributes)
