"""Quantized matrix products of domain ``com.microsoft``, and CDist."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.quantize import dynamic_quantize_linear
from onnxplug_kernels.ops.quantized_matmul import matmul_integer
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"


@op("MatMulNBits", 1, domain=MS)
def matmul_nbits(
    xp: Any,
    a: Any,
    b: Any,
    scales: Any,
    zero_points: Any = None,
    g_idx: Any = None,
    bias: Any = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> Any:
    """A (..., K) times the (K, N) weights packed in ``b``, plus bias; ``accuracy_level`` may be exceeded, and is.

    A provider may call ``nbits_weights`` once and multiply by its result.
    """
    if weight_prepacked:
        raise ValueError("weight_prepacked names a layout of one device; only 0 is portable")
    weights = nbits_weights(xp, b, scales, zero_points, g_idx, columns=N, depth=K, block_size=block_size, bits=bits)
    y = xp.matmul(widen(xp, a), xp.matrix_transpose(weights))
    return narrow(xp, y if bias is None else y + widen(xp, bias), a.dtype)


def nbits_weights(
    xp: Any,
    b: Any,
    scales: Any,
    zero_points: Any = None,
    g_idx: Any = None,
    *,
    columns: int,
    depth: int,
    block_size: int,
    bits: int,
) -> Any:
    """(columns, depth) float weights of MatMulNBits: (quantized - zero point) * scale, both one for each block of a
    column.

    Zero points are packed like the weights, each column from a new byte, or floats; by default 2 ** (bits - 1).
    ``g_idx`` gives each row its block where blocks are not runs of rows.
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"bits is {bits}; it must be 2, 4 or 8")
    blocks = -(-depth // block_size)
    quantized = unpacked(xp, xp.reshape(b, (columns, -1)), bits)[:, :depth]
    scale = xp.reshape(widen(xp, scales), (columns, blocks))
    if zero_points is None:
        zero = xp.full((columns, blocks), 1 << (bits - 1), dtype=scale.dtype)
    elif zero_points.dtype == xp.uint8:
        zero = xp.astype(unpacked(xp, xp.reshape(zero_points, (columns, -1)), bits)[:, :blocks], scale.dtype)
    else:
        zero = xp.reshape(widen(xp, zero_points), (columns, blocks))
    block = xp.arange(depth, dtype=xp.int64) // block_size if g_idx is None else xp.astype(g_idx[:depth], xp.int64)
    return (xp.astype(quantized, scale.dtype) - xp.take(zero, block, axis=1)) * xp.take(scale, block, axis=1)


def unpacked(xp: Any, packed: Any, bits: int) -> Any:
    """The ``bits``-wide numbers in bytes, lowest bits first, along the last axis."""
    if bits == 8:
        return packed
    shifts = xp.arange(0, 8, bits, dtype=xp.uint8)
    fields = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return xp.reshape(fields, (*packed.shape[:-1], -1))


@op("MatMulIntegerToFloat", 1, domain=MS)
def matmul_integer_to_float(
    xp: Any,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero_point: Any = None,
    b_zero_point: Any = None,
    bias: Any = None,
) -> Any:
    """MatMulInteger, scaled back to floats, plus bias; B's scale and zero point may be one for each column."""
    product = matmul_integer(xp, a, b, _scalar(xp, a_zero_point), _per_column(xp, b, b_zero_point))
    scale = widen(xp, _scalar(xp, a_scale)) * widen(xp, _per_column(xp, b, b_scale))
    y = xp.astype(product, scale.dtype) * scale
    return narrow(xp, y if bias is None else y + widen(xp, bias), a_scale.dtype)


@op("DynamicQuantizeMatMul", 1, domain=MS)
def dynamic_quantize_matmul(xp: Any, a: Any, b: Any, b_scale: Any, b_zero_point: Any = None, bias: Any = None) -> Any:
    """MatMulIntegerToFloat of a float A that is first quantized as by DynamicQuantizeLinear."""
    quantized, scale, zero_point = dynamic_quantize_linear(xp, a)
    return matmul_integer_to_float(xp, quantized, b, scale, b_scale, zero_point, b_zero_point, bias)


@op("QGemm", 1, domain=MS)
def qgemm(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    c: Any = None,
    y_scale: Any = None,
    y_zero_point: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha A B + C on quantized matrices: float32 without ``y_scale``, otherwise quantized, halves to even.

    C is int32 with the scale of the product, alpha * a_scale * b_scale.
    """
    a, b = (a.T if transA else a), (b.T if transB else b)
    total = matmul_integer(xp, a, b, _scalar(xp, a_zero_point), _per_column(xp, b, b_zero_point))
    if c is not None:
        total = total + c
    scale = alpha * _scalar(xp, a_scale) * _per_column(xp, b, b_scale)
    if y_scale is None or y_zero_point is None:
        return xp.astype(total, xp.float32) * scale
    limits = xp.iinfo(y_zero_point.dtype)
    y = xp.round(xp.astype(total, xp.float32) * (scale / _scalar(xp, y_scale)))
    y = y + xp.astype(_scalar(xp, y_zero_point), xp.float32)
    return xp.astype(xp.clip(y, float(limits.min), float(limits.max)), y_zero_point.dtype)


@op("MatMulInteger16", 1, domain=MS)
def matmul_integer16(xp: Any, a: Any, b: Any) -> Any:
    """The 32-bit product of 16-bit matrices, unsigned where A is."""
    wide = xp.uint32 if a.dtype == xp.uint16 else xp.int32
    return xp.matmul(xp.astype(a, wide), xp.astype(b, wide))


@op("CDist", 1, domain=MS)
def cdist(xp: Any, a: Any, b: Any, *, metric: str = "sqeuclidean") -> Any:
    """(M, K) distances between the rows of A (M, N) and B (K, N); onnxruntime's two metrics."""
    if metric not in ("sqeuclidean", "euclidean"):
        raise ValueError(f"metric is {metric!r}; it must be sqeuclidean or euclidean")
    # One row at a time: (M, K, N) differences would not fit, and products of rows cancel where points are close.
    squares = [xp.sum((b - a[i : i + 1, :]) ** 2, axis=1) for i in range(a.shape[0])]
    y = xp.stack(squares) if squares else xp.zeros((0, b.shape[0]), dtype=a.dtype)
    return y if metric == "sqeuclidean" else xp.sqrt(y)


def _scalar(xp: Any, value: Any) -> Any:
    return None if value is None else xp.reshape(value, ())


def _per_column(xp: Any, b: Any, value: Any) -> Any:
    """A scale or zero point of B as a scalar, or as it is if it has one entry for each column."""
    return value if value is None or value.size > 1 else xp.reshape(value, ())
