"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle
from operators.oracles.quantize import rounded
from operators.values import element_name, is_float, limits


@oracle("Gemm", sentence="Compute Y = alpha * A * B + beta * C; beta scales C with and without broadcast")
def gemm(case: Case, x: list[Any]) -> Any:
    attributes = case.attributes
    a = x[0].T if attributes.get("transA") else x[0]
    b = x[1].T if attributes.get("transB") else x[1]
    return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * x[2]


@oracle(
    "QLinearMatMul",
    sentence="y = saturate((x / y_scale) + y_zero_point), rounding to nearest even; the quotient is rounded, not the sum",
    wrong=always,
)
def qlinear_matmul(case: Case, x: list[Any]) -> Any:
    a, sa, za, b, sb, zb, sy, zy = (np.asarray(v, np.float64) for v in x)
    name = element_name(case.types["T3"])
    y = ((a - za) @ (b - zb)) * (sa * sb / sy)
    if is_float(name):
        return rounded(y + zy, name)
    return np.clip(np.rint(y) + zy, *limits(name))


@oracle(
    "MatMulInteger",
    sentence="zero points are scalars, 1-D for each row of A and column of B, or N-D with the contracted axis of size 1",
)
def matmul_integer(case: Case, x: list[Any]) -> Any:
    a, b, za, zb = [*(None if v is None else v.astype(np.int64) for v in case.inputs), None, None][:4]
    if za is not None:
        a = a - (za[:, None] if za.ndim == 1 else za)
    return a @ (b if zb is None else b - zb)
