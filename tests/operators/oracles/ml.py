"""Operators of ``ai.onnx.ml``."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle

ML = "ai.onnx.ml"


def transformed(scores: np.ndarray, name: str) -> np.ndarray:
    """The post_transform of that name."""
    if name == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    powers = np.exp(scores - scores.max(1, keepdims=True))
    if name == "SOFTMAX":
        return powers / powers.sum(1, keepdims=True)
    if name == "SOFTMAX_ZERO":
        powers = np.where(np.abs(scores) > 1e-7, powers, 0)
        return powers / powers.sum(1, keepdims=True)
    assert name == "NONE", name
    return scores


def _texts(values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(values, object).reshape(shape)


@oracle(
    "CategoryMapper",
    domain=ML,
    sentence="Converts strings to integers and vice versa; two sequences of equal length are used to map",
)
def category_mapper(case: Case, x: list[Any]) -> Any:
    data, a = case.inputs[0], case.attributes
    if data.dtype == object:
        table = dict(zip(a["cats_strings"], a["cats_int64s"], strict=True))
        return np.array([table.get(v, a.get("default_int64", -1)) for v in data.ravel()], np.int64).reshape(data.shape)
    table = dict(zip(a["cats_int64s"], a["cats_strings"], strict=True))
    return _texts([table.get(int(v), a.get("default_string", "_Unused")) for v in data.ravel()], data.shape)


@oracle(
    "LabelEncoder",
    domain=ML,
    sentence="if the input is a tensor of strings, the output is the index of each in classes_strings, or back (version 1)",
)
def label_encoder(case: Case, x: list[Any]) -> Any:
    data, a = case.inputs[0], case.attributes
    words = a["classes_strings"]
    if data.dtype == object:
        return np.array(
            [words.index(v) if v in words else a.get("default_int64", -1) for v in data.ravel()], np.int64
        ).reshape(data.shape)
    default = a.get("default_string", "_Unused")
    return _texts([words[int(v)] if 0 <= v < len(words) else default for v in data.ravel()], data.shape)


@oracle(
    "CastMap",
    domain=ML,
    sentence="Converts a map to a tensor, ordered by keys; SPARSE positions the input based on using the key as the index",
)
def cast_map(case: Case, x: list[Any]) -> Any:
    found, a = case.inputs[0], case.attributes
    casts: dict[str, Any] = {
        "TO_FLOAT": float, "TO_INT64": lambda v: int(float(v)), "TO_STRING": lambda v: v if isinstance(v, str) else f"{v:f}",
    }  # fmt: skip
    cast = casts[a["cast_to"]]
    if a.get("map_form") != "SPARSE":
        values = [cast(found[key]) for key in sorted(found)]
    else:
        values = [
            cast(found[key]) if key in found else "" if a["cast_to"] == "TO_STRING" else 0
            for key in range(a["max_map"])
        ]
    return np.array([values], object if a["cast_to"] == "TO_STRING" else None)


@oracle(
    "OneHotEncoder",
    domain=ML,
    sentence="each element becomes 1.0 at the place of its category, a new last axis; floats are compared with cats_int64s as integers",
)
def one_hot_encoder(case: Case, x: list[Any]) -> Any:
    categories = case.attributes.get("cats_strings") or case.attributes["cats_int64s"]
    values = case.inputs[0] if case.inputs[0].dtype == object else case.inputs[0].astype(np.int64)
    return np.stack([(values == category).astype(np.float32) for category in categories], -1)


@oracle(
    "ZipMap",
    domain=ML,
    sentence="Creates a map from the input and the attributes; the values are provided by the input tensor, rows are maps",
)
def zip_map(case: Case, x: list[Any]) -> Any:
    keys = case.attributes.get("classlabels_strings") or case.attributes["classlabels_int64s"]
    return [dict(zip(keys, row, strict=True)) for row in case.inputs[0].tolist()]


def _whole(case: Case) -> bool:
    """onnx.reference computes integers as integers."""
    return "int" in case.types.get("T", case.types.get("T1", ""))


def _linear(case: Case, x: np.ndarray, count: int) -> np.ndarray:
    weights = np.array(case.attributes["coefficients"]).reshape(count, -1)
    scores = x.astype(np.float64) @ weights.T + np.array(case.attributes.get("intercepts", [0.0] * count))
    return transformed(scores, case.attributes.get("post_transform", "NONE"))


@oracle(
    "LinearRegressor",
    domain=ML,
    sentence="targets regressions, each coefficients X + intercepts, then post_transform; intercepts are optional",
    wrong=_whole,
)
def linear_regressor(case: Case, x: list[Any]) -> Any:
    return _linear(case, x[0], case.attributes["targets"])


@oracle(
    "LinearClassifier",
    domain=ML,
    sentence="one score per class, coefficients X + intercepts; the label is that of the best; intercepts are optional",
    wrong=_whole,
)
def linear_classifier(case: Case, x: list[Any]) -> Any:
    words = case.attributes.get("classlabels_strings") or case.attributes["classlabels_ints"]
    scores = _linear(case, x[0], len(words))
    return _named(words, scores.argmax(1)), scores


@oracle(
    "Scaler",
    domain=ML,
    sentence="Rescale input data: first offset, then multiply by scale; the output is float32",
    wrong=_whole,
)
def scaler(case: Case, x: list[Any]) -> Any:
    return (x[0].astype(np.float64) - np.array(case.attributes["offset"])) * np.array(case.attributes["scale"])


@oracle(
    "Normalizer", domain=ML, sentence="Max: Y = X / max(X); L1: Y = X / sum(X); L2: Y = sqrt(X^2 / sum(X^2)), by rows"
)
def normalizer(case: Case, x: list[Any]) -> Any:
    data = x[0].astype(np.float64)
    norm = case.attributes.get("norm", "MAX")
    by = data.max(1) if norm == "MAX" else np.abs(data).sum(1) if norm == "L1" else np.sqrt((data**2).sum(1))
    return data / by[:, None]


@oracle(
    "DictVectorizer",
    domain=ML,
    sentence="the output array will be equal in length to the index mapping vector; one row of it, as onnxruntime has it",
    wrong=always,
)
def dict_vectorizer(case: Case, x: list[Any]) -> Any:
    words = case.attributes.get("string_vocabulary") or case.attributes["int64_vocabulary"]
    text = case.types["T2"] == "tensor(string)"
    return np.array([[case.inputs[0].get(word, "" if text else 0) for word in words]], object if text else None)


def _kernel(a: dict[str, Any], x: np.ndarray, vector: np.ndarray) -> np.ndarray:
    gamma, coef0, degree = a["kernel_params"]
    if a["kernel_type"] == "RBF":
        return np.exp(-gamma * ((x - vector) ** 2).sum(1))
    product = x @ vector
    kinds = {
        "LINEAR": product,
        "POLY": (gamma * product + coef0) ** degree,
        "SIGMOID": np.tanh(gamma * product + coef0),
    }
    return kinds[a["kernel_type"]]


def _kernels(a: dict[str, Any], x: np.ndarray, count: int) -> np.ndarray:
    return np.stack([_kernel(a, x, v) for v in np.array(a["support_vectors"]).reshape(count, -1)], 1)


@oracle(
    "SVMRegressor",
    domain=ML,
    sentence="sum of coefficients * kernel(X, support vector) + rho; one_class gives the sign",
    wrong=always,
)
def svm_regressor(case: Case, x: list[Any]) -> Any:
    a = case.attributes
    score = _kernels(a, x[0].astype(np.float64), a["n_supports"]) @ np.array(a["coefficients"]) + a["rho"][0]
    return (np.where(score > 0, 1.0, -1.0) if a.get("one_class") else score)[:, None]


@oracle(
    "SVMClassifier",
    domain=ML,
    sentence="machines for pairs of classes vote (libsvm); scores are the machines', (-s, s) for two classes, or probabilities with prob_a",
    wrong=always,
)
def svm_classifier(case: Case, x: list[Any]) -> Any:
    a = case.attributes
    words = a.get("classlabels_strings") or a["classlabels_ints"]
    per_class, count = a["vectors_per_class"], len(words)
    kernels = _kernels(a, x[0].astype(np.float64), sum(per_class))
    weights = np.array(a["coefficients"]).reshape(count - 1, -1)
    starts = np.cumsum([0, *per_class])
    votes, machines = np.zeros((len(kernels), count)), []
    for i in range(count):
        for j in range(i + 1, count):
            own, other = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            score = (
                kernels[:, own] @ weights[j - 1, own] + kernels[:, other] @ weights[i, other] + a["rho"][len(machines)]
            )
            votes[:, i] += score > 0
            votes[:, j] += score <= 0
            machines.append(score)
    scores = np.stack(machines, 1)
    if "prob_a" in a:
        pairwise = 1 / (1 + np.exp(scores * np.array(a["prob_a"]) + np.array(a["prob_b"])))
        scores = np.stack([_coupled(row, count) for row in pairwise])
    elif count == 2:
        scores = np.concatenate([-scores, scores], 1)
    return _named(words, votes.argmax(1)), scores


def _named(words: list[Any], index: np.ndarray) -> np.ndarray:
    return np.array([words[i] for i in index], object if isinstance(words[0], str) else np.int64)


def _coupled(pairwise: np.ndarray, count: int) -> np.ndarray:
    """Class probabilities from those of pairs, as libsvm's multiclass_probability iterates (Wu, Lin, Weng 2004)."""
    r = np.zeros((count, count))
    for value, (i, j) in zip(np.clip(pairwise, 1e-7, 1 - 1e-7), list(combinations(range(count), 2)), strict=True):
        r[i, j], r[j, i] = value, 1 - value
    q = np.array([[(r[:, t] ** 2).sum() if t == j else -r[j, t] * r[t, j] for j in range(count)] for t in range(count)])
    p = np.full(count, 1 / count)
    for _ in range(100):
        qp = q @ p
        total = p @ qp
        if np.abs(qp - total).max() < 0.005 / count:
            break
        for t in range(count):
            diff = (total - qp[t]) / q[t, t]
            p[t] += diff
            total = (total + diff * (diff * q[t, t] + 2 * qp[t])) / (1 + diff) ** 2
            qp = (qp + diff * q[t]) / (1 + diff)
            p = p / (1 + diff)
    return p
