"""The kit's own structures of ai.onnx.ml, whose backend data covers few operators.

Values are only examples of shape and range; the schema of ``version`` is the one they are written for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug.contract import numpy_dtype
from onnxplug_testkit.kernels.own.node import ML, F, N, OwnNode, S, ints, node, ramp, waves

Attributes = dict[str, Any]
WORDS = ["a", "b", "c"]


def machine_learning_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx.ml."""
    yield from _features()
    yield from _labels()
    yield from _maps()
    yield from _linear()
    yield from _machines()
    yield from _trees()


def _features() -> Iterator[OwnNode]:
    x = (ramp(3, 4), F)
    yield node("Scaler", 1, [x], [F], ML, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 0.5, 1.0, 3.0])
    for norm in ("MAX", "L1", "L2"):
        yield node("Normalizer", 1, [x], [F], ML, norm.lower(), norm=norm)
    imputed: Attributes = {"imputed_value_floats": [1.5], "replaced_value_float": 0.0}
    yield node("Imputer", 1, [x], [F], ML, "floats", elements="float double", **imputed)
    whole = (np.arange(12, dtype=np.int64).reshape(3, 4), N)
    imputed = {"imputed_value_int64s": [7], "replaced_value_int64": 3}
    yield node("Imputer", 1, [whole], [N], ML, "integers", elements="int32 int64", **imputed)
    yield node("OneHotEncoder", 1, [(ints(0, 2, 1, 2), N)], [F], ML, cats_int64s=[0, 1, 2])
    words = (np.array(["a", "b", "a"], object), S)
    yield node("OneHotEncoder", 1, [words], [F], ML, cats_strings=["a", "b", "c"], elements="string")
    yield node("FeatureVectorizer", 1, [(ramp(2, 2), F), (ramp(2, 3), F)], [F], ML, inputdimensions=[2, 3])


def _labels() -> Iterator[OwnNode]:
    keys: Attributes = {"int64s": [0, 1, 2], "strings": WORDS, "floats": [0.0, 1.0, 2.0]}
    values = {
        "int64s": (ints(0, 2, 1), N),
        "strings": (np.array(["a", "c", "b"], object), S),
        "floats": (np.array([0, 2, 1], np.float32), F),
    }
    for one, (value, text) in values.items():
        for two, (_, result) in values.items():
            if one != two:
                yield node(
                    "LabelEncoder", 2, [(value, text)], [result], ML, **{f"keys_{one}": keys[one], f"values_{two}": keys[two]}
                )  # fmt: skip
    for element in ("double", "int16", "int32"):
        data = np.array([0, 2, 1], numpy_dtype(element))
        yield node(
            "LabelEncoder", 4, [(data, f"tensor({element})")], [f"tensor({element})"], ML, element, elements=element,
            keys_tensor=np.array([0, 1, 2], data.dtype), values_tensor=np.array([5, 7, 9], data.dtype),
            default_tensor=np.array([1], data.dtype),
        )  # fmt: skip
    for value, text, result in ((*values["int64s"], S), (*values["strings"], N)):
        label = "strings" if text == S else "integers"
        yield node("LabelEncoder", 1, [(value, text)], [result], ML, label, classes_strings=WORDS, until=1)
        categories: Attributes = {"cats_int64s": [0, 1, 2], "cats_strings": WORDS}
        yield node("CategoryMapper", 1, [(value, text)], [result], ML, label, **categories)


def _maps() -> Iterator[OwnNode]:
    numbers, texts = {0: 1.5, 2: -2.0}, {0: "1", 2: "-3"}
    for result, to in ((F, "TO_FLOAT"), (N, "TO_INT64"), (S, "TO_STRING")):
        for kind, given in (("float", numbers), ("string", texts)):
            yield node("CastMap", 1, [(given, f"map(int64, {kind})")], [result], ML, f"{kind}_{to.lower()}", cast_to=to)
    values: dict[str, list[Any]] = {"string": ["p", "q"], "int64": [4, 5], "float": [0.5, 1.5], "double": [0.5, 1.5]}
    for kind, found in values.items():
        result, held = f"tensor({kind})", {"double": np.float64, "float": np.float32}.get(kind, lambda value: value)
        if kind != "int64":
            numbered = dict(zip([1, 3], map(held, found), strict=True))
            yield node(
                "DictVectorizer",
                1,
                [(numbered, f"map(int64, {kind})")],
                [result],
                ML,
                f"int64_{kind}",
                int64_vocabulary=[3, 2, 1],
            )
        if kind != "string":
            named = dict(zip(["a", "c"], map(held, found), strict=True))
            yield node(
                "DictVectorizer",
                1,
                [(named, f"map(string, {kind})")],
                [result],
                ML,
                f"string_{kind}",
                string_vocabulary=["c", "b", "a"],
            )
    scores = (waves(2, 3, low=0, high=1), F)
    yield node("ZipMap", 1, [scores], ["seq(map(int64, float))"], ML, classlabels_int64s=[1, 5, 9])
    yield node("ZipMap", 1, [scores], ["seq(map(string, float))"], ML, classlabels_strings=WORDS)


def _linear() -> Iterator[OwnNode]:
    x = (ramp(3, 4), F)
    yield node("LinearRegressor", 1, [x], [F], ML, coefficients=[0.5, -1.0, 0.25, 2.0], intercepts=[0.5], targets=1)
    fitted: Attributes = {
        "coefficients": [0.5, -1.0, 0.25, 2.0] * 3,
        "intercepts": [0.5, 0.0, -0.5],
        "post_transform": "NONE",
    }
    yield node("LinearClassifier", 1, [x], [N, F], ML, "integers", classlabels_ints=[0, 1, 2], **fitted)
    yield node("LinearClassifier", 1, [x], [S, F], ML, "strings", classlabels_strings=WORDS, **fitted)


def _machines() -> Iterator[OwnNode]:
    x, vectors = (ramp(3, 2), F), [0.5, -1.0, 1.0, 0.25, -0.75, 0.125]
    for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
        fitted: Attributes = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 2.0], "support_vectors": vectors}
        weights: Attributes = {"coefficients": [0.5, -0.25, 1.0], "rho": [0.25]}
        yield node("SVMRegressor", 1, [x], [F], ML, kernel.lower(), n_supports=3, **weights, **fitted)
        weights = {
            "coefficients": [0.5, -0.25, 1.0, 0.75, -1.0, 0.5],
            "rho": [0.25, -0.5, 0.75],
            "vectors_per_class": [1, 1, 1],
        }
        for result, labels in ((N, {"classlabels_ints": [10, 11, 12]}), (S, {"classlabels_strings": WORDS})):
            label = f"{kernel.lower()}_{'strings' if result == S else 'integers'}"
            yield node("SVMClassifier", 1, [x], [result, F], ML, label, **labels, **weights, **fitted)


def _trees() -> Iterator[OwnNode]:
    x = (ramp(3, 4), F)
    tree: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_hitrates": [1.0, 1.0, 1.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [0, 0, 0],
    }  # fmt: skip
    leaf: dict[str, Any] = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [1.5, -2.5]}
    targets: Attributes = {f"target_{k}": v for k, v in leaf.items()}
    yield node("TreeEnsembleRegressor", 1, [x], [F], ML, "stump", n_targets=1, **tree, **targets)
    votes: Attributes = {**{f"class_{k}": v for k, v in leaf.items()}, "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
    yield node("TreeEnsembleClassifier", 1, [x], [N, F], ML, "integers", classlabels_int64s=[0, 1], **tree, **votes)
    yield node("TreeEnsembleClassifier", 1, [x], [S, F], ML, "strings", classlabels_strings=["a", "b"], **tree, **votes)
    half = np.float16
    yield node(
        "TreeEnsemble", 5, [(x[0].astype(half), "tensor(float16)")], ["tensor(float16)"], ML, "half", elements="float16", n_targets=1,
        aggregate_function=1, post_transform=0, tree_roots=[0], nodes_modes=np.array([0], np.uint8), nodes_featureids=[0],
        nodes_splits=np.array([0.5], half), nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1],
        leaf_targetids=[0, 0], leaf_weights=np.array([1.5, -2.5], half),
    )  # fmt: skip
