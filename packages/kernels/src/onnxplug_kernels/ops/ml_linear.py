"""Linear models and support vector machines of ``ai.onnx.ml``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.ml_scores import labels, logistic, post_transform, rows, two_columns
from onnxplug_kernels.refusals import FAIL, Refusal

ML = "ai.onnx.ml"


@op("LinearClassifier", 1, domain=ML, portable=False)
def linear_classifier(
    xp: Any,
    x: Any,
    *,
    coefficients: Sequence[float],
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    intercepts: Sequence[float] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Any, Any]:
    """Label (N,) and scores (N, classes) of X @ coefficients.T + intercepts.

    A single score with two labels is the score of the second one; the first gets 1 - score, as in onnxruntime.
    ``multi_class`` has no part in the scores.
    """
    count = len(intercepts) or max(len(classlabels_ints), len(classlabels_strings), 1)
    scores = xp.astype(_affine(xp, _samples(xp, x), coefficients, intercepts, count), xp.float32)
    if count > 1:
        chosen = labels(xp, xp.argmax(scores, axis=1), classlabels_ints, classlabels_strings)
        return chosen, _transformed(xp, scores, post_transform)
    score = scores[:, 0]
    names, words = classlabels_ints, classlabels_strings
    both = len(names) == 2 or len(words) == 2
    if not both:
        names, words = ((), ("0", "1")) if words else ((0, 1), ())
    chosen = labels(xp, xp.astype(score > 0, xp.int64), names, words)
    if both:
        return chosen, two_columns(xp, score, post_transform, complement=True)
    return chosen, _transformed(xp, scores, post_transform)


@op("LinearRegressor", 1, domain=ML)
def linear_regressor(
    xp: Any,
    x: Any,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Any:
    """(N, targets) of X @ coefficients.T + intercepts."""
    return _transformed(xp, _affine(xp, _samples(xp, x), coefficients, intercepts, targets), post_transform)


@op("SVMRegressor", 1, domain=ML)
def svm_regressor(
    xp: Any,
    x: Any,
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Any:
    """(N, 1): the kernel of each sample with each support vector, weighted, plus rho; its sign for a one-class machine.

    Without support vectors the coefficients are those of a linear model. ``post_transform`` has no part in the scores, as in
    onnxruntime.
    """
    x = _samples(xp, x, FAIL)
    if n_supports > 0:
        vectors = xp.reshape(xp.asarray(support_vectors, dtype=x.dtype), (n_supports, -1))
        weights = xp.reshape(xp.asarray(coefficients[:n_supports], dtype=x.dtype), (n_supports, 1))
        scores = xp.matmul(_kernel(xp, x, vectors, kernel_type, kernel_params), weights) + rho[0]
    else:
        scores = _affine(xp, x, coefficients, rho[:1], 1)
    if one_class:
        scores = xp.where(scores > 0, xp.ones_like(scores), -xp.ones_like(scores))
    return xp.astype(scores, xp.float32)


@op("SVMClassifier", 1, domain=ML, portable=False)
def svm_classifier(
    xp: Any,
    x: Any,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> tuple[Any, Any]:
    """Label (N,) and scores of one-against-one machines (libsvm), or of one linear model a class (liblinear).

    With support vectors the label is the class with most votes, the first of equals; scores are probabilities (N,
    classes) if ``prob_a`` is given, otherwise the machines' outputs: (N, pairs), and (-s, s) for two classes.
    """
    x = _samples(xp, x, FAIL)
    count = max(len(classlabels_ints), len(classlabels_strings))
    total = sum(vectors_per_class)
    if not total:
        scores = xp.astype(_affine(xp, x, coefficients, list(rho[:1]) * count, count), xp.float32)
        if count == 1:
            words = ("0", "1") if classlabels_strings else ()
            return labels(xp, xp.astype(scores[:, 0] > 0, xp.int64), (0, 1), words), _transformed(
                xp, scores, post_transform
            )
        chosen = labels(xp, xp.argmax(scores, axis=1), classlabels_ints, classlabels_strings)
        return chosen, _transformed(xp, scores, post_transform)

    vectors = xp.reshape(xp.asarray(support_vectors, dtype=x.dtype), (total, -1))
    used = coefficients[: (count - 1) * total]
    weights = xp.reshape(xp.asarray(used, dtype=x.dtype), (count - 1, total))
    decisions = _decisions(xp, _kernel(xp, x, vectors, kernel_type, kernel_params), weights, rho, vectors_per_class)
    chosen = labels(xp, xp.argmax(_votes(xp, decisions, count), axis=1), classlabels_ints, classlabels_strings)
    if prob_a:
        slopes, offsets = (xp.asarray(p, dtype=decisions.dtype) for p in (prob_a, prob_b))
        scores = _coupled(xp, 1 - logistic(xp, decisions * slopes + offsets), count)
    elif count == 2:
        scores = two_columns(xp, decisions[:, 0], post_transform, complement=post_transform != "NONE")
        return chosen, xp.astype(scores, xp.float32)
    else:
        scores = decisions
    return chosen, _transformed(xp, scores, post_transform)


def _samples(xp: Any, x: Any, status: str | None = None) -> Any:
    """``rows`` of one sample or a matrix of them. Refusal for other ranks."""
    if x.ndim not in (1, 2):
        raise Refusal(f"Input shape must have 1 or 2 dimensions. Dims={x.ndim}", status)
    return rows(xp, x)


def _transformed(xp: Any, scores: Any, name: str) -> Any:
    return post_transform(xp, xp.astype(scores, xp.float32), name)


def _affine(xp: Any, x: Any, coefficients: Sequence[float], intercepts: Sequence[float], count: int) -> Any:
    used = count * x.shape[1]  # published models hold more: onnxruntime's own example does
    if len(coefficients) < used:
        raise Refusal(f"{len(coefficients)} coefficients are too few for {count} targets of {x.shape[1]} features")
    weights = xp.reshape(xp.asarray(coefficients[:used], dtype=x.dtype), (count, x.shape[1]))
    y = xp.matmul(x, xp.matrix_transpose(weights))
    return y + xp.asarray(intercepts, dtype=x.dtype) if intercepts else y


_AT_ONCE = 1 << 19
"""Differences of samples and support vectors held at one time."""


def _kernel(xp: Any, x: Any, vectors: Any, kind: str, params: Sequence[float]) -> Any:
    """(N, vectors) kernel values; ``params`` are gamma, coef0 and degree."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    if x.shape[1] != vectors.shape[1]:
        raise Refusal(f"samples have {x.shape[1]} features, support vectors {vectors.shape[1]}", FAIL)
    if kind == "RBF":
        # The difference is squared as it is: |x|^2 - 2 x.v + |v|^2 cancels where samples lie close to a vector.
        rows = max(1, min(x.shape[0], _AT_ONCE // max(1, vectors.shape[0] * vectors.shape[1])))
        squares = [
            xp.sum((x[i : min(i + rows, x.shape[0]), None, :] - vectors[None, :, :]) ** 2, axis=2)
            for i in range(0, max(1, x.shape[0]), rows)
        ]
        return xp.exp(-gamma * xp.concat(squares, axis=0))
    products = xp.matmul(x, xp.matrix_transpose(vectors))
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (gamma * products + coef0) ** degree
    if kind == "SIGMOID":
        return xp.tanh(gamma * products + coef0)
    raise ValueError(f"kernel_type is {kind!r}; it must be LINEAR, POLY, RBF or SIGMOID")


def _decisions(xp: Any, kernel: Any, weights: Any, rho: Sequence[float], per_class: Sequence[int]) -> Any:
    """(N, pairs): the machine of each pair i < j of classes, positive for i.

    Row j-1 of ``weights`` weighs the vectors of class i against class j, row i those of class j against class i.
    """
    starts = [sum(per_class[:i]) for i in range(len(per_class))]
    parts = [slice(s, s + n) for s, n in zip(starts, per_class, strict=True)]
    pairs = _pairs(len(per_class))
    sums = [
        xp.matmul(kernel[:, parts[i]], weights[j - 1, parts[i]])
        + xp.matmul(kernel[:, parts[j]], weights[i, parts[j]])
        + rho[k]
        for k, (i, j) in enumerate(pairs)
    ]
    return xp.stack(sums, axis=1)


def _votes(xp: Any, decisions: Any, count: int) -> Any:
    votes = [xp.zeros(decisions.shape[0], dtype=xp.int64) for _ in range(count)]
    for k, (i, j) in enumerate(_pairs(count)):
        won = xp.astype(decisions[:, k] > 0, xp.int64)
        votes[i], votes[j] = votes[i] + won, votes[j] + (1 - won)
    return xp.stack(votes, axis=1)


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _coupled(xp: Any, pairwise: Any, count: int) -> Any:
    """Class probabilities (N, classes) from the probabilities of pairs (Wu, Lin, Weng 2004, second method; libsvm).

    Rows that have converged (largest error below 0.005 / classes) are left as they are while the others go on.
    """
    pairwise = xp.clip(pairwise, 1e-7, 1 - 1e-7)
    dtype, n = pairwise.dtype, pairwise.shape[0]
    r = xp.zeros((n, count, count), dtype=dtype)
    for k, (i, j) in enumerate(_pairs(count)):
        r[:, i, j], r[:, j, i] = pairwise[:, k], 1 - pairwise[:, k]
    q = -xp.matrix_transpose(r) * r
    squares = xp.sum(r * r, axis=1)
    for i in range(count):
        q[:, i, i] = squares[:, i]

    p = xp.full((n, count), 1 / count, dtype=dtype)
    for _ in range(100):
        qp = xp.matmul(q, p[:, :, None])[:, :, 0]
        pqp = xp.sum(p * qp, axis=1)
        active = xp.max(xp.abs(qp - pqp[:, None]), axis=1) >= 0.005 / count
        if not bool(xp.any(active)):
            break
        before = xp.asarray(p, copy=True)
        for i in range(count):
            diff = (pqp - qp[:, i]) / q[:, i, i]
            p[:, i] += diff
            pqp = (pqp + diff * (diff * q[:, i, i] + 2 * qp[:, i])) / (1 + diff) ** 2
            qp = (qp + diff[:, None] * q[:, i, :]) / (1 + diff)[:, None]
            p = p / (1 + diff)[:, None]
        p = xp.where(active[:, None], p, before)
    return p
