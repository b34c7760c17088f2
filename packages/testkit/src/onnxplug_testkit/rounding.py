"""How far float32 arithmetic may take the results of the kit's random graphs from exact ones: running error analysis (Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 3.3). Differences of large values are why no fixed tolerance will do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

UNIT = 2.0**-24
FUNCTION = 16 * UNIT
"""Relative error that is granted to a function of one operand."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smaller results may be flushed to zero."""

_EXACT: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: np.maximum(x, 0), "Abs": np.abs, "Neg": np.negative, "Identity": np.positive,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh}
"""Their slope is nowhere above 1."""
_SUMS: dict[str, Callable[..., Any]] = {"Add": np.add, "Sub": np.subtract}


def bounds(made: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """For each output of a graph of ``models.dag`` the largest error of its elements; not finite where float32 overflows."""
    values = {name: (np.asarray(array, np.float64), np.zeros(array.shape)) for name, array in feeds.items()}
    with np.errstate(all="ignore"):
        for node in made.graph.node:
            operands = [values[name] for name in node.input]
            values[node.output[0]] = _step(node.op_type, *operands)
    return [values[output.name][1] for output in made.graph.output]


def _step(op_type: str, first: Any, second: Any = None) -> tuple[np.ndarray, np.ndarray]:
    x, error = first
    if op_type in _EXACT:
        return _EXACT[op_type](x), error
    if op_type in _FUNCTIONS:
        y = _FUNCTIONS[op_type](x)
        return y, error + FUNCTION * np.abs(y) + SMALLEST
    z, other = second
    if op_type in _SUMS:
        y, carried = _SUMS[op_type](x, z), error + other
    else:
        y, carried = x * z, np.abs(x) * other + np.abs(z) * error + error * other
    large = np.abs(y) + carried > float(np.finfo(np.float32).max)
    return y, np.where(large, np.inf, carried + UNIT * (np.abs(y) + carried) + SMALLEST)
