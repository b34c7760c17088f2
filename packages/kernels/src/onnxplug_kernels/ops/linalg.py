"""Matrix products and what goes with them: MatMul, Gemm, Einsum, Det, Trilu."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.arithmetic import in_float32, is_integer
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.einsum import einsum
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced, spreads

MANY = 1 << 13
"""Products of integers from which on it pays to look for their limits."""


@op("MatMul", 1, 13)
@in_float32
def matmul(xp: Any, a: Any, b: Any) -> Any:
    """The product of (..., M, K) and (..., K, N) matrices; vectors as in NumPy."""
    if is_integer(a.dtype) and isinstance(a, np.ndarray):
        floats = _exact_floats(a, b)
        if floats is not None:
            return matmul(xp, a.astype(floats), b.astype(floats)).astype(np.int64).astype(a.dtype)
    if a.ndim > 2 and b.ndim == 2:
        # One large product instead of a small one for each matrix of the batch.
        rows = xp.matmul(xp.reshape(a, (-1, a.shape[-1])), b) if a.shape[-1] else xp.matmul(a, b)
        return xp.reshape(rows, (*a.shape[:-1], b.shape[-1]))
    return xp.matmul(a, b)


def _exact_floats(a: np.ndarray, b: np.ndarray) -> type | None:
    """The floats that all sums of a product of integers are exact in, whatever their order: BLAS takes a twentieth of the time that
    NumPy's own loop does. None where there are none such, or too few products to look."""
    if a.ndim < 2 or a.size * b.shape[-1] < MANY or b.size == 0:
        return None
    largest = a.shape[-1]
    for matrix in (a, b):
        largest *= max(abs(int(matrix.min())), abs(int(matrix.max())))
    return np.float32 if largest <= 1 << 24 else np.float64 if largest <= 1 << 53 else None


@op("Gemm", 1, 13)
@in_float32
def gemm(
    xp: Any,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Any:
    """alpha A B + beta C on matrices, each of A and B transposed if asked; C broadcasts to (M, N)."""
    if not a.ndim == b.ndim == 2:
        raise Refusal(f"A {a.shape} and B {b.shape} must be matrices", FAIL)
    rows, columns = a.T if transA else a, b.T if transB else b
    if not broadcast and c is not None and not spreads(c.shape, (rows.shape[0], columns.shape[1])):
        raise Refusal("Gemm: Invalid bias shape for broadcast", INVALID_ARGUMENT)
    if rows.shape[1] != columns.shape[0]:
        text = f"GEMM: Dimension mismatch, W: {braced(b.shape)} K: {rows.shape[1]} N:{columns.shape[1]}"
        raise Refusal(text, INVALID_ARGUMENT)
    y = xp.matmul(rows, columns)
    if is_integer(y.dtype) and (alpha, beta) != (1.0, 1.0):
        scaled = alpha * xp.astype(y, xp.float64)
        return xp.astype(scaled if c is None else scaled + beta * xp.astype(c, xp.float64), y.dtype)
    if alpha != 1.0:
        y *= alpha
    if c is not None and beta != 0.0:
        y += c if beta == 1.0 else beta * c
    return y


@op("Einsum", 12, 28)
@in_float32
def einsum_(xp: Any, *inputs: Any, equation: str) -> Any:
    """The sum of products that the equation states."""
    return einsum(xp, equation, inputs)


@op("Det", 11, 22)
@in_float32
def det(xp: Any, x: Any) -> Any:
    """The determinants of (..., M, M) matrices."""
    return xp.linalg.det(x)


@op("Trilu", 14, host_inputs=(1,))
def trilu(xp: Any, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    """The upper or lower triangles of matrices, bounded by the k-th diagonal; zero, or empty strings, elsewhere."""
    if x.ndim < 2:
        raise ValueError(f"Trilu takes matrices, got shape {tuple(x.shape)}")
    reach = x.shape[-2] + x.shape[-1]  # no diagonal lies beyond, and array libraries take no number of any size
    if k is not None and tuple(k.shape) not in ((), (1,)):
        raise Refusal("k should be a 1-D or 0-D tensor.", FAIL)
    diagonal = 0 if k is None else min(max(int(k.item()), -reach), reach)
    if x.dtype == object:
        mask = xp.ones(x.shape[-2:], dtype=xp.bool)
        return xp.where(xp.triu(mask, k=diagonal) if upper else xp.tril(mask, k=diagonal), x, "")
    return xp.triu(x, k=diagonal) if upper else xp.tril(x, k=diagonal)
