"""The kit's own structures of ai.onnx.ml in which an attribute has another value than by default, or keys are met that no table has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import ML, F, N, OwnNode, S, ints, node, ramp, real

Attributes = dict[str, Any]
_TRANSFORMS = ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
_WORDS = ["a", "b", "c"]


def given_ml_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx.ml."""
    yield from _unknown()
    yield from _linear()
    yield from _machines()
    yield from _trees()
    yield from _ensembles()


def _unknown() -> Iterator[OwnNode]:
    words, numbers = (np.array(["a", "zz", "b"], object), S), (ints(0, 9, 1), N)
    mapped: Attributes = {"cats_int64s": [0, 1, 2], "cats_strings": _WORDS}
    yield node("CategoryMapper", 1, [words], [N], ML, "unknown", default_int64=77, **mapped)
    yield node("CategoryMapper", 1, [numbers], [S], ML, "unknown_number", default_string="none", **mapped)
    yield node(
        "LabelEncoder", 2, [words], [N], ML, "unknown", keys_strings=_WORDS, values_int64s=[5, 6, 7], default_int64=77
    )
    yield node(
        "LabelEncoder",
        2,
        [words],
        [F],
        ML,
        "unknown_float",
        keys_strings=_WORDS,
        values_floats=[5.0, 6.0, 7.0],
        default_float=0.5,
    )
    yield node(
        "LabelEncoder",
        2,
        [numbers],
        [S],
        ML,
        "unknown_string",
        keys_int64s=[0, 1, 2],
        values_strings=_WORDS,
        default_string="none",
    )
    yield node("LabelEncoder", 2, [numbers], [S], ML, "unknown_plain", keys_int64s=[0, 1, 2], values_strings=_WORDS)
    yield node("OneHotEncoder", 1, [numbers], [F], ML, "unknown", cats_int64s=[0, 1, 2], elements="int64")
    missing = (np.array([[1.5, 2.0, 1.5], [4.0, 1.5, 6.0]], np.float32), F)
    each: Attributes = {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": 1.5, "elements": "float"}
    yield node("Imputer", 1, [missing], [F], ML, "columns", **each)
    blank = (np.array([[np.nan, 2.0], [4.0, np.nan]], np.float32), F)
    filled: Attributes = {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan"), "elements": "float"}
    yield node("Imputer", 1, [blank], [F], ML, "nan", **filled)
    for to, result in (("TO_FLOAT", F), ("TO_INT64", N)):
        sparse: Attributes = {"cast_to": to, "map_form": "SPARSE", "max_map": 5}
        yield node(
            "CastMap", 1, [({0: 1.5, 2: -2.0}, "map(int64, float)")], [result], ML, f"sparse_{to.lower()}", **sparse
        )


def _linear() -> Iterator[OwnNode]:
    x = (ramp(3, 4), F)
    fitted: Attributes = {
        "coefficients": [0.5, -1.0, 0.25, 2.0, 1.0, 0.5, -0.5, 0.75],
        "intercepts": [0.5, -1.0],
        "targets": 2,
    }
    yield node("LinearRegressor", 1, [x], [F], ML, "two", **fitted)
    yield node("LinearRegressor", 1, [x], [F], ML, "no_intercepts", coefficients=[0.5, -1.0, 0.25, 2.0])
    three: Attributes = {
        "coefficients": [0.5, -1.0, 0.25, 2.0, 1.0, 0.5, -0.5, 0.75, 0.1, 0.2, -0.3, 0.4], "intercepts": [0.5, 0.0, -0.5],
        "classlabels_ints": [4, 5, 6], "multi_class": 1,
    }  # fmt: skip
    for transform in ("NONE", *_TRANSFORMS):
        yield node(
            "LinearClassifier", 1, [x], [N, F], ML, f"three_{transform.lower()}", post_transform=transform, **three
        )
        yield node("LinearRegressor", 1, [x], [F], ML, f"two_{transform.lower()}", post_transform=transform, **fitted)


def _machines() -> Iterator[OwnNode]:
    x = (ramp(3, 2), F)
    fitted: Attributes = {
        "kernel_type": "RBF", "kernel_params": [0.5, 0.25, 2.0], "support_vectors": [0.5, -1.0, 1.0, 0.25, -0.75, 0.125],
        "coefficients": [0.5, -0.25, 1.0, 0.75, -1.0, 0.5], "rho": [0.25, -0.5, 0.75], "vectors_per_class": [1, 1, 1],
    }  # fmt: skip
    for transform in _TRANSFORMS:
        labels: Attributes = {"classlabels_ints": [4, 5, 6], "post_transform": transform}
        yield node("SVMClassifier", 1, [x], [N, F], ML, transform.lower(), **labels, **fitted)
    alone: Attributes = {
        "kernel_type": "RBF", "kernel_params": [0.5, 0.25, 2.0], "support_vectors": [0.5, -1.0, 1.0, 0.25, -0.75, 0.125],
        "coefficients": [0.5, -0.25, 1.0], "rho": [-0.6], "n_supports": 3, "one_class": 1,
    }  # fmt: skip
    yield node("SVMRegressor", 1, [x], [F], ML, "one_class", **alone)
    for transform in _TRANSFORMS:
        told: Attributes = {**alone, "one_class": 0, "post_transform": transform}
        yield node("SVMRegressor", 1, [x], [F], ML, transform.lower(), **told)
    likely: Attributes = {"classlabels_ints": [4, 5, 6], "prob_a": [-1.5, -0.5, -2.0], "prob_b": [0.25, -0.5, 0.1]}
    yield node("SVMClassifier", 1, [x], [N, F], ML, "likely", **likely, **fitted)


def _trees() -> Iterator[OwnNode]:
    rows = [[0.5, 1.0, -1.0, 0.2], [0.6, 0.0, 2.0, 0.1], [-0.4, 3.0, 0.0, 0.1], [0.0, 0.3, 1.0, 0.5]]
    whole = (np.array(rows, np.float32), F)
    for modes in (("BRANCH_LEQ", "BRANCH_LT"), ("BRANCH_GTE", "BRANCH_GT"), ("BRANCH_EQ", "BRANCH_NEQ")):
        tree = _forest(modes)
        label = modes[0].lower()
        yield node("TreeEnsembleRegressor", 1, [whole], [F], ML, label, n_targets=2, **tree, **_leaves("target"))
        votes = _leaves("class")
        yield node("TreeEnsembleClassifier", 1, [whole], [N, F], ML, label, classlabels_int64s=[4, 5], **tree, **votes)
    tree = _forest(("BRANCH_LEQ", "BRANCH_LT"))
    for way in ("AVERAGE", "MIN", "MAX"):
        told: Attributes = {"aggregate_function": way, "n_targets": 1, "target_ids": [0] * 5}
        yield node("TreeEnsembleRegressor", 1, [whole], [F], ML, way.lower(), **tree, **{**_leaves("target"), **told})
    for transform in _TRANSFORMS:
        told = {"post_transform": transform, "base_values": [0.25, -0.5]}
        yield node(
            "TreeEnsembleRegressor",
            1,
            [whole],
            [F],
            ML,
            transform.lower(),
            n_targets=2,
            **told,
            **tree,
            **_leaves("target"),
        )
        told["classlabels_int64s"] = [4, 5]
        yield node(
            "TreeEnsembleClassifier", 1, [whole], [N, F], ML, transform.lower(), **told, **tree, **_leaves("class")
        )
    lost = {**tree, "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0]}
    gaps = (np.where(np.arange(32).reshape(8, 4) % 3 == 1, np.float32(np.nan), np.tile(whole[0], (2, 1))), F)
    del lost["nodes_hitrates"]
    yield node(
        "TreeEnsembleRegressor",
        1,
        [gaps],
        [F],
        ML,
        "missing",
        n_targets=2,
        elements="float double",
        **lost,
        **_leaves("target"),
    )
    votes = {"classlabels_int64s": [4, 5], **_leaves("class")}
    yield node("TreeEnsembleClassifier", 1, [gaps], [N, F], ML, "missing", elements="float double", **lost, **votes)
    yield node("TreeEnsembleRegressor", 1, [real(5, 4)], [F], ML, "two_trees", n_targets=2, **tree, **_leaves("target"))


def _forest(modes: tuple[str, str]) -> Attributes:
    """Two trees: one of two branches and three leaves, one of a branch and two leaves."""
    first, second = modes
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 2, 0, 0, 0, 1, 0, 0], "nodes_values": [0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        "nodes_hitrates": [1.0] * 8, "nodes_modes": [first, second, "LEAF", "LEAF", "LEAF", second, "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0], "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [0] * 8,
    }  # fmt: skip


def _leaves(what: str) -> Attributes:
    return {
        f"{what}_treeids": [0, 0, 0, 1, 1], f"{what}_nodeids": [2, 3, 4, 1, 2], f"{what}_ids": [0, 1, 0, 1, 1],
        f"{what}_weights": [1.5, -2.5, 0.75, 3.0, -1.25],
    }  # fmt: skip


def _ensembles() -> Iterator[OwnNode]:
    """Two trees in the form of version 5, and those of version 3 with their numbers as tensors."""
    values = np.array([[0.5, 1.0, -1.0], [0.6, np.nan, 2.0], [-0.4, 3.0, 0.0], [np.nan, 0.3, 1.0]], np.float32)
    tree: Attributes = {
        "n_targets": 2, "tree_roots": [0, 2], "nodes_featureids": [0, 2, 1], "nodes_modes": np.array([0, 1, 3], np.uint8),
        "nodes_splits": np.array([0.5, 0.25, 1.0], np.float32), "nodes_truenodeids": [1, 1, 3], "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [0, 2, 4], "nodes_falseleafs": [1, 1, 1], "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": np.array([1.5, -2.5, 0.75, 3.0, -1.25], np.float32),
    }  # fmt: skip
    whole = (np.nan_to_num(values), F)
    for way in (0, 2, 3):
        yield node("TreeEnsemble", 5, [whole], [F], ML, f"aggregate_{way}", aggregate_function=way, **tree)
    yield node("TreeEnsemble", 5, [whole], [F], ML, "softmax_zero", post_transform=3, **tree)
    lost: Attributes = {"nodes_missing_value_tracks_true": [1, 0, 1], "nodes_hitrates": np.ones(3, np.float32)}
    yield node("TreeEnsemble", 5, [(values, F)], [F], ML, "missing", **lost, **tree)
    wide = (np.nan_to_num(values).astype(np.float64), "tensor(double)")
    told = {**_forest(("BRANCH_LEQ", "BRANCH_LT")), **_leaves("target"), "n_targets": 2}
    for name in ("nodes_values", "nodes_hitrates", "target_weights"):
        told[f"{name}_as_tensor"] = np.array(told.pop(name), np.float64)
    told["base_values_as_tensor"] = np.array([0.25, -0.5])
    yield node("TreeEnsembleRegressor", 3, [wide], [F], ML, "tensors", elements="double", **told)
