"""Activation functions that are parts of other operators: sigmoid, SiLU and what RNN, GRU and LSTM take by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    # Of ScaledTanh ONNX says no default; onnxruntime takes 0 for both, of which nothing but 0 comes, and NaN of what is infinite.
    "scaledtanh": (1.0, 1.0, lambda xp, x, a, b: a * xp.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda xp, x, a, b: xp.clip(a * x + b, 0.0, 1.0)),
    "elu": (1.0, None, lambda xp, x, a, b: xp.where(x >= 0, x, a * xp.expm1(xp.minimum(x, xp.zeros_like(x))))),
    "softsign": (None, None, lambda xp, x, a, b: x / (1 + xp.abs(x))),
    "softplus": (None, None, lambda xp, x, a, b: xp.logaddexp(x, xp.zeros_like(x))),
}


def named_activations(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
    directions: int,
) -> list[list[tuple[str, float | None, float | None]]]:
    """The activations of each direction: names in small letters, and the parameters of those that have them.

    The lists of alphas and betas are consumed in order, by those functions that have such a parameter. Names beyond
    those needed are dropped: RNN's default has two whatever the direction. ValueError for too few names or others.
    """
    names = list(names or [*default] * directions)
    needed = len(default) * directions
    if len(names) == len(default):
        names *= directions
    if len(names) < needed:
        raise ValueError(f"{len(names)} activations given, {needed} needed")
    left_alphas, left_betas = iter(alphas or ()), iter(betas or ())
    found = []
    for name in names[:needed]:
        try:
            alpha, beta, _ = _BY_NAME[name.lower()]
        except KeyError:
            raise ValueError(f"{name!r} is not an activation function of recurrent operators") from None
        parameters = ((left_alphas, alpha), (left_betas, beta))
        first, second = (None if known is None else next(left, known) for left, known in parameters)
        found.append((name.lower(), first, second))
    return [found[d * len(default) : (d + 1) * len(default)] for d in range(directions)]


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
    """The functions of ``named_activations``; ``own`` has those to take in place of the usual ones of such a name.

    ``clip`` bounds what f and g are applied to, the sums of the gates; like ONNX Runtime it leaves LSTM's third
    function, of the cell, alone.
    """
    return [
        [_activation(xp, *each, clip if place < 2 else None, own) for place, each in enumerate(chosen)]
        for chosen in named_activations(names, alphas, betas, default, directions)
    ]


def _activation(
    xp: Any,
    name: str,
    alpha: float | None,
    beta: float | None,
    clip: float | None,
    own: Mapping[str, Activation] | None,
) -> Activation:
    if own and (mine := own.get(name)) is not None:
        return (lambda x: mine(xp.clip(x, -clip, clip))) if clip else mine
    _, _, function = _BY_NAME[name]
    if clip:
        return lambda x: function(xp, xp.clip(x, -clip, clip), alpha, beta)
    return lambda x: function(xp, x, alpha, beta)
