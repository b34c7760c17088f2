"""One step of an optimizer on any number of tensors (domain ai.onnx.preview.training): Adagrad, Adam, Momentum."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal, braced

DOMAIN = "ai.onnx.preview.training"
EPSILON = 9.999999974752427e-07


@op("Adagrad", 1, domain=DOMAIN, host_inputs=(0, 1))
def adagrad(
    xp: Any,
    rate: Any,
    count: Any,
    *inputs: Any,
    decay_factor: float = 0.0,
    epsilon: float = EPSILON,
    norm_coefficient: float = 0.0,
) -> tuple[Any, ...]:
    """Takes values, gradients and accumulated squared gradients; gives the new values and squares."""
    step = float(rate.item()) / (1 + int(count.item()) * decay_factor)
    updated = []
    for x, gradient, square in _by_tensor(inputs, 3):
        gradient = norm_coefficient * x + gradient
        square = square + gradient * gradient
        updated.append((x - step * gradient / (xp.sqrt(square) + epsilon), square))
    return _by_kind(updated)


@op("Adam", 1, domain=DOMAIN, host_inputs=(0, 1))
def adam(
    xp: Any,
    rate: Any,
    count: Any,
    *inputs: Any,
    alpha: float = 0.8999999761581421,
    beta: float = 0.9990000128746033,
    epsilon: float = EPSILON,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Any, ...]:
    """Takes values, gradients, their running averages and those of their squares; gives new values and averages."""
    step, t = float(rate.item()), int(count.item())
    if t > 0:
        step *= math.sqrt(1 - beta**t) / (1 - alpha**t)
    updated = []
    for x, gradient, average, square in _by_tensor(inputs, 4):
        gradient = norm_coefficient * x + gradient
        average = alpha * average + (1 - alpha) * gradient
        square = beta * square + (1 - beta) * gradient * gradient
        x = x - step * average / (xp.sqrt(square) + epsilon)
        updated.append(((1 - norm_coefficient_post) * x, average, square))
    return _by_kind(updated)


@op("Momentum", 1, domain=DOMAIN, host_inputs=(0, 1))
def momentum(
    xp: Any,
    rate: Any,
    count: Any,
    *inputs: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Any, ...]:
    """Takes values, gradients and momenta; gives new values and momenta, by the standard or Nesterov's rule."""
    step = float(rate.item())
    share = beta if int(count.item()) > 0 else 1.0
    updated = []
    for x, gradient, velocity in _by_tensor(inputs, 3):
        gradient = norm_coefficient * x + gradient
        velocity = alpha * velocity + share * gradient
        direction = gradient + alpha * velocity if mode == "nesterov" else velocity
        updated.append((x - step * direction, velocity))
    return _by_kind(updated)


def _by_tensor(inputs: Sequence[Any], kinds: int) -> Iterator[tuple[Any, ...]]:
    """(x, g, ...) of each tensor, from inputs listed as all x, all g, ..."""
    tensors = len(inputs) // kinds
    if len(inputs) % kinds:
        raise Refusal(
            f"{len(inputs)} tensors after rate and count are not {kinds} for each of those to be optimized",
            INVALID_ARGUMENT,
        )
    for index, x in enumerate(inputs):
        if tuple(x.shape) != tuple(due := inputs[index % tensors].shape):
            raise Refusal(f"input {index + 2} has shape {braced(x.shape)}, its tensor {braced(due)}", INVALID_ARGUMENT)
    return zip(*(inputs[kind * tensors : (kind + 1) * tensors] for kind in range(kinds)), strict=True)


def _by_kind(updated: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(value for kind in zip(*updated, strict=True) for value in kind)
