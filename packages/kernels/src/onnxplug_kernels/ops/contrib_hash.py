"""MurmurHash3 of domain ``com.microsoft``: MurmurHash3_x86_32 (A. Appleby, public domain). Strings are NumPy object arrays of ``str``."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string

U32 = np.uint32
_FIRST, _SECOND, _THIRD, _FOURTH = map(U32, (0xCC9E2D51, 0x1B873593, 0x85EBCA6B, 0xC2B2AE35))
_FIVE, _ADDED = U32(5), U32(0xE6546B64)
_13, _15, _16, _17, _19 = map(U32, (13, 15, 16, 17, 19))


@op("MurmurHash3", 1, domain="com.microsoft", portable=False)
def murmur_hash(xp: Any, x: np.ndarray, *, positive: int = 1, seed: int = 0) -> np.ndarray:
    """The hash of each element's bytes (strings in UTF-8), shaped like ``x``: uint32, or int32 unless ``positive``."""
    if is_string(x):
        texts = [str(text).encode() for text in x.ravel()]
        lengths: np.ndarray | int = np.fromiter(map(len, texts), np.int64, len(texts))
        width = -(-max(map(len, texts), default=0) // 4)
        data = b"".join(text.ljust(4 * width, b"\0") for text in texts)
        words = np.frombuffer(data, "<u4").reshape(len(texts), width)
    else:
        words = np.ascontiguousarray(x).reshape(-1, 1).view("<u4")
        lengths = x.itemsize
    hashed = _hashes(words, lengths, seed).reshape(x.shape)
    return hashed if positive else hashed.view(np.int32)


def _hashes(words: np.ndarray, lengths: np.ndarray | int, seed: int) -> np.ndarray:
    """Of rows of bytes, of which zeros behind ``lengths`` are no part. One length is that of all rows, which it fills."""
    state = np.full(len(words), seed & 0xFFFFFFFF, U32)
    for at, word in enumerate(words.T):
        mixed = word * _FIRST
        _turn(mixed, _15, _17)
        mixed *= _SECOND
        mixed ^= state
        if isinstance(lengths, int):
            state = mixed
            _mix(state)
            continue
        after = mixed.copy()
        _mix(after)
        state = np.where(lengths >= 4 * at + 4, after, np.where(lengths > 4 * at, mixed, state))
    state ^= U32(lengths) if isinstance(lengths, int) else lengths.astype(U32)
    for shift, factor in ((_16, _THIRD), (_13, _FOURTH)):
        state ^= state >> shift
        state *= factor
    state ^= state >> _16
    return state


def _mix(state: np.ndarray) -> None:
    """What a whole word does to a state that has been combined with it."""
    _turn(state, _13, _19)
    state *= _FIVE
    state += _ADDED


def _turn(words: np.ndarray, left: U32, right: U32) -> None:
    """Rotate words by ``left`` bits, which are 32 with ``right``."""
    high = words >> right
    words <<= left
    words |= high
