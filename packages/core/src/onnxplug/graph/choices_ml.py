"""Attributes of trees and support vector machines (``ai.onnx.ml``) that do not go together: refused when a model is loaded, as
onnxruntime does. What nodes of a tree lead to, kernels check, which make tables of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnxplug.graph.ir import Node

Refusal = str | None

_MODES = frozenset(
    {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"}
)
_NODES = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_truenodeids")
"""Beside nodes_falsenodeids, what every node of a tree has."""
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def refusal(node: Node) -> Refusal:
    """What is wrong with a node of ``ai.onnx.ml``, naming the attribute; None where nothing is."""
    rule = _RULES.get(node.op_type)
    return None if rule is None else rule(node.attributes)


def _size(given: Mapping[str, Any], name: str) -> int:
    """How many entries an attribute has, as a list or as the tensor that later versions have beside it."""
    tensor = given.get(f"{name}_as_tensor")
    return len(given.get(name, ())) if tensor is None else int(tensor.size)


def _differing(given: Mapping[str, Any], first: str, others: tuple[str, ...]) -> Refusal:
    count = _size(given, first)
    for name in others:
        if (size := _size(given, name)) != count:
            return f"{first} and {name} must have the same size, got {count} and {size}"
    return None


def _votes(given: Mapping[str, Any], name: str, targets: int, bases: tuple[int, ...]) -> Refusal:
    """Leaves vote for targets, or classes, that there are, and there are as many base values as one of ``bases``."""
    ids = given.get(name, ())
    if ids and (min(ids) < 0 or max(ids) >= targets):
        wrong = next(number for number in ids if not 0 <= number < targets)
        return f"{name} has {wrong}, it must be in 0..{targets - 1}"
    if (count := _size(given, "base_values")) not in (0, *bases):
        return f"base_values has {count} entries, there must be 0 or {' or '.join(map(str, bases))}"
    return None


def _tree(given: Mapping[str, Any], votes: str) -> Refusal:
    found = _differing(given, "nodes_falsenodeids", (*_NODES, "nodes_values"))
    found = found or _differing(given, f"{votes}_ids", tuple(f"{votes}_{n}" for n in ("nodeids", "treeids", "weights")))
    if found is None and (strange := set(given.get("nodes_modes", ())) - _MODES):
        return f"nodes_modes has {sorted(strange)}, which are none of {', '.join(sorted(_MODES))}"
    return found or _transform(given)


def _tree_regressor(given: Mapping[str, Any]) -> Refusal:
    if (count := given.get("n_targets", 0)) < 1:
        return f"n_targets is {count or 'missing or 0'}, it must be positive"
    return _tree(given, "target") or _votes(given, "target_ids", count, (count,))


def _tree_classifier(given: Mapping[str, Any]) -> Refusal:
    if not (count := _classes(given, "classlabels_int64s")):
        return "classlabels_int64s and classlabels_strings are empty"
    return _tree(given, "class") or _votes(given, "class_ids", count, (1, 2) if count == 2 else (count,))


def _ensemble(given: Mapping[str, Any]) -> Refusal:
    if (count := given.get("n_targets", 0)) < 1:
        return f"n_targets is {count or 'missing or 0'}, it must be positive"
    strange = {int(mode) for mode in given["nodes_modes"].reshape(-1)} - set(range(7))
    if strange:
        return f"nodes_modes has {sorted(strange)}, which are not in 0..6"
    return _votes(given, "leaf_targetids", count, ())


def _machine(given: Mapping[str, Any]) -> Refusal:
    if (kind := given.get("kernel_type", "LINEAR")) not in _KERNELS:
        return f"kernel_type '{kind}' is none of {', '.join(_KERNELS)}"
    if "kernel_params" not in given:
        return "kernel_params is missing"
    if (count := len(given["kernel_params"])) not in (0, 3):
        return f"kernel_params must be empty or have 3 values, not {count}"
    return "rho is empty" if not given.get("rho") else _transform(given)


def _svm_regressor(given: Mapping[str, Any]) -> Refusal:
    count, weights = given.get("n_supports", 0), len(given.get("coefficients", ()))
    if count > 0 and weights < count:
        return f"coefficients has {weights} entries, n_supports is {count}"
    return _machine(given) or _supports(given, count)


def _svm_classifier(given: Mapping[str, Any]) -> Refusal:
    classes, groups = _classes(given, "classlabels_ints"), given.get("vectors_per_class", ())
    if not classes:
        return "classlabels_ints and classlabels_strings are empty"
    found = _machine(given) or _differing(given, "prob_a", ("prob_b",))
    if found is not None or not groups:
        return found
    if len(groups) != classes or min(groups) < 0:
        return f"vectors_per_class is {list(groups)}, classlabels_ints or classlabels_strings have {classes} classes"
    total, pairs = sum(groups), classes * (classes - 1) // 2
    if total == 0:
        return None
    for name, needed in (("coefficients", (classes - 1) * total), ("rho", pairs), ("prob_a", pairs)):
        size = len(given.get(name, ()))
        if size < needed and (size or name != "prob_a"):
            return f"{name} has {size} entries, {needed} are needed for {classes} classes"
    return _supports(given, total)


def _supports(given: Mapping[str, Any], count: int) -> Refusal:
    size = len(given.get("support_vectors", ()))
    if count > 0 and (not size or size % count):
        return f"support_vectors has {size} entries, which are not {count} vectors"
    return None


def _classes(given: Mapping[str, Any], integers: str) -> int:
    return max(len(given.get(integers, ())), len(given.get("classlabels_strings", ())))


def _transform(given: Mapping[str, Any]) -> Refusal:
    name = given.get("post_transform", "NONE")
    return None if name in _TRANSFORMS else f"post_transform '{name}' is none of {', '.join(_TRANSFORMS)}"


_RULES: Mapping[str, Callable[[Mapping[str, Any]], Refusal]] = {
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "TreeEnsemble": _ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}
