"""MurmurHash3 of domain ``com.microsoft``: MurmurHash3_x86_32 (A. Appleby, public domain). Strings are NumPy object arrays of ``str``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string

U32 = np.uint32


@op("MurmurHash3", 1, domain="com.microsoft", portable=False)
def murmur_hash(xp: Any, x: np.ndarray, *, positive: int = 1, seed: int = 0) -> np.ndarray:
    """The hash of each element's bytes (strings in UTF-8), shaped like ``x``: uint32, or int32 unless ``positive``."""
    if is_string(x):
        texts = [str(text).encode() for text in x.ravel()]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        width = -(-int(lengths.max(initial=0)) // 4)
        data = b"".join(text.ljust(4 * width, b"\0") for text in texts)
        words = np.frombuffer(data, "<u4").reshape(len(texts), width)
    else:
        words = np.ascontiguousarray(x).reshape(-1, 1).view("<u4")
        lengths = np.full(len(words), x.itemsize)
    hashed = _hashes(words, lengths, seed).reshape(x.shape)
    return hashed if positive else hashed.view(np.int32)


def _hashes(words: np.ndarray, lengths: np.ndarray, seed: int) -> np.ndarray:
    """Of rows of bytes, of which zeros behind ``lengths`` are no part."""
    state = np.full(len(words), seed & 0xFFFFFFFF, U32)
    for at, word in enumerate(words.T):
        mixed = _turned(word * U32(0xCC9E2D51), 15) * U32(0x1B873593)
        whole, part = lengths >= 4 * at + 4, lengths > 4 * at
        after = _turned(state ^ mixed, 13) * U32(5) + U32(0xE6546B64)
        state = np.where(whole, after, np.where(part, state ^ mixed, state))
    state = state ^ lengths.astype(U32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> U32(shift))) * U32(factor)
    return state ^ (state >> U32(16))


def _turned(words: np.ndarray, count: int) -> np.ndarray:
    return (words << U32(count)) | (words >> U32(32 - count))
