"""Elements of fewer than eight bits: onnxplug has a byte for each, onnxruntime puts several into one, the first in the lowest bits."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import numpy_dtype

BITS = {"int4": 4, "uint4": 4, "float4e2m1": 4, "int2": 2, "uint2": 2}


def pack(array: np.ndarray, element: str) -> np.ndarray:
    """The bytes of onnxruntime's tensor."""
    bits = BITS[element]
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    per = 8 // bits
    rows = np.concatenate([flat, np.zeros(-len(flat) % per, np.uint8)]).reshape(-1, per)
    shifted = rows << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(shifted, axis=1, dtype=np.uint8) if len(rows) else np.zeros(1, np.uint8)


def unpack(data: np.ndarray, element: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array of onnxruntime's bytes."""
    bits, dtype = BITS[element], numpy_dtype(element)
    parts = (data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
    flat = parts.reshape(-1)[: int(np.prod(shape, dtype=np.int64))].astype(np.uint8)
    if element in ("int4", "int2"):
        sign = 1 << (bits - 1)
        return ((flat ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype).reshape(shape)
    return (flat.view(dtype) if element == "float4e2m1" else flat.astype(dtype)).reshape(shape)
