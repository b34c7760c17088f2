"""MatMul and Gemm by cuBLAS. What is multiplied is worked out from shapes alone (``product``); only the call needs a device.

cuBLAS has its matrices column by column: row-major C = A B is C' = B' A' to it, so that the operands change places.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cuda.blas import gemm_strided_batched_ex

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_INT_LIMIT = 2**31
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77  # cublasComputeType_t
_TYPES = {  # cudaDataType_t
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    np.dtype(ml_dtypes.bfloat16): 14,
}


@dataclass(frozen=True, slots=True)
class Product:
    """The arguments of one call: ``batch`` products of an (m, k) and a (k, n) matrix, as cuBLAS counts them.

    ``left`` and ``right`` say which operand of the node (0 or 1) is cuBLAS's A and B; strides are in elements.
    """

    m: int
    n: int
    k: int
    left: int
    right: int
    left_op: int
    right_op: int
    left_lead: int
    right_lead: int
    left_stride: int
    right_stride: int
    batch: int


def product(a: Sequence[int], b: Sequence[int], *, trans_a: bool = False, trans_b: bool = False) -> Product | None:
    """A call that multiplies dense row-major tensors of these shapes as MatMul does; None where no single one does, or where they do not
    go together.

    With a transposition, the last two axes of that operand are the other way round.
    """
    a = (1, *a) if len(a) == 1 else tuple(a)
    b = (*b, 1) if len(b) == 1 else tuple(b)
    rows, inner = (a[-1], a[-2]) if trans_a else (a[-2], a[-1])
    other, columns = (b[-1], b[-2]) if trans_b else (b[-2], b[-1])
    if inner != other:
        return None
    batch_a, batch_b = math.prod(a[:-2]), math.prod(b[:-2])
    if batch_b == 1 and not trans_a:  # one matrix for all rows: one product
        rows, batch_a = rows * batch_a, 1
    elif a[:-2] != b[:-2] and 1 not in (batch_a, batch_b):
        return None  # batches that are broadcast axis by axis
    return Product(
        m=columns, n=rows, k=inner, left=1, right=0,
        left_op=TRANSPOSED if trans_b else NORMAL,
        right_op=TRANSPOSED if trans_a else NORMAL,
        left_lead=inner if trans_b else columns,
        right_lead=rows if trans_a else inner,
        left_stride=0 if batch_b == 1 else inner * columns,
        right_stride=0 if batch_a == 1 else rows * inner,
        batch=max(batch_a, batch_b),
    )  # fmt: skip


def compute_type(dtype: np.dtype, tf32: bool) -> int | None:
    """In what type cuBLAS adds up products of this type; None for types left to CuPy. 16-bit floats are added in float32."""
    if dtype not in _TYPES:
        return None
    if dtype == np.float64:
        return _COMPUTE_64F
    return _COMPUTE_TF32 if tf32 and dtype == np.float32 else _COMPUTE_32F


def forms(tf32: bool) -> Mapping[tuple[str, str], Callable[..., Into | None]]:
    """The writing forms of these operators."""
    return {
        ("", "MatMul"): functools.partial(matmul, tf32),
        ("", "Gemm"): functools.partial(gemm, tf32),
        ("com.microsoft", "FusedMatMul"): functools.partial(fused_matmul, tf32),
    }


def matmul(tf32: bool, inputs: Any, outputs: Any) -> Into | None:
    """MatMul as one call."""
    call = _call(inputs, outputs[0], product(inputs[0].shape, inputs[1].shape), tf32)
    return None if call is None else Into(call)


def fused_matmul(
    tf32: bool, inputs: Any, outputs: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Into | None:  # fmt: skip
    """MatMul of transposed factors, scaled; without the batch axis moved inward."""
    if transBatchA or transBatchB or min(len(inputs[0].shape), len(inputs[1].shape)) < 2:
        return None
    found = product(inputs[0].shape, inputs[1].shape, trans_a=bool(transA), trans_b=bool(transB))
    call = _call(inputs, outputs[0], found, tf32, alpha)
    return None if call is None else Into(call)


def gemm(
    tf32: bool, inputs: Any, outputs: Any, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
    broadcast: int = 1,
) -> Into | None:  # fmt: skip
    """alpha A B + beta C: C is spread over the output first."""
    with_c = len(inputs) > 2 and inputs[2] is not None and beta != 0.0
    found = product(inputs[0].shape, inputs[1].shape, trans_a=bool(transA), trans_b=bool(transB))
    multiply = _call(inputs, outputs[0], found, tf32, alpha, beta if with_c else 0.0)
    if multiply is None:
        return None

    def call(a: Any, b: Any, *rest: Any) -> None:
        y = rest[-1]
        if with_c:
            y[...] = rest[0]
        multiply(a, b, y)

    return Into(call)


def _call(
    inputs: Any, output: Any, found: Product | None, tf32: bool, alpha: float = 1.0, beta: float = 0.0
) -> Callable[[Any, Any, Any], None] | None:
    dtype = inputs[0].dtype
    if found is None or inputs[1].dtype != dtype or output.dtype != dtype:
        return None
    return multiplication(found, dtype, tf32, alpha, beta)


def multiplication(
    p: Product, dtype: np.dtype, tf32: bool, alpha: float = 1.0, beta: float = 0.0
) -> Callable[[Any, Any, Any], None] | None:
    """y = alpha a b + beta y for dense device arrays a, b, y of one type; None where cuBLAS does not take such."""
    compute = compute_type(dtype, tf32)
    if compute is None or max(p.m, p.n, p.k, p.left_lead, p.right_lead, p.batch) >= _INT_LIMIT:
        return None
    type_ = _TYPES[dtype]
    factors = np.array([alpha, beta], np.float64 if compute == _COMPUTE_64F else np.float32)
    scale_product, scale_sum = factors.ctypes.data, factors.ctypes.data + factors.itemsize

    def call(a: Any, b: Any, y: Any) -> None:
        assert factors is not None  # what the two addresses point into lives as long as this call
        operands = (a, b)
        gemm_strided_batched_ex(
            p.left_op, p.right_op, p.m, p.n, p.k, scale_product,
            operands[p.left].data.ptr, type_, p.left_lead, p.left_stride,
            operands[p.right].data.ptr, type_, p.right_lead, p.right_stride, scale_sum,
            y.data.ptr, type_, p.m, p.m * p.n, p.batch, compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    return call


def factors(xp: Any, a: Any, b: Any) -> tuple[Any, Any, Product] | None:
    """Dense arrays and the call that multiplies them as ``xp.matmul(a, b)`` does; None where there is nothing to multiply. Matrices that
    are views of their transposes stay where they are."""
    if not a.size or not b.size:
        return None
    if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if 1 not in (math.prod(a.shape[:-2]), math.prod(b.shape[:-2])):
            a, b = (xp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    (x, trans_a), (y, trans_b) = _laid_out(xp, a), _laid_out(xp, b)
    found = product(x.shape, y.shape, trans_a=trans_a, trans_b=trans_b)
    return None if found is None else (x, y, found)


def _laid_out(xp: Any, x: Any) -> tuple[Any, bool]:
    """A dense array, and whether its matrices are the transposes of those of ``x``."""
    if x.ndim > 1 and not x.flags.c_contiguous:
        turned = xp.matrix_transpose(x)
        if turned.flags.c_contiguous:
            return turned, True
    return xp.ascontiguousarray(x), False
