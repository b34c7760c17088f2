"""Rotary embeddings of particular models, in domain ``com.microsoft``: Qwen's of three places for each token, and Gemma's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import rotary_embedding
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import require_range

MS = "com.microsoft"


@op("MRotaryEmbedding", 1, domain=MS)
def m_rotary_embedding(
    xp: Any,
    x: Any,
    position_ids: Any,
    cos_cache: Any,
    sin_cache: Any,
    *,
    mrope_section: Sequence[int],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Any:
    """RotaryEmbedding where a token has a place in time, height and width, (3, batch, length), and each angle is of one of them.

    ``mrope_section`` says how many angles are of which: in runs, or with ``mrope_layout`` 1 in turns, time having what is left. What is
    turned is multiplied by ``scale``, which onnxruntime does here and not in RotaryEmbedding.
    """
    angles = cos_cache.shape[-1]
    if len(mrope_section) != 3 or min(mrope_section) < 0 or sum(mrope_section) != angles:
        raise ValueError(f"mrope_section {list(mrope_section)} does not split {angles} angles in three")
    if mrope_layout not in (0, 1):
        raise ValueError(f"mrope_layout is {mrope_layout}; it must be 0 or 1")
    if position_ids.ndim != 3 or position_ids.shape[0] != 3:
        raise ValueError(f"position_ids has shape {tuple(position_ids.shape)}, expected is (3, batch, length)")
    count = cos_cache.shape[0]
    require_range(xp, position_ids, count, f"position_ids value {{value}} at index {{at}} is out of range [0, {count})")
    stream = np.repeat(np.arange(3), list(mrope_section))
    if mrope_layout:
        stream = np.zeros(angles, np.int64)
        for place in (1, 2):
            stream[place : 3 * mrope_section[place] : 3] = place
    where = xp.reshape(position_ids, (-1,))
    chosen = []
    for cache in (cos_cache, sin_cache):
        each = xp.reshape(xp.take(cache, where, axis=0), (*position_ids.shape, angles))
        of = [xp.asarray(stream == place) for place in range(2)]
        mixed = xp.where(of[0], each[0, ...], xp.where(of[1], each[1, ...], each[2, ...]))
        chosen.append(mixed if scale == 1 else widen(xp, mixed) * scale)
    return rotary_embedding(
        xp,
        x,
        *chosen,
        interleaved=interleaved,
        num_heads=num_heads or x.shape[-1] // (2 * angles),
        rotary_embedding_dim=rotary_embedding_dim,
    )


@op("GemmaRotaryEmbedding", 1, domain=MS)
def gemma_rotary_embedding(xp: Any, angles: Any, q: Any, q_turned: Any, k: Any, k_turned: Any) -> tuple[Any, Any]:
    """q * cos + q_turned * sin, and likewise k: (batch, heads, length, size), angles (batch, length, size)."""
    cos, sin = (xp.expand_dims(widen(xp, narrow(xp, turn(angles), q.dtype)), axis=1) for turn in (xp.cos, xp.sin))
    first, second = (
        narrow(xp, widen(xp, x) * cos + widen(xp, turned) * sin, x.dtype)
        for x, turned in ((q, q_turned), (k, k_turned))
    )
    return first, second
