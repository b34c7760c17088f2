"""What the classifiers and regressors of ``ai.onnx.ml`` share: reading rows, post transforms, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def rows(xp: Any, x: Any) -> Any:
    """``x`` as (N, F) floats: one sample may come as (F,), integers become float32, doubles stay."""
    values = x if xp.isdtype(x.dtype, "real floating") else xp.astype(x, xp.float32)
    return xp.reshape(values, (1, -1)) if x.ndim == 1 else values


def logistic(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    tail = xp.exp(-xp.abs(x))
    return xp.where(x < 0, tail, xp.ones_like(tail)) / (1 + tail)


def softmax(xp: Any, x: Any) -> Any:
    """Softmax over the last axis."""
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def softmax_zero(xp: Any, x: Any) -> Any:
    """Softmax over the last axis in which scores of zero (up to 1e-7) keep probability zero."""
    top = xp.max(x, axis=-1, keepdims=True)
    powers = xp.where(xp.abs(x) > 1e-7, xp.exp(x - top), x * xp.exp(-top))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def probit(xp: Any, x: Any) -> Any:
    """The inverse of the normal distribution, by Winitzki's approximation of erf's inverse.

    Both onnxruntime and ONNX's reference use this approximation (relative error 2e-3), so models were made with it.
    """
    y = 2 * xp.astype(x, xp.float64) - 1
    log = xp.log((1 - y) * (1 + y))
    v = 2 / (3.14159 * 0.147) + 0.5 * log
    magnitude = xp.sqrt(xp.sqrt(v * v - log / 0.147) - v)
    return xp.astype(1.41421356 * xp.where(y < 0, -magnitude, magnitude), x.dtype)


TRANSFORMS = {"LOGISTIC": logistic, "SOFTMAX": softmax, "SOFTMAX_ZERO": softmax_zero, "PROBIT": probit}


def post_transform(xp: Any, scores: Any, name: str) -> Any:
    """Apply the transform an operator's ``post_transform`` names to (N, classes) scores.

    One score is left as it is but for PROBIT, as in onnxruntime, by which models are made: softmax would make 1 of it, and exporters
    write a logistic function as a node of its own.
    """
    if name == "NONE":
        return scores
    if name not in TRANSFORMS:
        raise ValueError(f"post_transform is {name!r}; it must be NONE or one of {sorted(TRANSFORMS)}")
    if scores.shape[1] == 1 and name != "PROBIT":
        return scores
    with np.errstate(divide="ignore", invalid="ignore"):
        return TRANSFORMS[name](xp, scores)


def two_columns(xp: Any, score: Any, name: str, *, complement: bool) -> Any:
    """Scores of both classes from the (N,) score of the positive one, transformed.

    The negative class gets 1 - score where scores are probabilities (``complement``), otherwise -score. Logistic
    always acts on (-score, score), softmax not at all, as in onnxruntime: the two were one score.
    """
    if name == "LOGISTIC":
        return xp.stack([logistic(xp, -score), logistic(xp, score)], axis=1)
    both = xp.stack([1 - score if complement else -score, score], axis=1)
    return both if name in ("SOFTMAX", "SOFTMAX_ZERO") else post_transform(xp, both, name)


def labels(xp: Any, index: Any, ints: Sequence[int], strings: Sequence[str]) -> Any:
    """The class labels at ``index`` (N,): int64, or an object array of str."""
    if strings:
        return np.asarray(list(strings), dtype=object)[np.asarray(index)]
    return xp.take(xp.asarray(list(ints), dtype=xp.int64), index)
