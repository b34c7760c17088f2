"""RNN, GRU and LSTM, one sample, direction and step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import oracle

DEFAULT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

# name: (default alpha, default beta, function of x, alpha, beta)
FUNCTIONS: dict[str, tuple[float | None, float | None, Callable[..., Any]]] = {
    "Relu": (None, None, lambda x, a, b: np.maximum(x, 0)),
    "Tanh": (None, None, lambda x, a, b: np.tanh(x)),
    "Sigmoid": (None, None, lambda x, a, b: 1 / (1 + np.exp(-x))),
    "HardSigmoid": (0.2, 0.5, lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1)),
    "Softsign": (None, None, lambda x, a, b: x / (1 + np.abs(x))),
    "Softplus": (None, None, lambda x, a, b: np.log1p(np.exp(x))),
    "Elu": (1.0, None, lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1))),
    "LeakyRelu": (0.01, None, lambda x, a, b: np.where(x >= 0, x, a * x)),
    "ScaledTanh": (1.0, 1.0, lambda x, a, b: a * np.tanh(b * x)),
    "Affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "ThresholdedRelu": (1.0, None, lambda x, a, b: np.where(x >= a, x, 0)),
}


def _functions(case: Case, ways: int) -> Iterator[Callable[[Any], Any]]:
    names = case.attributes.get("activations") or DEFAULT[case.key[1]] * ways
    for name in names:
        alpha, beta, function = FUNCTIONS[name]
        yield lambda x, f=function, a=alpha, b=beta: f(x, a, b)


@oracle(
    "RNN", "GRU", "LSTM",
    sentence="the equations of the operator with sequence_lens, clip (applied to the input of the gates' activations), activations and "
    "input_forget; onnx.reference knows none of these",
)  # fmt: skip
def recurrent(case: Case, x: list[Any]) -> Any:
    kind = case.key[1]
    given = [*x, None, None, None, None, None]
    data, w, r, bias, lengths = given[:5]
    first, cell, peep = (given[5], given[6] if kind == "LSTM" else None, given[7] if kind == "LSTM" else None)
    if case.attributes.get("layout"):
        data, first, cell = (None if v is None else v.transpose(1, 0, 2) for v in (data, first, cell))
    steps, batch, _ = data.shape
    ways, hidden = w.shape[0], r.shape[2]
    y, last, last_cell = (
        np.zeros((steps, ways, batch, hidden)),
        np.zeros((ways, batch, hidden)),
        np.zeros((ways, batch, hidden)),
    )
    functions = list(_functions(case, ways))
    count = len(functions) // ways
    for way in range(ways):
        backward = case.attributes.get("direction") == "reverse" or way == 1
        for n in range(batch):
            length = steps if lengths is None else int(lengths[n])
            state = np.zeros(hidden) if first is None else first[way, n]
            memory = np.zeros(hidden) if cell is None else cell[way, n]
            biases = np.zeros(2 * w.shape[1]) if bias is None else bias[way]
            points = np.zeros(3 * hidden) if peep is None else peep[way]
            for t in reversed(range(length)) if backward else range(length):
                state, memory = _step(
                    case,
                    data[t, n],
                    state,
                    memory,
                    (w[way], r[way], *np.split(biases, 2), points),
                    functions[way * count : (way + 1) * count],
                )
                y[t, way, n] = state
            last[way, n], last_cell[way, n] = state, memory
    if case.attributes.get("layout"):
        y, last, last_cell = y.transpose(2, 0, 1, 3), last.transpose(1, 0, 2), last_cell.transpose(1, 0, 2)
    return (y, last, last_cell) if kind == "LSTM" else (y, last)


def _step(case: Case, x: Any, h: Any, c: Any, weights: tuple[Any, ...], functions: list[Any]) -> tuple[Any, Any]:
    w, r, wb, rb, points = weights
    bound = case.attributes.get("clip", math.inf)

    def clip(v: Any) -> Any:
        return np.minimum(np.maximum(v, -bound), bound)

    if case.key[1] == "RNN":
        return functions[0](clip(w @ x + r @ h + wb + rb)), c
    if case.key[1] == "GRU":
        f, g = functions
        (wz, wr, wh), (rz, rr, rh) = np.split(w @ x + wb, 3), np.split(r, 3)
        bz, br, bh = np.split(rb, 3)
        z, reset = f(clip(wz + rz @ h + bz)), f(clip(wr + rr @ h + br))
        inner = reset * (rh @ h + bh) if case.attributes.get("linear_before_reset") else rh @ (reset * h) + bh
        return (1 - z) * g(clip(wh + inner)) + z * h, c
    f, g, last = functions
    i, o, forget, new = np.split(w @ x + wb + r @ h + rb, 4)
    pi, po, pf = np.split(points, 3)
    i = f(clip(i + pi * c))
    forget = 1 - i if case.attributes.get("input_forget") else f(clip(forget + pf * c))
    c = forget * c + i * g(clip(new))
    return f(clip(o + po * c)) * last(c), c
