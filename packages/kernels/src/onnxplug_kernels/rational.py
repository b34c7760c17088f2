"""Sigmoid and tanh as quotients of polynomials, to the bit as onnxruntime computes them in float32.

The coefficients are Eigen's; each step of a polynomial is a multiplication and an addition rounded once. Absolute errors are below
2e-7 (tests of DynamicQuantizeLSTM hold them to that), which is nothing beside the levels of a quantized state; but which of two levels
a state that lies in the middle becomes is decided by just these errors, and a loop over the state amplifies the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.activations import Activation

SIGMOID_P = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
SIGMOID_Q = (
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03, 1.16817656904453e-01,
    9.93151921023180e-01,
)  # fmt: skip
TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
    6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def sigmoid_and_tanh(xp: Any) -> tuple[Activation, Activation]:
    """The two functions, of float32 matrices; flat beyond +-18 and +-9, where they may be above 1 by their last bit."""
    of_sigmoid, of_tanh = _polynomials(xp, SIGMOID_P, SIGMOID_Q), _polynomials(xp, TANH_P, TANH_Q)
    zero, eighteen, nine = (xp.asarray(value, dtype=xp.float32) for value in (0.0, 18.0, 9.0))

    def sigmoid(x: Any) -> Any:
        x = xp.minimum(xp.maximum(x, -eighteen), eighteen)
        y = of_sigmoid(x * x)
        return xp.maximum(y[0, ...] * x / y[1, ...] + 0.5, zero)

    def tanh(x: Any) -> Any:
        x = xp.minimum(xp.maximum(x, -nine), nine)
        y = of_tanh(x * x)
        return y[0, ...] * x / y[1, ...]

    return sigmoid, tanh


def _polynomials(xp: Any, *several: Sequence[float]) -> Activation:
    """Polynomials of a matrix side by side, by Horner's rule in fused steps: float64 holds the product of two float32
    exactly."""
    most = max(map(len, several))
    rows = [[0.0] * (most - len(each)) + [*each] for each in several]
    columns = [xp.asarray([[[row[i]]] for row in rows], dtype=xp.float32) for i in range(most)]
    first, *rest = (xp.astype(column, xp.float64) for column in columns)

    def evaluate(x: Any) -> Any:
        x, y = xp.astype(x, xp.float64), first
        for column in rest:
            y = xp.astype(y * x + column, xp.float32)
        return y

    return evaluate
