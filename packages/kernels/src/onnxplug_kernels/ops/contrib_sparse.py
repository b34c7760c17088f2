"""Attention to some blocks of keys, in domain ``com.microsoft``: Phi-3-small's (Abdin et al., 2024)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import attention, rotary_embedding
from onnxplug_kernels.ops.contrib_attention import merged
from onnxplug_kernels.ops.contrib_gqa import heads_of, present_of

MS = "com.microsoft"


@op("SparseAttention", 1, domain=MS, host_inputs=(5, 6, 7, 8))
def sparse_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    block_row_indices: np.ndarray,
    block_col_indices: np.ndarray,
    total_sequence_length: np.ndarray,
    key_total_sequence_lengths: np.ndarray,
    cos_cache: Any = None,
    sin_cache: Any = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
) -> tuple[Any, Any, Any]:
    """Causal attention over a cache as GroupQueryAttention's, where a block of ``sparse_block_size`` tokens sees the blocks of keys that
    the head's layout names: rows of ``block_col_indices`` (layouts, blocks), which ``block_row_indices`` cut. Heads take layouts in
    turns."""
    q, k, v = heads_of(xp, query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = q.shape
    total = int(total_sequence_length.reshape(-1)[0])
    lengths = key_total_sequence_lengths.reshape(-1).astype(np.int64)
    if lengths.shape != (batch,) or not length <= total <= past_key.shape[2]:
        raise ValueError(
            f"{length} tokens of {total} for {batch} sequences do not fit lengths {lengths.tolist()} and a cache of {past_key.shape[2]}"
        )
    starts = np.zeros_like(lengths) if length == total else lengths - length
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary is 1, cos_cache and sin_cache are not given")
        places = xp.asarray(starts[:, None] + np.arange(length))
        told = {"interleaved": rotary_interleaved, "rotary_embedding_dim": 2 * cos_cache.shape[-1]}
        q, k = (rotary_embedding(xp, x, cos_cache, sin_cache, places, **told) for x in (q, k))
    k, v = present_of(xp, past_key, k, starts, total), present_of(xp, past_value, v, starts, total)
    place = (starts[:, None] + np.arange(length))[:, None, :, None]
    seen = _blocks(block_row_indices, block_col_indices, num_heads)[
        np.arange(num_heads)[None, :, None, None], place // sparse_block_size, np.arange(total) // sparse_block_size
    ] & (np.arange(total) <= place)
    bias = xp.asarray(np.where(seen, 0.0, -np.inf).astype(np.float32))
    y = attention(xp, q, k[:, :, :total, :], v[:, :, :total, :], bias, scale=scale or 1 / math.sqrt(size))[0]
    return merged(xp, y), k, v


def _blocks(rows: np.ndarray, columns: np.ndarray, heads: int) -> np.ndarray:
    """(heads, blocks, blocks): whether a block of queries sees a block of keys."""
    layouts, blocks = rows.shape[0], rows.shape[1] - 1
    if columns.shape[0] != layouts or heads % layouts:
        raise ValueError(f"{heads} heads do not share layouts of shapes {rows.shape} and {columns.shape} evenly")
    seen = np.zeros((layouts, blocks, blocks), bool)
    for layout in range(layouts):
        for row, (first, last) in enumerate(zip(rows[layout], rows[layout, 1:], strict=False)):
            seen[layout, row, columns[layout, first:last]] = True
    made: np.ndarray = seen[np.arange(heads) % layouts]
    return made
