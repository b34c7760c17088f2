"""GatherPacked and MatMulPacked of domain ``com.microsoft``: weights in the blocks of GGUF files, under ggml's numbers for them.

Those whose blocks hold numbers are written out; the others (IQ2, IQ3) index codebooks, which ggml's own package has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import numpy_dtype
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"
_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
"""The 16 numbers of IQ4."""
Numbers = Callable[[np.ndarray], Any]
"""Blocks (n, bytes) -> their numbers (n, size) in float32."""


def _half(blocks: np.ndarray, start: int) -> Any:
    """(n, 1) floats of two bytes each."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: np.ndarray) -> Any:
    """All low halves of the last axis, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _q4_0(blocks: np.ndarray) -> Any:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q5_0(blocks: np.ndarray) -> Any:
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    return _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | (high << 4)).astype(np.float32) - 16)


def _q8_0(blocks: np.ndarray) -> Any:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _iq4_nl(blocks: np.ndarray) -> Any:
    return _half(blocks, 0) * _LEVELS[_nibbles(blocks[:, 2:])]


def _q5_k(blocks: np.ndarray) -> Any:
    """Eight runs of 32, each with a scale and a least number of six bits."""
    fields, count = blocks[:, 4:16], len(blocks)
    low, mid, high = fields[:, :4], fields[:, 4:8], fields[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    least = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1)
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    quarters = _nibbles(blocks[:, 48:].reshape(count, 4, 32)).reshape(count, 8, 32)
    numbers = (quarters | (fifth << 4)).astype(np.float32)
    steps, floors = _half(blocks, 0) * scales, _half(blocks, 2) * least
    return (steps[:, :, None] * numbers - floors[:, :, None]).reshape(count, 256)


def _q6_k(blocks: np.ndarray) -> Any:
    """Sixteen runs of 16, each with a scale of a byte."""
    count = len(blocks)
    low = _nibbles(blocks[:, :128].reshape(count, 2, 64)).reshape(count, 2, 4, 32)
    high = (blocks[:, 128:192].reshape(count, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    numbers = (low | (high << 4)).astype(np.float32).reshape(count, 16, 16) - 32
    scales = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return (scales[:, :, None] * numbers).reshape(count, 256)


def _iq4_xs(blocks: np.ndarray) -> Any:
    """Eight runs of 32, each with a scale of six bits."""
    count = len(blocks)
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(count, 8)
    high = np.ascontiguousarray(blocks[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = _half(blocks, 0) * ((low | (high << 4)).astype(np.float32) - 32)
    levels = _LEVELS[_nibbles(blocks[:, 8:].reshape(count, 8, 16))]
    return (scales[:, :, None] * levels).reshape(count, 256)


def _bfloat16(blocks: np.ndarray) -> Any:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _indexing(name: str) -> Numbers:
    """Blocks that index a codebook."""

    def numbers(blocks: np.ndarray) -> Any:
        try:
            from gguf import GGMLQuantizationType, dequantize
        except ImportError as error:
            raise ImportError(f"weights in ggml's {name} need gguf; install onnxplug-kernels[gguf]") from error
        return dequantize(blocks, GGMLQuantizationType[name])

    return numbers


_FORMATS: dict[int, tuple[int, int, Numbers]] = {
    2: (32, 18, _q4_0),
    6: (32, 22, _q5_0),
    8: (32, 34, _q8_0),
    13: (256, 176, _q5_k),
    14: (256, 210, _q6_k),
    16: (256, 66, _indexing("IQ2_XXS")),
    17: (256, 74, _indexing("IQ2_XS")),
    18: (256, 98, _indexing("IQ3_XXS")),
    20: (32, 18, _iq4_nl),
    22: (256, 82, _indexing("IQ2_S")),
    23: (256, 136, _iq4_xs),
    30: (1, 2, _bfloat16),
}
"""ggml's number of a format -> how many numbers a block has, how many bytes, and what they say."""


def packed_rows(rows: np.ndarray, packed_type: int, depth: int) -> Any:
    """(n, depth) float32 of rows (n, bytes) in one of ggml's formats. ValueError for another format or another number of bytes."""
    found = _FORMATS.get(packed_type)
    if found is None:
        raise ValueError(f"packed_type is {packed_type}; it is one of {', '.join(map(str, _FORMATS))}")
    size, width, numbers = found
    if depth < 1 or depth % size or rows.shape[1] != depth // size * width:
        raise ValueError(f"rows of {rows.shape[1]} bytes are not {depth} numbers in blocks of {size} in {width} bytes")
    return numbers(np.ascontiguousarray(rows).reshape(-1, width)).reshape(len(rows), depth)


@op("GatherPacked", 1, domain=MS, portable=False)
def gather_packed(xp: Any, data: Any, indices: Any, *, K: int, packed_type: int, output_dtype: int = 16) -> Any:
    """Rows of a packed table (vocabulary, bytes), (*indices, K) in ``output_dtype``; the first row for indices it does not have."""
    index = np.where((indices < 0) | (indices >= data.shape[0]), 0, indices)
    wanted, places = np.unique(index, return_inverse=True)
    rows = packed_rows(data[wanted], packed_type, K).astype(numpy_dtype(output_dtype))
    return rows[places.reshape(index.shape)]


@op("MatMulPacked", 1, domain=MS, portable=False, T1=("float16", "bfloat16"), Tscale=())
def matmul_packed(
    xp: Any,
    a: Any,
    b: Any,
    global_scale: Any = None,
    *,
    K: int,
    N: int,
    packed_type: int,
    activation_type: str = "none",
) -> Any:
    """A (..., K) times the transpose of packed weights (N, bytes), which are rounded to A's type; then the activation, rounded again."""
    if global_scale is not None:
        raise ValueError("global_scale is for NVFP4, whose blocks are not known here")
    if activation_type not in ("none", "relu2", "relu_squared", "silu"):
        raise ValueError(f"activation_type is {activation_type!r}; it must be none, relu2 or silu")
    if b.shape[0] != N:
        raise ValueError(f"B has {b.shape[0]} rows, N is {N}")
    weights = widen(xp, packed_rows(b, packed_type, K).astype(a.dtype))
    y = narrow(xp, widen(xp, a) @ weights.T, a.dtype)
    if activation_type == "none":
        return y
    wide = widen(xp, y)
    made = wide * sigmoid(xp, wide) if activation_type == "silu" else np.maximum(wide, 0) ** 2
    return narrow(xp, made, a.dtype)
