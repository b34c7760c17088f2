"""The kit's own structures of ai.onnx's recurrent operators: initial states, other activations, limits and directions, each of which
a kernel may have forgotten while the plain ones are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import GONE, I32, F, Operand, OwnNode, node, real

STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_FUNCTIONS = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Softsign", "Tanh"]}
_OTHERS = {"RNN": ["Sigmoid"], "GRU": ["Sigmoid", "Relu"], "LSTM": ["Sigmoid", "Softsign", "Softsign"]}
_SLOPED = {"RNN": ["LeakyRelu"], "GRU": ["HardSigmoid", "LeakyRelu"], "LSTM": ["HardSigmoid", "ScaledTanh", "Affine"]}
_ALPHA = {"RNN": [0.3], "GRU": [0.3, 0.4], "LSTM": [0.3, 0.8, 0.6]}
_BETA = {"RNN": [], "GRU": [0.4], "LSTM": [0.4, 0.7, 0.2]}


def recurrent_nodes() -> Iterator[OwnNode]:
    """Structures of RNN, GRU and LSTM."""
    for op_type in _GATES:
        results = [F] * (3 if op_type == "LSTM" else 2)

        def made(
            label: str, directions: int = 1, op_type: str = op_type, results: list[str] = results, **more: Any
        ) -> OwnNode:
            whole = _operands(op_type, directions)
            return node(op_type, 7, whole, results, label=label, hidden_size=HIDDEN, **more)

        yield made("states")
        full = _operands(op_type, 1)
        yield node(op_type, 7, [*full[:4], GONE, *full[5:]], results, label="full_length", hidden_size=HIDDEN)
        yield made("clipped", clip=0.25)
        yield made("functions", activations=_FUNCTIONS[op_type])
        yield made("backwards", direction="reverse")
        yield made("both", 2, direction="bidirectional", activations=[*_FUNCTIONS[op_type], *_OTHERS[op_type]])
        sloped: dict[str, Any] = {"activations": _SLOPED[op_type], "activation_alpha": _ALPHA[op_type]}
        if _BETA[op_type]:
            sloped["activation_beta"] = _BETA[op_type]
        yield made("sloped", **sloped)
        if op_type == "GRU":
            yield made("reset_first", linear_before_reset=1)
        if op_type == "LSTM":
            yield made("coupled", input_forget=1)


def _operands(op_type: str, directions: int) -> list[Operand]:
    gates = _GATES[op_type]

    def small(*shape: int) -> Operand:
        return real(*shape, low=-0.9, high=0.9)

    found = [
        small(STEPS, BATCH, WIDTH),
        small(directions, gates * HIDDEN, WIDTH),
        small(directions, gates * HIDDEN, HIDDEN),
        small(directions, 2 * gates * HIDDEN),
        (np.array([4, 2, 3], np.int32), I32),
        small(directions, BATCH, HIDDEN),
    ]
    if op_type == "LSTM":
        found += [small(directions, BATCH, HIDDEN), small(directions, 3 * HIDDEN)]
    return found
