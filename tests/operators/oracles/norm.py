"""Normalisations, dropout and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle


def _channels(values: Any, rank: int) -> Any:
    return values.reshape((1, -1) + (1,) * (rank - 2))


@oracle(
    "BatchNormalization",
    sentence="Y = (X - input_mean) / sqrt(input_var + epsilon) * scale + B, when training_mode (is_test before 7) says inference",
)
def batch_normalization(case: Case, x: list[Any]) -> Any:
    data, scale, bias, mean, variance = x
    rank = data.ndim
    deviation = np.sqrt(_channels(variance, rank) + case.attributes.get("epsilon", np.float32(1e-5)))
    return (data - _channels(mean, rank)) / deviation * _channels(scale, rank) + _channels(bias, rank)


@oracle(
    "GroupNormalization",
    sentence="y = scale * (x - mean) / sqrt(variance + epsilon) + bias, mean and variance per instance per group of channels",
)
def group_normalization(case: Case, x: list[Any]) -> Any:
    data, scale, bias = x
    groups = case.attributes["num_groups"]
    flat = data.reshape(data.shape[0], groups, -1)
    centred = flat - flat.mean(2, keepdims=True)
    flat = centred / np.sqrt((centred**2).mean(2, keepdims=True) + case.attributes.get("epsilon", np.float32(1e-5)))
    if case.version == 18:
        return (flat * scale[:, None] + bias[:, None]).reshape(data.shape)
    return flat.reshape(data.shape) * _channels(scale, data.ndim) + _channels(bias, data.ndim)


@oracle(
    "LayerNormalization",
    sentence="stash_type: type of Mean and InvStdDev; this also specifies stage one's computation precision",
)
def layer_normalization(case: Case, x: list[Any]) -> Any:
    data, scale, bias = [*x, None][:3]
    axes = tuple(range(case.attributes.get("axis", -1) % data.ndim, data.ndim))
    mean = data.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(
        ((data - mean) ** 2).mean(axes, keepdims=True) + case.attributes.get("epsilon", np.float32(1e-5))
    )
    y = (data - mean) * inverse * scale
    return (y if bias is None else y + bias), mean, inverse


@oracle(
    "LRN",
    sentence="square_sum[n, c] = sum(X[n, i] ^ 2), where max(0, c - floor((size - 1) / 2)) <= i <= min(C - 1, c + ceil((size - 1) / 2))",
    wrong=always,
)
def lrn(case: Case, x: list[Any]) -> Any:
    data, attributes = x[0], case.attributes
    size, channels = attributes["size"], data.shape[1]
    total = np.zeros_like(data)
    for c in range(channels):
        total[:, c] = (data[:, max(0, c - (size - 1) // 2) : min(channels - 1, c + -(-(size - 1) // 2)) + 1] ** 2).sum(
            1
        )
    alpha, beta = attributes.get("alpha", float(np.float32(1e-4))), attributes.get("beta", 0.75)
    return data / (attributes.get("bias", 1.0) + alpha / size * total) ** beta


@oracle(
    "Dropout",
    sentence="in inference the output is the input; the mask of versions 7 and 10 is not specified there: all False, as in onnxruntime",
    wrong=lambda case: case.version < 12,
)
def dropout(case: Case, x: list[Any]) -> Any:
    return x[0], np.zeros(x[0].shape, bool)


@oracle(
    "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
    sentence="ignore_index: a target value that is ignored and does not contribute to the input gradient, -1 included",
    wrong=lambda case: case.attributes.get("ignore_index") == -1,
)  # fmt: skip
def loss(case: Case, x: list[Any]) -> Any:
    scores, labels, weight = [*x, None][:3]
    logs = scores
    if case.cell.op_type == "SoftmaxCrossEntropyLoss":
        top = scores.max(1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
    kept = labels != case.attributes.get("ignore_index", np.inf)
    safe = np.where(kept, labels, 0)
    weights = np.where(kept, 1.0 if weight is None else weight[safe], 0.0)
    each = -np.take_along_axis(logs, safe[:, None], 1)[:, 0] * weights
    reduction = case.attributes.get("reduction", "mean")
    result = each if reduction == "none" else each.sum() if reduction == "sum" else each.sum() / weights.sum()
    return result, logs
