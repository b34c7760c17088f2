"""Optimizer steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import oracle

DOMAIN = "ai.onnx.preview.training"


@oracle(
    "Adam",
    domain=DOMAIN,
    sentence="R_adjusted = T > 0 ? R * sqrt(1 - beta^T) / (1 - alpha^T) : R; X_new = X - R_adjusted * V_new / (sqrt(H_new) + epsilon)",
    wrong=lambda case: True,
)
def adam(case: Case, x: list[Any]) -> Any:
    rate, count, *tensors = x
    defaults = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "norm_coefficient": 0.0, "norm_coefficient_post": 0.0}
    alpha, beta, epsilon, norm, post = (case.attributes.get(k, float(np.float32(v))) for k, v in defaults.items())
    t = int(count)
    step = float(rate) * (math.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else 1)
    size = len(tensors) // 4
    new: list[list[Any]] = [[], [], []]
    for value, gradient, average, square in zip(*(tensors[k * size : (k + 1) * size] for k in range(4)), strict=True):
        gradient = norm * value + gradient
        average = alpha * average + (1 - alpha) * gradient
        square = beta * square + (1 - beta) * gradient**2
        moved = value - step * average / (np.sqrt(square) + epsilon)
        for kind, result in zip(new, ((1 - post) * moved, average, square), strict=True):
            kind.append(result)
    return tuple(result for kind in new for result in kind)


@oracle(
    "Gradient",
    domain=DOMAIN,
    sentence="computes the partial derivatives of a specific tensor w.r.t. some other tensors",
    wrong=lambda case: True,
)
def gradient(case: Case, x: list[Any]) -> Any:
    return 2 * x[0] * case.inputs[1].size
