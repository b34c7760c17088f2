"""Ensembles of trees of ``ai.onnx.ml``: against onnxruntime, and small cases worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from one_node import ML, Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable, ml_case

from onnxplug_kernels import find

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def prepare_trees(xp: Any, op_type: str, **attributes: Any) -> Any:
    """What a provider calls for each run of a node."""
    entry = find(ML, op_type, 5)
    assert entry is not None and entry.prepare is not None
    return entry.prepare(xp, **attributes)


def forest(rng: np.random.Generator, modes: tuple[str, ...], targets: int, prefix: str, votes: str) -> dict[str, Any]:
    """Attributes of seven random trees on four features. ``votes``: each leaf's targets, "all" or "first"."""
    nodes: list[tuple[Any, ...]] = []
    weights: list[tuple[int, int, int, float]] = []

    def grow(tree: int, start: int, depth: int) -> int:
        here = len(nodes) - start
        nodes.append(())
        if depth == 0 or (depth < 4 and rng.uniform() < 0.1):
            nodes[start + here] = (tree, here, 0, 0.0, "LEAF", 0, 0, 0)
            chosen = range(targets) if votes == "all" else [0]
            weights.extend((tree, here, t, float(np.float32(rng.normal()))) for t in chosen)
            return here
        true, false = grow(tree, start, depth - 1), grow(tree, start, depth - 1)
        split = float(rng.integers(-2, 3) * 0.5)
        track = int(rng.uniform() < 0.3)
        nodes[start + here] = (tree, here, int(rng.integers(4)), split, str(rng.choice(modes)), true, false, track)
        return here

    for tree in range(7):
        grow(tree, len(nodes), 4)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    columns = zip([*names, "missing_value_tracks_true"], map(list, zip(*nodes, strict=True)), strict=True)
    tables = {f"nodes_{name}": column for name, column in columns}
    leaves = zip(("treeids", "nodeids", "ids", "weights"), map(list, zip(*weights, strict=True)), strict=True)
    return {**tables, **{f"{prefix}_{name}": column for name, column in leaves}}


def trees() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for modes in (("BRANCH_LEQ",), ("BRANCH_LT",), MODES):
        for dtype in (np.float32, np.float64, np.int64):
            x = (np.round(rng.normal(size=(40, 4)) * 2) / 2).astype(dtype)
            if dtype != np.int64:
                x[rng.uniform(size=x.shape) < 0.1] = np.nan
            name = f"{modes[-1]}-{np.dtype(dtype).name}"
            for aggregate in ("SUM", "AVERAGE", "MIN", "MAX") if dtype != np.int64 else ():
                for targets in (1, 3):
                    attributes = forest(rng, modes, targets, "target", "all")
                    attributes |= {"n_targets": targets, "aggregate_function": aggregate}
                    attributes["base_values"] = rng.normal(size=targets).tolist()
                    label = f"{name}-{aggregate}-{targets}"
                    yield ml_case("TreeEnsembleRegressor", [x], version=3, label=label, **attributes)
            if dtype != np.int64:
                attributes = forest(rng, modes, 1, "target", "all")
                again = {f"target_{n}": attributes[f"target_{n}"] * 2 for n in ("treeids", "nodeids", "ids")}
                again["target_weights"] = [
                    *attributes["target_weights"],
                    *(2 * w for w in attributes["target_weights"]),
                ]
                yield ml_case(
                    "TreeEnsembleRegressor", [x], version=3, label=f"{name}-repeated", n_targets=1, **attributes | again
                )
            for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
                after = {"post_transform": transform}
                attributes = forest(rng, modes, 3, "class", "all")
                several = {"classlabels_strings": ["a", "b", "c"], "base_values": [0.1, 0.2, 0.3]}
                label = f"{name}-{transform}"
                yield ml_case("TreeEnsembleClassifier", [x], 2, 3, label, **attributes, **several, **after)
            for transform in ("NONE", "LOGISTIC"):
                attributes = forest(rng, modes, 2, "class", "first")
                two = {"classlabels_int64s": [4, 5], "post_transform": transform}
                label = f"{name}-binary-{transform}"
                yield ml_case("TreeEnsembleClassifier", [x], 2, 1, label, **attributes, **two)
                attributes["class_weights"] = np.abs(attributes["class_weights"]).tolist()
                yield ml_case("TreeEnsembleClassifier", [x], 2, 1, f"{label}-positive", **attributes, **two)


STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def odd_trees() -> Iterator[Case]:
    """Targets that no leaf votes for, or some; one score with a transform; all votes for one of two classes."""
    x = np.array([[0], [1]], np.float32)
    for aggregate, targets in itertools.product(("SUM", "AVERAGE", "MIN", "MAX"), ([0, 0], [0, 1])):
        votes = {"treeids": [0, 0], "nodeids": [1, 2], "ids": targets, "weights": [0.5, -0.25]}
        given = {**STUMP, **{f"target_{name}": value for name, value in votes.items()}, "aggregate_function": aggregate}
        for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
            label = f"{aggregate}-{targets}-{transform}"
            several = {"n_targets": 3, "base_values": [1.0, 2.0, 3.0], "post_transform": transform}
            yield ml_case("TreeEnsembleRegressor", [x], version=3, label=label, **given, **several)
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        after, label = {"post_transform": transform}, f"one-{transform}"
        votes = {"treeids": [0], "nodeids": [1], "ids": [0], "weights": [0.5]}
        target = {f"target_{name}": value for name, value in votes.items()}
        one = {"n_targets": 1, "base_values": [0.25]}
        yield ml_case("TreeEnsembleRegressor", [x], version=3, label=label, **STUMP, **target, **one, **after)
        for weights in ([0.3, 0.7], [-0.3, 0.2]):
            votes = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_weights": weights}
            name = f"{weights}-{transform}"
            two = {"classlabels_int64s": [5, 7]}
            for which, base in itertools.product((0, 1), ({}, {"base_values": [0.25]})):
                given = {**STUMP, **votes, "class_ids": [which, which], **base, **two, **after}
                yield ml_case("TreeEnsembleClassifier", [x], 2, 3, f"{name}-{which}-{len(base)}", **given)
        yield ml_case(
            "TreeEnsembleClassifier", [x], 2, 3, f"{label}-{transform}", **STUMP, **after, classlabels_int64s=[4],
            class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 0], class_weights=[0.3, -0.7],
        )  # fmt: skip


CASES = [*trees(), *odd_trees()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


ENSEMBLE = {
    "tree_roots": [0],
    "nodes_featureids": [0, 1],
    "nodes_modes": np.array([0, 6], np.uint8),
    "nodes_splits": np.array([1.5, 0.0], np.float32),
    "nodes_truenodeids": [1, 1],
    "nodes_trueleafs": [0, 1],
    "nodes_falsenodeids": [0, 2],
    "nodes_falseleafs": [1, 1],
    "leaf_targetids": [0, 1, 0],
    "leaf_weights": np.array([10.0, 20.0, 30.0], np.float32),
    "membership_values": np.array([3.0, 5.0, np.nan], np.float32),
    "n_targets": 2,
}


def test_set_membership() -> None:
    x = np.array([[2, 0], [1, 3], [1, 5], [1, 4]], np.float32)
    predict = prepare_trees(np, "TreeEnsemble", **ENSEMBLE)
    np.testing.assert_array_equal(predict(x), np.array([[10, 0], [0, 20], [0, 20], [30, 0]], np.float32))
    assert predict(x.astype(np.float16)).dtype == np.float16


def test_missing_values_follow_the_track() -> None:
    x = np.array([[np.nan, 3]], np.float32)
    assert prepare_trees(np, "TreeEnsemble", **ENSEMBLE)(x).tolist() == [[10, 0]]
    tracked = prepare_trees(np, "TreeEnsemble", **ENSEMBLE, nodes_missing_value_tracks_true=[1, 0])
    assert tracked(x).tolist() == [[0, 20]]


def test_two_classes_with_votes_of_their_own() -> None:
    """The top class is the one with the higher score; onnxruntime asks only whether that of the second is positive."""
    predict = prepare_trees(
        np,
        "TreeEnsembleClassifier",
        class_treeids=[0, 0, 0, 0],
        class_nodeids=[1, 1, 2, 2],
        class_ids=[0, 1, 0, 1],
        class_weights=[0.75, 0.25, 0.25, 0.75],
        classlabels_int64s=[10, 20],
        **STUMP,
    )
    names, scores = predict(np.array([[0], [1]], np.float32))
    assert names.tolist() == [10, 20]
    assert scores.tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_ways_that_meet_again() -> None:
    """60 nodes, of each of which both ways lead to the next, are walked node by node, not way by way."""
    below = 60
    nodes = [*range(1, below + 1)]
    predict = prepare_trees(
        np,
        "TreeEnsembleRegressor",
        nodes_treeids=[0] * (below + 3),
        nodes_nodeids=[*range(below + 3)],
        nodes_featureids=[0] * (below + 3),
        nodes_values=[0.5] * (below + 3),
        nodes_modes=["BRANCH_LEQ"] * (below + 1) + ["LEAF"] * 2,
        nodes_truenodeids=[*nodes, below + 1, 0, 0],
        nodes_falsenodeids=[*nodes, below + 2, 0, 0],
        target_treeids=[0, 0],
        target_nodeids=[below + 1, below + 2],
        target_ids=[0, 1],
        target_weights=[1.0, 2.0],
        n_targets=2,
        base_values=[1.0, 1.0],
    )
    assert predict(np.array([[0], [1]], np.float32)).tolist() == [[2, 0], [0, 3]]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"nodes_nodeids": [0, 1, 1]}, "same id"),
        ({"nodes_truenodeids": [7, 0, 0]}, "not there"),
        (
            {"nodes_modes": ["BRANCH_LEQ"] * 3, "nodes_truenodeids": [1, 2, 0], "nodes_falsenodeids": [2, 0, 1]},
            "circle",
        ),
    ],
)
def test_trees_that_are_none(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_trees(np, "TreeEnsembleRegressor", **{**STUMP, **attributes})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"tree_roots": [-1]}, "a tree begins at node -1 of 5"),
        ({"tree_roots": [5]}, "a tree begins at node 5 of 5"),
        ({"nodes_truenodeids": [-5, 1]}, "a node leads to node -5 of 5"),
        ({"nodes_falsenodeids": [9, 2]}, "a node leads to node 11 of 5"),
        ({"nodes_featureids": [-1, 0]}, "a node reads feature -1"),
        ({"leaf_targetids": [0, -1, 0]}, "a leaf votes for target -1 of 2"),
        ({"leaf_targetids": [0, 2, 0]}, "a leaf votes for target 2 of 2"),
    ],
)
def test_numbers_of_nothing(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_trees(np, "TreeEnsemble", **{**ENSEMBLE, **attributes})
