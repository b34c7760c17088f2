"""Ensembles of decision trees in generated code against a plain evaluation, node by node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_models import check, model, run
from onnx import helper, numpy_helper

from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_cpu.codegen.kernels.trees import WAYS
from onnxplug_ep_cpu.codegen.lower.leaf_words import LeafWords

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 3
VALUES = (-2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, math.inf, -math.inf)
"""Few, so that samples meet thresholds."""
ELEMENTS = (np.float32, np.float64, np.int64, np.int32)

_HOLDS = {
    "BRANCH_LEQ": lambda x, t: x <= t,
    "BRANCH_LT": lambda x, t: x < t,
    "BRANCH_GTE": lambda x, t: x >= t,
    "BRANCH_GT": lambda x, t: x > t,
    "BRANCH_EQ": lambda x, t: x == t,
    "BRANCH_NEQ": lambda x, t: x != t,
}

Tree = dict[str, Any]
"""A leaf has votes, (target, weight) pairs; another node a mode, a feature, a threshold (or a set), where NaN goes, two children."""


@st.composite
def trees(draw: st.DrawFn, modes: tuple[str, ...], targets: int, depth: int, missing: bool, votes: int) -> Tree:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        chosen = draw(st.lists(st.integers(0, targets - 1), max_size=votes, min_size=min(1, votes), unique=True))
        return {"votes": [(t, draw(st.integers(-8, 8)) / 4) for t in chosen]}
    mode = draw(st.sampled_from(modes))
    return {
        "mode": mode,
        "feature": draw(st.integers(0, FEATURES - 1)),
        "threshold": draw(st.sampled_from(VALUES)),
        "missing": missing and draw(st.booleans()),
        "true": draw(trees(modes, targets, depth - 1, missing, votes)),
        "false": draw(trees(modes, targets, depth - 1, missing, votes)),
    }


def by_id(forest: list[Tree], prefix: str) -> dict[str, list[Any]]:
    """The attributes of the operators that name nodes by (tree id, node id)."""
    made: dict[str, list[Any]] = {
        f"nodes_{n}": []
        for n in ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    for name in ("treeids", "nodeids", "ids", "weights"):
        made[f"{prefix}_{name}"] = []

    def enter(number: int, tree: Tree) -> int:
        place = sum(t == number for t in made["nodes_treeids"])
        at = len(made["nodes_treeids"])
        row = (number, place, tree.get("mode", "LEAF"), tree.get("feature", 0), tree.get("threshold", 0.0), 0, 0)
        for name, value in zip(made, (*row, int(tree.get("missing", False))), strict=False):
            made[name].append(value)
        if "mode" in tree:
            made["nodes_truenodeids"][at] = enter(number, tree["true"])
            made["nodes_falsenodeids"][at] = enter(number, tree["false"])
        for target, weight in tree.get("votes", ()):
            for name, value in zip(
                ("treeids", "nodeids", "ids", "weights"), (number, place, target, weight), strict=True
            ):
                made[f"{prefix}_{name}"].append(value)
        return place

    for number, tree in enumerate(forest):
        enter(number, tree)
    return made


def votes_of(tree: Tree, row: np.ndarray) -> list[tuple[int, float]]:
    """The votes of the leaf that a row comes to."""
    while "mode" in tree:
        value = float(row[tree["feature"]])
        if tree["mode"] == "BRANCH_MEMBER":
            holds = value in tree["members"]
        else:
            holds = _HOLDS[tree["mode"]](value, tree["threshold"])
        holds = holds or (tree["missing"] and math.isnan(value))
        tree = tree["true"] if holds else tree["false"]
    return tree["votes"]


def expected(
    forest: list[Tree], x: np.ndarray, targets: int, aggregate: str = "SUM", base: list[float] | None = None
) -> np.ndarray:
    """Base values count where a sample has a vote, or there is but one target, as in onnxruntime."""
    made = np.zeros((len(x), targets))
    for place, row in enumerate(x):
        for target in range(targets):
            found = [w for tree in forest for t, w in votes_of(tree, row) if t == target]
            if aggregate in ("SUM", "AVERAGE"):
                made[place, target] = sum(found) / (len(forest) if aggregate == "AVERAGE" else 1)
            elif found:
                made[place, target] = min(found) if aggregate == "MIN" else max(found)
            if base and (found or targets == 1):
                made[place, target] += base[target]
    return made


def rows(draw: st.DrawFn, count: int, dtype: type) -> np.ndarray:
    values = [v for v in VALUES if np.dtype(dtype).kind == "f" or (math.isfinite(v) and v == int(v))]
    choice = [*values, math.nan] if np.dtype(dtype).kind == "f" else values
    flat = draw(st.lists(st.sampled_from(choice), min_size=count * FEATURES, max_size=count * FEATURES))
    return np.array(flat, dtype).reshape(count, FEATURES)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Tree], np.ndarray, int, str, list[float]]:
    modes = draw(st.sampled_from([MODES[:1], MODES[1:2], MODES[2:4], MODES[4:], MODES]))
    targets = draw(st.sampled_from([1, 3, 7]))
    depth = draw(st.sampled_from([1, 3, 10]))
    votes = draw(st.sampled_from([1, targets]))
    forest = draw(st.lists(trees(modes, targets, depth, draw(st.booleans()), votes), min_size=1, max_size=11))
    x = rows(draw, draw(st.sampled_from([1, 5, WAYS, 2 * WAYS + 3])), draw(st.sampled_from(ELEMENTS)))
    base = draw(st.sampled_from([[], [0.5 + number for number in range(targets)]]))
    return forest, x, targets, draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"])), base


@given(cases())
@settings(max_examples=40)
def test_regressor(case: tuple[list[Tree], np.ndarray, int, str, list[float]]) -> None:
    forest, x, targets, aggregate, base = case
    given = by_id(forest, "target") | {"base_values": base}
    proto = model("TreeEnsembleRegressor", [x], n_targets=targets, aggregate_function=aggregate, **_said(given))
    (got,) = run(proto, [x])
    np.testing.assert_allclose(got, expected(forest, x, targets, aggregate, base), rtol=1e-6, atol=1e-7)
    (alone,) = run(proto, [x], threads=2)
    assert got.tobytes() == alone.tobytes()


def _said(given: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Without what is empty, of which no type can be told."""
    return {name: values for name, values in given.items() if values}


@st.composite
def ensembles(draw: st.DrawFn) -> tuple[list[Tree], np.ndarray, int, int]:
    """TreeEnsemble-5: one vote a leaf; sets of members among the modes."""
    targets = draw(st.sampled_from([1, 2, 6]))

    def member(tree: Tree) -> Tree:
        if "mode" not in tree:
            return tree
        if draw(st.booleans()):
            members = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=5))
            tree = {**tree, "mode": "BRANCH_MEMBER", "members": members}
        return {**tree, "true": member(tree["true"]), "false": member(tree["false"])}

    grown = st.one_of([trees(m, targets, 4, draw(st.booleans()), 1) for m in (MODES[:1], MODES)])
    forest = [member(t) for t in draw(st.lists(grown, min_size=1, max_size=5)) if "mode" in t]
    x = rows(draw, draw(st.sampled_from([1, 9])), draw(st.sampled_from([np.float32, np.float64])))
    return forest, x, targets, draw(st.integers(0, 3))


@given(ensembles())
@settings(max_examples=30)
def test_ensemble(case: tuple[list[Tree], np.ndarray, int, int]) -> None:
    forest, x, targets, aggregate = case
    if not forest:
        return
    inner: list[Tree] = []
    leaves: list[tuple[int, float]] = []

    def collect(tree: Tree) -> tuple[int, int]:
        if "mode" not in tree:
            leaves.extend(tree["votes"])
            return len(leaves) - 1, 1
        at = len(inner)
        inner.append({**tree})
        inner[at]["to"] = (collect(tree["true"]), collect(tree["false"]))
        return at, 0

    roots = [collect(tree)[0] for tree in forest]
    dtype = x.dtype
    sets = [[*n["members"], math.nan] for n in inner if n["mode"] == "BRANCH_MEMBER"]
    given = {
        "tree_roots": roots,
        "nodes_featureids": [n["feature"] for n in inner],
        "nodes_splits": np.array([n["threshold"] for n in inner], dtype),
        "nodes_modes": np.array([(*MODES, "BRANCH_MEMBER").index(n["mode"]) for n in inner], np.uint8),
        "nodes_truenodeids": [n["to"][0][0] for n in inner],
        "nodes_trueleafs": [n["to"][0][1] for n in inner],
        "nodes_falsenodeids": [n["to"][1][0] for n in inner],
        "nodes_falseleafs": [n["to"][1][1] for n in inner],
        "nodes_missing_value_tracks_true": [int(n["missing"]) for n in inner],
        "leaf_targetids": [t for t, _ in leaves],
        "leaf_weights": np.array([w for _, w in leaves], dtype),
    }
    if sets:
        given["membership_values"] = np.array([v for s in sets for v in s], dtype)
    proto = model("TreeEnsemble", [x], version=5, n_targets=targets, aggregate_function=aggregate, **given)
    (got,) = run(proto, [x])
    name = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate]
    np.testing.assert_allclose(got, expected(forest, x, targets, name), rtol=1e-6, atol=1e-7)
    assert got.dtype == dtype
    del next(a for a in proto.graph.node[0].attribute if a.name == "tree_roots").ints[:]
    for native in (True, False):
        assert run(proto, [x], native=native)[0].tolist() == [[0.0] * targets] * len(x)


@given(st.data())
@settings(max_examples=30)
def test_classifier(data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.sampled_from([1, 2, 3, 9]))
    single = count == 2 and draw(st.booleans())
    forest = draw(
        st.lists(trees(MODES[:1], 1 if single else count, 3, False, 1 if single else count), min_size=1, max_size=4)
    )
    x = rows(draw, draw(st.sampled_from([1, 10])), draw(st.sampled_from(ELEMENTS)))
    words = draw(st.booleans())
    labels: dict[str, Any] = (
        {"classlabels_strings": [f"w{i}" for i in range(count)]} if words
        else {"classlabels_int64s": draw(st.sampled_from([list(range(count)), list(range(7, 7 + count))]))}
    )  # fmt: skip
    base = draw(
        st.sampled_from([[], [0.25] * (1 if single or count == 1 or (count == 2 and draw(st.booleans())) else count)])
    )
    given = _said({**by_id(forest, "class"), "base_values": base})
    check(
        "TreeEnsembleClassifier", [x], 2, rtol=1e-4,
        post_transform=draw(st.sampled_from(["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])), **labels, **given,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 7, 8, 40, 1000])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_forest_of_many_trees_is_shared_out_alike(rows: int, dtype: type) -> None:
    rng = np.random.default_rng(0)

    def grow(depth: int) -> Tree:
        if depth == 0 or rng.random() < 0.1:
            return {"votes": [(int(rng.integers(5)), float(rng.normal()))]}
        return {
            "mode": "BRANCH_LEQ", "feature": int(rng.integers(FEATURES)), "threshold": float(np.float32(rng.normal(scale=3))),
            "missing": False, "true": grow(depth - 1), "false": grow(depth - 1),
        }  # fmt: skip

    forest = [grow(int(rng.integers(1, 10))) for _ in range(40)]
    x = (3 * rng.normal(size=(rows, FEATURES))).astype(dtype)
    proto = model("TreeEnsembleRegressor", [x], n_targets=5, **by_id(forest, "target"))
    found = [run(proto, [x], threads=threads)[0] for threads in (1, 2)]
    assert found[0].tobytes() == found[1].tobytes()
    some = slice(0, 12)
    np.testing.assert_allclose(found[0][some], expected(forest, x[some], 5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [2, 16, 37, 300])
@pytest.mark.parametrize("leaves", [1, 31, 32, 33, 150])
@pytest.mark.parametrize(("targets", "missing"), [(1, "never"), (1, "always"), (1, "sometimes"), (6, "sometimes")])
def test_leaves_are_crossed_out(
    rows: int, leaves: int, targets: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of lopsided trees with one word of leaves and several, for NaN and infinity, to the bits that walking gives."""
    rng = np.random.default_rng(leaves)
    modes, least = (MODES[:2], -math.inf) if missing == "never" else (MODES[:4], -1.0)

    def grow(left: int) -> Tree:
        if left == 1:
            return {"votes": [(int(rng.integers(targets)), float(rng.normal()))] if rng.random() < 0.9 else []}
        some = int(rng.integers(1, left))
        return {
            "mode": str(rng.choice(modes)), "feature": int(rng.integers(FEATURES)),
            "threshold": float(rng.choice([*rng.normal(size=9).astype("f4"), least, math.inf])),
            "missing": {"never": False, "always": True, "sometimes": bool(rng.integers(2))}[missing],
            "true": grow(some), "false": grow(left - some),
        }  # fmt: skip

    forest = [grow(max(1, leaves - number)) for number in range(5)]
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = math.nan
    x[rng.random(x.shape) < 0.1] = math.inf
    x[rng.random(x.shape) < 0.1] = -math.inf
    proto = model("TreeEnsembleRegressor", [x], n_targets=targets, **by_id(forest, "target"))
    monkeypatch.setenv("ONNXPLUG_CACHE", "0")
    found, asked = [], []
    for time in (0.0, math.inf):
        monkeypatch.setattr(LeafWords, "time", lambda self, features, time=time: asked.append(time) or time)
        found += run(proto, [x])
    assert {0.0, math.inf} <= set(asked)
    np.testing.assert_allclose(found[0], expected(forest, x, targets), rtol=1e-5, atol=1e-6)
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("rows", [1, 10, 40, 300])
@pytest.mark.parametrize(("dtype", "winner"), [(np.float32, 1), (np.int64, 1), (np.float64, 0)])
def test_a_tie_of_a_forest_is_decided_by_rounding_as_in_onnxruntime(rows: int, dtype: type, winner: int) -> None:
    """25 of 50 trees vote 0.02 for the second class: added in float32 that is 0.50000006, and in float64, where float32's 0.02 is less
    than 0.02, it is below a half."""
    forest: list[Tree] = [
        {
            "mode": "BRANCH_LEQ", "feature": 0, "threshold": 0.5, "missing": False,
            "true": {"votes": [(0, 0.02 if number % 2 else 0.0)]}, "false": {"votes": [(0, 0.0)]},
        }
        for number in range(50)
    ]  # fmt: skip
    x = np.zeros((rows, 2), dtype)
    proto = model("TreeEnsembleClassifier", [x], 2, classlabels_int64s=[0, 1], **by_id(forest, "class"))
    total = np.float64 if dtype is np.float64 else np.float32
    score = np.cumsum(np.full(25, np.float32(0.02), total))[-1]
    for native, threads in ((True, 1), (True, 2), (False, 1)):
        labels, scores = run(proto, [x], native, threads)
        assert labels.tolist() == [winner] * rows
        assert scores.tolist() == [[np.float32(1) - np.float32(score), np.float32(score)]] * rows


def test_rows_that_are_one_row() -> None:
    """Expand gives them no step."""
    tree: Tree = {"mode": "BRANCH_LEQ", "feature": 1, "threshold": 0.0, "missing": False, "true": {"votes": [(0, 1.5)]}}
    tree["false"] = {"votes": [(0, 3.0)]}
    x = np.array([[1.0, -1.0, 2.0]], np.float32)
    proto = model("TreeEnsembleRegressor", [x], n_targets=1, **by_id([tree] * 5, "target"))
    proto.graph.node[0].input[0] = "many"
    proto.graph.node.insert(0, helper.make_node("Expand", ["x0", "shape"], ["many"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([24, 3]), "shape"))
    assert run(proto, [x])[0].tolist() == [[7.5]] * 24


@pytest.mark.parametrize("aggregate", ["SUM", "MIN"])
@pytest.mark.parametrize(("base", "expected"), [([], [0.0]), ([1.5], [1.5]), ([1.5, 2.5], [0.0, 0.0])])
def test_an_ensemble_without_trees_votes_for_nothing(aggregate: str, base: list[float], expected: list[float]) -> None:
    """As onnxruntime has it: one target has its base value even so."""
    x = np.ones((2, 3), np.float32)
    given = {"base_values": base} if base else {}
    (got,) = check("TreeEnsembleRegressor", [x], n_targets=len(expected), aggregate_function=aggregate, **given)
    assert got.tolist() == [expected] * 2


def test_a_feature_that_is_not_there_is_named() -> None:
    tree: Tree = {"mode": "BRANCH_LT", "feature": 2, "threshold": 1.0, "missing": False, "true": {"votes": [(0, 1.0)]}}
    tree["false"] = tree["true"]
    x = np.zeros((3, 2), np.float32)
    with pytest.raises(Exception, match="TreeEnsembleRegressor"):
        run(model("TreeEnsembleRegressor", [x], **by_id([tree], "target")), [x])


@pytest.mark.parametrize("name", ["tree_roots", "nodes_truenodeids", "nodes_featureids"])
def test_numbers_of_nothing_are_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Generated code would read what lies before its tables."""
    given = {
        "tree_roots": [0], "nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_trueleafs": [1], "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1], "leaf_targetids": [0, 0], "nodes_modes": np.array([0], np.uint8), "n_targets": 1,
        "nodes_splits": np.array([0.5], np.float32), "leaf_weights": np.array([1, 2], np.float32), name: [-5],
    }  # fmt: skip
    x = np.zeros((2, 3), np.float32)
    proto = model("TreeEnsemble", [x], version=5, **given)
    with pytest.raises(InvalidArgument, match=r"running TreeEnsemble node\..* -[45]"):
        run(proto, [x])
    assert "please report it" not in caplog.text
