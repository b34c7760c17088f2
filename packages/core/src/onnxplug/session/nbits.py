"""Weights quantized block by block: onnxruntime's native helpers of ``MatMulNBitsQuantizer`` and ``MatMulBnb4Quantizer``.

Results go into the arrays given, bit for bit those of onnxruntime, whose order of operations this is: everything in float32,
but with the scale as it is stored, and halves rounded away from zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BLOCKS = (16, 32, 64, 128, 256)
_QUIET = np.errstate(all="ignore")
"""Weights may be infinite or no numbers: C++ does not warn either."""
_FP4 = np.array([0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333], np.float32)
"""Magnitudes above which the next code is taken."""
_FP4_CODES = np.array([0, 1, 6, 7, 4, 5, 2, 3], np.uint8)
_NF4 = np.array(
    [
        -0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
        -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
        0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011,
    ],
    np.float32,
)  # fmt: skip


def quantize_matmul_2bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool, /
) -> None:
    """As ``quantize_matmul_4bits``, four numbers in a byte."""
    _for_matmul(2, dst, src, scale, zero_points, block_size, n, k, is_symmetric)


def quantize_matmul_4bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool, /
) -> None:
    """Weights (k, n) as MatMulNBits takes them: ``dst`` (n, blocks, bytes of a block), ``scale`` (n, blocks), ``zero_points``
    (n, bytes for blocks), left alone where they are in the middle (``is_symmetric``)."""
    _for_matmul(4, dst, src, scale, zero_points, block_size, n, k, is_symmetric)


def quantize_matmul_8bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool, /
) -> None:
    """As ``quantize_matmul_4bits``, a byte for each number."""
    _for_matmul(8, dst, src, scale, zero_points, block_size, n, k, is_symmetric)


def quantize_qdq_matmul_2bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool, /
) -> bool:
    """As ``quantize_qdq_matmul_4bits``, four numbers in a byte; onnxruntime's writes two, beyond the end of the array."""
    return _for_qdq(2, dst, src, scale, zero_points, block_size, n, k, is_symmetric)


def quantize_qdq_matmul_4bits(
    dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool, /
) -> bool:
    """Weights (k, n) for DequantizeLinear along the first axis: ``dst`` and ``zero_points`` packed in their order, ``scale``
    (blocks, n). Whether the numbers are signed, as they are with ``is_symmetric``."""
    return _for_qdq(4, dst, src, scale, zero_points, block_size, n, k, is_symmetric)


@_QUIET
def quantize_matmul_bnb4(dst: Any, src: Any, absmax: Any, block_size: int, quant_type: int, n: int, k: int, /) -> None:
    """Weights of n * k numbers, in their order, as MatMulBnb4 takes them: FP4 (``quant_type`` 0) or NF4 (1), two in a byte,
    the first above; ``absmax`` gets the largest magnitude of each block."""
    _check_block(block_size)
    if quant_type not in (0, 1):
        raise RuntimeError(f"quant_type must be 0 (FP4) or 1 (NF4), got: {quant_type}")
    count = n * k
    blocks = -(-count // block_size)
    src = _source(src, (count,))
    values = np.zeros((blocks, block_size), np.float32)
    values.reshape(-1)[:count] = src
    largest = np.fmax.reduce(np.abs(values), axis=1, initial=0)
    _target("absmax", absmax, (blocks,), src.dtype)[...] = largest
    values *= _reciprocal(largest)[:, None]
    if quant_type == 0:
        codes = _FP4_CODES[np.searchsorted(_FP4, np.fmax(np.abs(values), np.float32(0)))] + np.where(
            values < 0, np.uint8(8), np.uint8(0)
        )
    else:
        codes = np.searchsorted(_NF4, np.fmax(values, np.float32(-1))).astype(np.uint8)
    taken = -(-count // 2)
    pairs = codes.reshape(-1)[: 2 * taken].reshape(-1, 2)
    _target("dst", dst, (taken,), np.dtype(np.uint8))[...] = (pairs[:, 0] << 4) | pairs[:, 1]


@_QUIET
def _for_matmul(
    bits: int, dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool
) -> None:
    _check_block(block_size)
    each, blocks = 8 // bits, -(-k // block_size)
    src = _source(src, (k, n))
    low, high = _ranges(src, block_size)
    middle = np.float32(1 << (bits - 1))
    scales, zeros = (
        (_scale(low, high, bits), np.full_like(low, middle)) if is_symmetric else _scale_and_zero(low, high, bits)
    )
    kept = scales.astype(src.dtype)
    rows = np.arange(k) // block_size
    numbers = src.astype(np.float32) * _reciprocal(kept.astype(np.float32))[rows]
    numbers = _within(_rounded(numbers + zeros[rows]), 0, bits)
    # What fills up the last byte is what lay there before, in the same group of blocks.
    first = k // (block_size * each) * block_size * each
    missing = np.arange(k, -(-k // each) * each) - each
    fill = np.where((missing >= first)[:, None], numbers[missing.clip(0)], 0)
    data = _packed(np.concatenate([numbers, fill]).T, bits)
    _target("dst", dst, (n, blocks * block_size // each), np.dtype(np.uint8))[:, : data.shape[1]] = data
    _target("scale", scale, (n, blocks), src.dtype)[...] = kept.T
    if not is_symmetric:
        whole = np.pad(zeros, ((0, -blocks % each), (0, 0)), constant_values=middle)
        _target("zero_points", zero_points, (n, -(-blocks // each)), np.dtype(np.uint8))[...] = _packed(whole.T, bits)


@_QUIET
def _for_qdq(
    bits: int, dst: Any, src: Any, scale: Any, zero_points: Any, block_size: int, n: int, k: int, is_symmetric: bool
) -> bool:
    if block_size < 1:
        raise RuntimeError(f"block_size must be at least 1, got: {block_size}")
    each, blocks = 8 // bits, -(-k // block_size)
    src = _source(src, (k, n))
    low, high = _ranges(src, block_size)
    scales, zeros = (_scale(low, high, bits), np.zeros_like(low)) if is_symmetric else _scale_and_zero(low, high, bits)
    kept = scales.astype(src.dtype)
    rows = np.arange(k) // block_size
    numbers = _rounded(src.astype(np.float32) * _reciprocal(kept.astype(np.float32))[rows]) + zeros[rows]
    numbers = _within(numbers, -(1 << (bits - 1)) if is_symmetric else 0, bits)
    _fill(_target("dst", dst, (-(-k * n // each),), np.dtype(np.uint8)), numbers, bits)
    _target("scale", scale, (blocks, n), src.dtype)[...] = kept
    if not is_symmetric:
        _fill(_target("zero_points", zero_points, (-(-blocks * n // each),), np.dtype(np.uint8)), zeros, bits)
    return bool(is_symmetric)


# ---- one block's scale


def _ranges(src: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest number of each block down a column, as (blocks, columns); NaN counts as none."""
    starts = np.arange(0, len(src), block_size)
    low, high = (f.reduceat(src, starts, axis=0).astype(np.float32) for f in (np.fmin, np.fmax))
    # Of zeros the first is the least, whatever its sign.
    return np.where((low == 0) & (high == 0), src[starts].astype(np.float32), low), high


def _scale(low: np.ndarray, high: np.ndarray, bits: int) -> np.ndarray:
    """The scale that maps the end of larger magnitude to the least number, for there is one more below zero than above."""
    scales: np.ndarray = -np.where(np.abs(high) > np.abs(low), high, low) / np.float32(1 << (bits - 1))
    return scales


def _scale_and_zero(low: np.ndarray, high: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scales = (high - low) / np.float32((1 << bits) - 1)
    return scales, _rounded(_within(np.where(scales != 0, 0 - low / scales, low), 0, bits))


def _reciprocal(scale: np.ndarray) -> np.ndarray:
    reciprocal: np.ndarray = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return reciprocal


def _rounded(x: np.ndarray) -> np.ndarray:
    """Whole numbers, halves away from zero."""
    whole = np.trunc(x)
    rounded: np.ndarray = whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(np.float32(1), x), np.float32(0))
    return rounded


def _within(x: np.ndarray, least: int, bits: int) -> np.ndarray:
    """The nearest of the numbers that fit; NaN becomes the least."""
    most = np.float32(least + (1 << bits) - 1)
    near: np.ndarray = np.fmin(np.fmax(x, np.float32(least)), most)
    return near


# ---- bytes


def _packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Rows of whole numbers as rows of bytes, the first in the lowest bits."""
    each = 8 // bits
    codes = numbers.astype(np.int8 if bits < 8 else np.uint8).view(np.uint8) & np.uint8((1 << bits) - 1)
    codes = codes.reshape(len(codes), codes.shape[1] // each, each)
    made: np.ndarray = np.bitwise_or.reduce(codes << (bits * np.arange(each, dtype=np.uint8)), axis=2)
    return made


def _fill(target: np.ndarray, numbers: np.ndarray, bits: int) -> None:
    """Write the bytes of all numbers in their order; what the last byte has beyond them stays."""
    each, flat = 8 // bits, numbers.reshape(-1)
    whole = len(flat) // each
    target[:whole] = _packed(flat[None, : whole * each], bits)[0]
    if rest := len(flat) - whole * each:
        below = (1 << (bits * rest)) - 1
        last = np.zeros((1, each), flat.dtype)
        last[0, :rest] = flat[whole * each :]
        target[whole] = (target[whole] & ~np.uint8(below)) | (_packed(last, bits)[0, 0] & np.uint8(below))


# ---- arguments


def _check_block(block_size: int) -> None:
    if block_size not in _BLOCKS:
        raise RuntimeError(f"Only block sizes 16, 32, 64, 128, 256 are supported for quantization, got: {block_size}")


def _source(src: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The array's first elements in a shape: callers pad matrices with rows, up to whole blocks."""
    array, count = np.asarray(src), math.prod(shape)
    array = array if array.dtype == np.float16 else array.astype(np.float32, copy=False)
    if array.size < count:
        raise ValueError(f"src has shape {array.shape}, {list(shape)} was expected")
    return np.ascontiguousarray(array).reshape(-1)[:count].reshape(shape)


def _target(name: str, target: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array to write to, in the shape that is written. ValueError where it cannot be it."""
    if not isinstance(target, np.ndarray) or target.dtype != dtype:
        raise TypeError(f"incompatible function arguments: {name} must be an array of {dtype}, got {target!r:.80}")
    if target.size != np.prod(shape) or not target.flags.c_contiguous or not target.flags.writeable:
        raise ValueError(f"{name} has shape {target.shape}, a contiguous array of shape {list(shape)} was expected")
    return target.reshape(shape)
