"""RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case, Draw, strategy

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
OTHERS = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "HardSigmoid",
    "Softsign",
    "Softplus",
    "Elu",
    "LeakyRelu",
    "ScaledTanh",
    "Affine",
    "ThresholdedRelu",
)


@strategy("RNN", "GRU", "LSTM")
def recurrent(d: Draw) -> Case:
    steps, batch, width, hidden = d.integer(1, 4), d.integer(1, 3), d.integer(1, 3), d.integer(1, 3)
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    gates = GATES[d.op_type]
    layout = d.pick(0, 1) if d.version >= 14 else 0
    swap = (1, 0, 2) if layout else (0, 1, 2)
    shapes = [(ways, gates * hidden, width), (ways, gates * hidden, hidden)]
    x = d.tensor((steps, batch, width)).transpose(swap)
    weights = [d.tensor(shape, None, -1, 1) for shape in shapes]
    bias = d.optional(lambda: d.tensor((ways, 2 * gates * hidden), None, -1, 1))
    lengths = d.rng.integers(1, steps + 1, batch).astype(np.int32) if d.flag() else None
    states = [
        d.optional(lambda: d.tensor((ways, batch, hidden)).transpose(swap))
        for _ in range(2 if d.op_type == "LSTM" else 1)
    ]
    inputs: list[Any] = [np.ascontiguousarray(x), *weights, bias, lengths]
    inputs += [None if state is None else np.ascontiguousarray(state) for state in states]
    if d.op_type == "LSTM" and d.flag():
        inputs.append(d.tensor((ways, 3 * hidden)))
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or d.flag():
        attributes["direction"] = direction
    if layout or (d.version >= 14 and d.flag()):
        attributes["layout"] = layout
    if d.flag():
        attributes["activations"] = [d.pick(*OTHERS) for _ in range(len(FUNCTIONS[d.op_type]) * ways)]
        inputs = [
            v if v is None or v.dtype == np.int32 else v / v.dtype.type(4) for v in inputs
        ]  # unbounded gates grow
    if d.flag():
        attributes["clip"] = 1.5
    if d.op_type == "GRU" and d.version >= 3 and d.flag():
        attributes["linear_before_reset"] = 1
    if d.op_type == "LSTM" and d.flag():
        attributes["input_forget"] = 1
    asked = [True] * (3 if d.op_type == "LSTM" else 2)
    if "output_sequence" in d.schema.attributes:
        attributes["output_sequence"] = 1
    elif d.flag():
        asked[0] = False
    return Case(inputs, attributes, asked)
