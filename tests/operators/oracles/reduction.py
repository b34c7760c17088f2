"""Reductions and softmaxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import oracle


def _axes(case: Case, rank: int) -> tuple[int, ...]:
    given = case.attributes.get("axes") if len(case.inputs) < 2 or case.inputs[1] is None else case.inputs[1]
    if given is None or len(given) == 0:
        return () if case.attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(int(a) % rank for a in given)


@oracle(
    "ReduceLogSum",
    "ReduceLogSumExp",
    sentence="the log sum (exponent) of the input tensor's elements along the provided axes",
)
def log_sum(case: Case, x: list[Any]) -> Any:
    axes, keep = _axes(case, x[0].ndim), bool(case.attributes.get("keepdims", 1))
    value = x[0].astype(np.float64)
    if case.cell.op_type == "ReduceLogSum":
        result = np.log(np.sum(value, axes, keepdims=keep))
    else:
        result = (
            np.logaddexp.reduce(value, axes, keepdims=keep)
            if len(axes) == 1
            else np.log(np.sum(np.exp(value), axes, keepdims=keep))
        )
    return np.asarray(result).astype(x[0].dtype)


@oracle(
    "Softmax", "LogSoftmax", "Hardmax",
    sentence="the input does not need to explicitly be a 2D vector; rather, it will be coerced into one at axis (Softmax-11)",
)  # fmt: skip
def softmax(case: Case, x: list[Any]) -> Any:
    axis = case.attributes.get("axis", 1) % x[0].ndim
    rows = x[0].reshape(int(np.prod(x[0].shape[:axis])), -1)
    shifted = rows - rows.max(1, keepdims=True)
    if case.cell.op_type == "Hardmax":
        result = (np.arange(rows.shape[1]) == rows.argmax(1)[:, None]).astype(np.float64)
    elif case.cell.op_type == "Softmax":
        result = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    else:
        result = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result.reshape(x[0].shape)


@oracle(
    "LpNormalization",
    sentence="Given a matrix, apply Lp-normalization along the provided axis, p 1 or 2",
    wrong=lambda case: case.attributes.get("p") == 1,
)
def lp_normalization(case: Case, x: list[Any]) -> Any:
    axis = case.attributes.get("axis", -1)
    p = case.attributes.get("p", 2)
    norm = (np.abs(x[0]) ** p).sum(axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, x[0] / np.where(norm == 0, 1, norm))


@oracle(
    "MeanVarianceNormalization",
    sentence="Perform mean variance normalization on the input tensor X using formula: (X-EX)/sqrt(E(X-EX)^2)",
)
def mean_variance_normalization(case: Case, x: list[Any]) -> Any:
    axes = tuple(case.attributes.get("axes", (0, 2, 3)))
    centred = x[0] - x[0].mean(axes, keepdims=True)
    return centred / (np.sqrt((centred**2).mean(axes, keepdims=True)) + 1e-9)
