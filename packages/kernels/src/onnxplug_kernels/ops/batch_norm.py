"""BatchNormalization in its three generations: ``is_test``, counted outputs, ``training_mode``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import EPSILON, MOMENTUM, narrow, widen
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal


@op("BatchNormalization", 1, 6)
def batch_normalization_1(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    var: Any,
    *,
    consumed_inputs: Sequence[int] | None = None,
    epsilon: float = EPSILON,
    is_test: int = 0,
    momentum: float = MOMENTUM,
    spatial: int = 1,
) -> Any:
    """Normalise with the given statistics if ``is_test``, otherwise with the batch's, which are also returned."""
    if is_test:
        return _normalize(xp, x, scale, b, mean, var, epsilon, spatial)
    return _train(xp, x, scale, b, mean, var, epsilon, momentum, spatial)


@op("BatchNormalization", 7, 9)
def batch_normalization_7(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = EPSILON,
    momentum: float = MOMENTUM,
    spatial: int = 1,
    n_outputs: int = 1,
) -> Any:
    """Normalise with the given statistics or, when more than Y is asked for, with the batch's."""
    if n_outputs == 1:
        return _normalize(xp, x, scale, b, mean, var, epsilon, spatial)
    return _train(xp, x, scale, b, mean, var, epsilon, momentum, spatial)[:n_outputs]


@op("BatchNormalization", 14, 15)
def batch_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    mean: Any,
    var: Any,
    *,
    epsilon: float = EPSILON,
    momentum: float = MOMENTUM,
    training_mode: int = 0,
    n_outputs: int = 1,
) -> Any:
    """Normalise (N, C, *spatial) per channel; in training mode also return the running mean and population variance."""
    if not training_mode:
        return _normalize(xp, x, scale, b, mean, var, epsilon, spatial=1)
    return _train(xp, x, scale, b, mean, var, epsilon, momentum, spatial=1)[:n_outputs]


def _normalize(xp: Any, x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: float, spatial: int) -> Any:
    _require_fit(x.shape, spatial, {"scale": scale, "B": b, "mean": mean, "var": var})
    scale, b, mean, var = (_against(xp, widen(xp, p), x.shape, spatial) for p in (scale, b, mean, var))
    # The mean is taken off first: folding it into the bias cancels badly where it is large.
    y = widen(xp, x) - mean
    y *= narrow(xp, scale / xp.sqrt(var + epsilon), y.dtype)
    y += narrow(xp, b, y.dtype)
    return narrow(xp, y, x.dtype)


def _train(
    xp: Any, x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: float, momentum: float, spatial: int
) -> tuple[Any, ...]:
    """(Y, running mean, running variance, batch mean, batch variance)."""
    _require_fit(x.shape, spatial, {"scale": scale, "B": b, "mean": mean, "var": var})
    values = widen(xp, x)
    axes = tuple(a for a in range(x.ndim) if a != 1) if spatial else (0,)
    batch_mean, batch_var = xp.mean(values, axis=axes), xp.var(values, axis=axes)
    y = _normalize(xp, x, scale, b, batch_mean, batch_var, epsilon, spatial)
    running = tuple(
        narrow(xp, widen(xp, old) * momentum + xp.reshape(new, old.shape) * (1 - momentum), old.dtype)
        for old, new in ((mean, batch_mean), (var, batch_var))
    )
    return y, *running, narrow(xp, batch_mean, mean.dtype), narrow(xp, batch_var, var.dtype)


def _require_fit(shape: Sequence[int], spatial: int, operands: Mapping[str, Any]) -> None:
    """Refusal, as onnxruntime's, for a parameter without one element a channel, or a feature where ``spatial`` is 0."""
    channels = shape[1] if len(shape) > 1 else 1
    counts = (channels,) if spatial else (channels, math.prod(shape[1:]))
    for name, values in operands.items():
        if math.prod(values.shape) not in counts:
            raise Refusal(f"Invalid input {name}: 0th dimension != {channels}", INVALID_ARGUMENT)


def _against(xp: Any, values: Any, shape: Sequence[int], spatial: int) -> Any:
    """A parameter per channel, or per feature where ``spatial`` is 0, shaped to broadcast against ``x``."""
    if len(shape) == 1:
        return xp.reshape(values, (1,))
    features = tuple(shape[1:])
    if spatial or math.prod(values.shape) != math.prod(features):
        return xp.reshape(values, (1, shape[1], *(1,) * (len(shape) - 2)))
    return xp.reshape(values, (1, *features))
