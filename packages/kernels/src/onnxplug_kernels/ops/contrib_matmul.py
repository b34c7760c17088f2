"""Quantized matrix products of domain ``com.microsoft``, and CDist."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.quantize import dynamic_quantize_linear
from onnxplug_kernels.ops.quantized_matmul import matmul_integer
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal

MS = "com.microsoft"


@op("MatMulNBits", 1, domain=MS, host_inputs=(4,))
def matmul_nbits(
    xp: Any,
    a: Any,
    b: Any,
    scales: Any,
    zero_points: Any = None,
    g_idx: np.ndarray | None = None,
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
    zero_points: Any,
    g_idx: np.ndarray | None = None,
    *,
    columns: int,
    depth: int,
    block_size: int,
    bits: int,
) -> Any:
    """(columns, depth) float weights of MatMulNBits: (quantized - zero point) * scale, both one for each block of a
    column.

    Zero points are packed like the weights, each column from a new byte, or floats; by default 2 ** (bits - 1).
    ``g_idx``, on the host, gives each row its block where blocks are not runs of rows.
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"bits is {bits}; it must be 2, 4 or 8")
    blocks = -(-depth // block_size)
    quantized = unpacked(xp, xp.reshape(b, (columns, -1)), bits)[:, :depth]
    scale = xp.reshape(widen(xp, scales), (columns, blocks))
    if zero_points is None:
        zero = xp.full((columns, blocks), 1 << (bits - 1), dtype=scale.dtype)
    elif zero_points.dtype == xp.uint8:
        packed = xp.reshape(zero_points, (columns, -(-blocks * bits // 8)))
        zero = xp.astype(unpacked(xp, packed, bits)[:, :blocks], scale.dtype)
    else:
        zero = xp.reshape(widen(xp, zero_points), (columns, blocks))
    block = (
        xp.arange(depth, dtype=xp.int64) // block_size if g_idx is None else xp.asarray(_blocks(g_idx[:depth], blocks))
    )
    return (xp.astype(quantized, scale.dtype) - xp.take(zero, block, axis=1)) * xp.take(scale, block, axis=1)


def _blocks(g_idx: np.ndarray, blocks: int) -> np.ndarray:
    """Each row's block as int64. Refusal for one that is none: a negative number does not count from the end."""
    block = g_idx.astype(np.int64)
    odd = np.flatnonzero((block < 0) | (block >= blocks))
    if len(odd):
        raise Refusal(
            f"group_index value at index {odd[0]} is {block[odd[0]]}, which is out of valid range [0, {blocks})",
            INVALID_ARGUMENT,
        )
    return block


def unpacked(xp: Any, packed: Any, bits: int) -> Any:
    """The ``bits``-wide numbers in bytes, lowest bits first, along the last axis."""
    if bits == 8:
        return packed
    shifts = xp.arange(0, 8, bits, dtype=xp.uint8)
    fields = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return xp.reshape(fields, (*packed.shape[:-1], packed.shape[-1] * 8 // bits))


@op("MatMulFpQ4", 1, domain=MS, host_inputs=(2,), portable=False, T1=("float",))
def matmul_fp_q4(xp: Any, a: Any, b: Any, b_shape: Any, *, blk_quant_type: int = 1) -> Any:
    """A (..., K) times weights of ``b_shape`` (K, N), whose columns are blocks of 32 numbers: a float that is their scale, with
    ``blk_quant_type`` 1 a byte that is their zero point (otherwise 8), then the low halves of 16 bytes, then the high ones."""
    depth, columns = (int(n) for n in b_shape)
    if blk_quant_type not in (0, 1):
        raise ValueError(f"blk_quant_type is {blk_quant_type}; onnxruntime has 0 and 1")
    head, blocks = 4 + blk_quant_type, -(-depth // 32)
    if b.shape != (columns * blocks * (head + 16),):
        raise ValueError(f"Quantized and packed blob size differ from expected: {b.shape}")
    fields = b.reshape(columns, blocks, head + 16)
    scales = xp.ascontiguousarray(fields[..., :4]).view(xp.float32)
    zero = fields[..., 4:5].astype(xp.float32) if blk_quant_type else 8
    halves = xp.concatenate([fields[..., head:] & 15, fields[..., head:] >> 4], axis=-1).astype(xp.float32)
    weights = ((halves - zero) * scales).reshape(columns, -1)[:, :depth]
    return xp.matmul(a, weights.T)


FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""What the lower three bits of a 4-bit float say; the highest is the sign."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The 16 numbers of NormalFloat (Dettmers et al., QLoRA, 2023)."""


@op("MatMulBnb4", 1, domain=MS)
def matmul_bnb4(
    xp: Any,
    a: Any,
    b: Any,
    absmax: Any,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Any:
    """A (..., K) times the transposed (N, K) weights packed in ``b`` by bitsandbytes; with ``transB`` 0 A is (..., N) and they are not
    transposed."""
    weights = bnb4_weights(xp, b, absmax, columns=N, depth=K, block_size=block_size, quant_type=quant_type)
    return narrow(xp, xp.matmul(widen(xp, a), xp.matrix_transpose(weights) if transB else weights), a.dtype)


def bnb4_weights(xp: Any, b: Any, absmax: Any, *, columns: int, depth: int, block_size: int, quant_type: int) -> Any:
    """(columns, depth) float weights of MatMulBnb4: FP4 (``quant_type`` 0) or NF4 (1) numbers, two in a byte, the first in the upper
    bits, times the largest magnitude of each run of ``block_size``."""
    if quant_type not in (0, 1):
        raise ValueError(f"quant_type is {quant_type}; it must be 0 (FP4) or 1 (NF4)")
    scale, count = widen(xp, xp.reshape(absmax, (-1,))), columns * depth
    table = xp.asarray((*FP4, *(-x for x in FP4)) if quant_type == 0 else NF4, dtype=scale.dtype)
    packed = xp.reshape(b, (-1, 1))
    codes = xp.reshape(xp.concat([packed >> 4, packed & 15], axis=1), (-1,))[:count]
    block = xp.arange(count, dtype=xp.int64) // block_size
    return xp.reshape(
        xp.take(table, xp.astype(codes, xp.int64), axis=0) * xp.take(scale, block, axis=0), (columns, depth)
    )


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
    product = matmul_integer(xp, a, b, _scalar(xp, a_zero_point), _per_column(xp, b_zero_point))
    scale = widen(xp, _scalar(xp, a_scale)) * widen(xp, _per_column(xp, b_scale))
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
    total = matmul_integer(xp, a, b, _scalar(xp, a_zero_point), _per_column(xp, b_zero_point))
    if c is not None:
        total = total + c
    scale = alpha * _scalar(xp, a_scale) * _per_column(xp, b_scale)
    if y_scale is None or y_zero_point is None:
        return xp.astype(total, xp.float32) * scale
    limits = xp.iinfo(y_zero_point.dtype)
    y = xp.round(xp.astype(total, xp.float32) * (scale / _scalar(xp, y_scale)))
    y = y + xp.astype(_scalar(xp, y_zero_point), xp.float32)
    return xp.astype(xp.clip(y, float(limits.min), float(limits.max)), y_zero_point.dtype)


@op("MatMulInteger16", 1, domain=MS, T3=("int32",))
def matmul_integer16(xp: Any, a: Any, b: Any) -> Any:
    """The int32 product of 16-bit matrices."""
    return xp.matmul(xp.astype(a, xp.int32), xp.astype(b, xp.int32))


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


def _per_column(xp: Any, value: Any) -> Any:
    """A scale or zero point of B as a scalar, or as it is if it has one entry for each column."""
    return value if value is None or value.size > 1 else xp.reshape(value, ())
