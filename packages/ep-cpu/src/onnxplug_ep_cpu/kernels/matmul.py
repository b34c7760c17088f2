"""Matrix products with BLAS, straight into the output."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cpu.kernels.forms import FLOAT, Specs, given, into, scalar


@into("MatMul", 1, 13, dtypes=FLOAT)
def matmul(inputs: Specs, outputs: Specs) -> Into | None:
    """(..., M, K) by (..., K, N); a batch of matrices against one matrix is one large product."""
    a, b = inputs
    if len(a.shape) <= 2 or len(b.shape) != 2:
        return Into(np.matmul)
    rows, depth, columns = math.prod(a.shape[:-1]), a.shape[-1], b.shape[-1]
    return Into(lambda a, b, y: np.matmul(a.reshape(rows, depth), b, y.reshape(rows, columns)))


@into("Gemm", 7, 13, dtypes=FLOAT)
def gemm(
    inputs: Specs, outputs: Specs, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Into | None:
    """alpha A B + beta C, each of A and B transposed if asked; C broadcasts to the result."""
    a = inputs[0]
    factor, share = scalar(alpha, a.dtype), scalar(beta, a.dtype)
    addend = inputs[2] if given(inputs, 2) and beta != 0.0 else None
    shape, dtype = (addend.shape, addend.dtype) if addend is not None else ((), a.dtype)

    def call(*operands: Any) -> None:
        a, b = operands[:2]
        y = operands[len(inputs)]
        np.matmul(a.T if transA else a, b.T if transB else b, y)
        if alpha != 1.0:
            np.multiply(y, factor, y)
        if addend is not None:
            c = operands[2]
            if beta != 1.0:
                c = np.multiply(c, share, np.ndarray(shape, dtype, operands[-1]))
            np.add(y, c, y)

    return Into(call, addend.nbytes if addend is not None and beta != 1.0 else 0)
