"""Element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import oracle

_erf = np.vectorize(math.erf, otypes=[np.float64])


def aligned(case: Case, a: Any, b: Any) -> Any:
    """``b`` with the trailing ones that the attribute axis stands for."""
    axis = case.attributes.get("axis")
    if not case.attributes.get("broadcast") or axis is None or b.shape == ():
        return b
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))


def _truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    exact = [
        abs(i) // abs(j) * (1 if (i < 0) == (j < 0) else -1)
        for i, j in np.broadcast(a.astype(object), b.astype(object))
    ]
    return np.array(exact, object).reshape(a.shape).astype(a.dtype)


@oracle(
    "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less",
    sentence="shape(B) = (3, 4), with axis=1: the second tensor's shape is a contiguous subset of the first's, starting at axis (Add-6)",
)  # fmt: skip
def limited(case: Case, x: list[Any]) -> Any:
    functions: dict[str, Any] = {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power, "And": np.logical_and, "Or": np.logical_or,
        "Xor": np.logical_xor, "Equal": np.equal, "Greater": np.greater, "Less": np.less,
        "Div": np.divide if x[0].dtype.kind == "f" else _truncated_quotient,
    }  # fmt: skip
    return functions[case.cell.op_type](x[0], aligned(case, x[0], x[1]))


@oracle(
    "Clip",
    sentence="Clip operator limits the given input within an interval specified by the inputs min and max (Clip-1)",
)
def clip(case: Case, x: list[Any]) -> Any:
    return np.clip(
        x[0], case.attributes.get("min", -3.4028234663852886e38), case.attributes.get("max", 3.4028234663852886e38)
    )


@oracle(
    "Erf",
    sentence="Computes the error function of the given input tensor element-wise; onnx.reference rounds it to float32 first",
    wrong=lambda case: "int" in case.types["T"],
)
def erf(case: Case, x: list[Any]) -> Any:
    return _erf(x[0].astype(np.float64)).astype(x[0].dtype)


@oracle("HardSwish", sentence="y = x * max(0, min(1, alpha * x + beta)), where alpha = 1/6 and beta = 0.5")
def hard_swish(case: Case, x: list[Any]) -> Any:
    return x[0] * np.maximum(0, np.minimum(1, x[0] / 6 + 0.5))


@oracle("Mish", sentence="mish(x) = x * tanh(ln(1 + e^x))")
def mish(case: Case, x: list[Any]) -> Any:
    return x[0] * np.tanh(np.logaddexp(0, x[0]))


@oracle(
    "Gelu",
    sentence="GELU(x) = 0.5 * x * (1 + erf(x / sqrt(2))), or 0.5 * x * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))",
)
def gelu(case: Case, x: list[Any]) -> Any:
    v = x[0]
    if case.attributes.get("approximate", "none") == "tanh":
        return 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    return 0.5 * v * np.vectorize(lambda u: math.erfc(-u / math.sqrt(2)), otypes=[np.float64])(v)


@oracle(
    "PRelu",
    sentence="If slope is of size 1, the value is shared across different channels (PRelu-1); one slope per channel otherwise",
)
def prelu(case: Case, x: list[Any]) -> Any:
    slope = x[1]
    if slope.size != 1 and x[0].ndim > 2 and case.version < 7:
        slope = slope.reshape((-1,) + (1,) * (x[0].ndim - 2))
    return np.where(x[0] < 0, slope * x[0], x[0])


@oracle("Softsign", sentence="Calculates the softsign (x/(1+|x|)) of the given input tensor element-wise")
def softsign(case: Case, x: list[Any]) -> Any:
    return x[0] / (1 + np.abs(x[0]))
