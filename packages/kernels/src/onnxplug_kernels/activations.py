"""Activation functions that are parts of other operators: sigmoid, SiLU and what RNN, GRU and LSTM take by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Activation = Callable[[Any], Any]


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones_like(e), e) / (1 + e)


def _gate(xp: Any, x: Any) -> Any:
    """Sigmoid by one tanh: exact to the last bits of 1, which is what a gate needs, and faster."""
    return xp.tanh(x * 0.5) * 0.5 + 0.5


# name -> (default alpha, default beta, function of xp, x, alpha, beta); None where there is no such parameter.
_BY_NAME: dict[str, tuple[float | None, float | None, Callable[..., Any]]] = {
    "relu": (None, None, lambda xp, x, a, b: xp.maximum(x, xp.zeros_like(x))),
    "tanh": (None, None, lambda xp, x, a, b: xp.tanh(x)),
    "sigmoid": (None, None, lambda xp, x, a, b: _gate(xp, x)),
    "affine": (1.0, 0.0, lambda xp, x, a, b: a * x + b),
    "leakyrelu": (0.01, None, lambda xp, x, a, b: xp.where(x >= 0, x, a * x)),
    "thresholdedrelu": (1.0, None, lambda xp, x, a, b: xp.where(x >= a, x, xp.zeros_like(x))),
    "scaledtanh": (1.0, 1.0, lambda xp, x, a, b: a * xp.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda xp, x, a, b: xp.clip(a * x + b, 0.0, 1.0)),
    "elu": (1.0, None, lambda xp, x, a, b: xp.where(x >= 0, x, a * xp.expm1(xp.minimum(x, xp.zeros_like(x))))),
    "softsign": (None, None, lambda xp, x, a, b: x / (1 + xp.abs(x))),
    "softplus": (None, None, lambda xp, x, a, b: xp.logaddexp(x, xp.zeros_like(x))),
}


def recurrent_activations(
    xp: Any,
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
    directions: int,
    clip: float | None,
    own: Mapping[str, Activation] | None = None,
) -> list[list[Activation]]:
    """The activations of each direction; ``own`` has those to take in place of the usual ones of such a name.

    The lists of alphas and betas are consumed in order, by those functions that have such a parameter. ``clip`` bounds
    what f and g are applied to, the sums of the gates; like ONNX Runtime it leaves LSTM's third function, of the cell,
    alone. Names beyond those needed are dropped: RNN's default has two whatever the direction.
    """
    names = list(names or [*default] * directions)
    needed = len(default) * directions
    if len(names) == len(default):
        names *= directions
    if len(names) < needed:
        raise ValueError(f"{len(names)} activations given, {needed} needed")
    left_alphas, left_betas = iter(alphas or ()), iter(betas or ())
    functions = [
        _activation(xp, name, left_alphas, left_betas, clip if place % len(default) < 2 else None, own)
        for place, name in enumerate(names[:needed])
    ]
    return [functions[d * len(default) : (d + 1) * len(default)] for d in range(directions)]


def _activation(
    xp: Any,
    name: str,
    alphas: Iterator[float],
    betas: Iterator[float],
    clip: float | None,
    own: Mapping[str, Activation] | None,
) -> Activation:
    try:
        default_alpha, default_beta, function = _BY_NAME[name.lower()]
    except KeyError:
        raise ValueError(f"{name!r} is not an activation function of recurrent operators") from None
    alpha = None if default_alpha is None else next(alphas, default_alpha)
    beta = None if default_beta is None else next(betas, default_beta)
    if own and (mine := own.get(name.lower())) is not None:
        return (lambda x: mine(xp.clip(x, -clip, clip))) if clip else mine
    if clip:
        return lambda x: function(xp, xp.clip(x, -clip, clip), alpha, beta)
    return lambda x: function(xp, x, alpha, beta)
