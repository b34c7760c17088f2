"""Attention with grouped key and value heads, and rotary embedding, in domain ``com.microsoft``."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import attention, rotary_embedding, split_heads
from onnxplug_kernels.ops.contrib_attention import merged
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced, require_range, require_total

MS = "com.microsoft"


@op("RotaryEmbedding", 1, domain=MS)
def rotary_embedding_(
    xp: Any,
    x: Any,
    position_ids: Any,
    cos_cache: Any,
    sin_cache: Any,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Any:
    """RotaryEmbedding-23; ``position_ids`` may be (1,), the place of the first element. ``scale`` has no effect, as in
    onnxruntime.
    """
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    if position_ids.ndim == 1:
        position_ids = xp.broadcast_to(
            (position_ids + xp.arange(length, dtype=position_ids.dtype))[None, :], (x.shape[0], length)
        )
    return rotary_embedding(
        xp,
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved,
        num_heads=num_heads or x.shape[-1] // (2 * cos_cache.shape[-1]),
        rotary_embedding_dim=rotary_embedding_dim,
    )


@op(
    "GroupQueryAttention",
    1,
    domain=MS,
    host_inputs=(5, 6, 16),
    T_CACHE=("float16", "bfloat16", "float", "int8", "uint8"),
)
def group_query_attention(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    seqlens_k: np.ndarray,
    total_sequence_length: np.ndarray,
    cos_cache: Any = None,
    sin_cache: Any = None,
    position_ids: Any = None,
    attention_bias: Any = None,
    head_sink: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    q_norm_weight: Any = None,
    k_norm_weight: Any = None,
    query_seqlens: np.ndarray | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    n_outputs: int = 3,
) -> tuple[Any, ...]:
    """Causal attention over a cache whose sequences may differ in length; outputs: result, present key, present value,
    scores.

    ``seqlens_k`` + 1 is each sequence's length with the new tokens. The first step (as many new tokens as the longest
    total) starts an empty cache, pads sequences on the right and uses only the first of ``position_ids``. With
    ``query_seqlens`` only so many of each sequence's new tokens count, whichever step it is; what comes of the others is unspecified.
    ``head_sink``, or 0 with ``smooth_softmax``, is the score of one more key of which no value comes. The scores are
    those before (``qk_output`` 1) or after softmax (2), zero of keys that a query does not see. The presents are as long as the pasts, or
    longer where they have to be; what lies behind a sequence in them is zero.
    """
    if sliding_window_cache:
        raise ValueError("sliding_window_cache lets a device evict old keys; only whole caches are portable")
    if left := num_heads % kv_num_heads:
        raise Refusal(
            f"num_heads must be a multiple of kv_num_heads. Got num_heads % kv_num_heads == {left}", INVALID_ARGUMENT
        )
    q, k, v = heads_of(xp, query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = q.shape
    held = 0 if past_key is None else past_key.shape[2]
    total = require_total(total_sequence_length, None if query_seqlens is not None else length, held)
    lengths = np.asarray(seqlens_k).reshape(-1).astype(np.int64) + 1
    if query_seqlens is None:
        room = total if past_key is None else max(total, past_key.shape[2])
        require_range(xp, lengths - 1, room, f"seqlens_k[{{at}}] = {{value}} is out of range [0, {room})")
    counts = _counts(query_seqlens, lengths, length, total, past_key, causal)
    first = length == total and query_seqlens is None
    starts = np.zeros_like(lengths) if first else lengths - counts
    if q_norm_weight is not None and k_norm_weight is not None:
        pairs = ((q, q_norm_weight, q_norm_epsilon), (k, k_norm_weight, k_norm_epsilon))
        q, k = (_normed(xp, x, w, qk_norm_epsilon if epsilon is None else epsilon) for x, w, epsilon in pairs)
    if do_rotary and tuple(cos_cache.shape) != tuple(sin_cache.shape):
        shapes = f"Got cos_cache shape {braced(cos_cache.shape)} and sin_cache shape {braced(sin_cache.shape)}."
        raise Refusal(f"cos_cache and sin_cache must have the same shape. {shapes}", INVALID_ARGUMENT)
    if do_rotary and cos_cache.shape[-1]:
        rows = starts[:, None] + np.arange(length)
        if query_seqlens is not None:
            rows = np.minimum(rows, lengths[:, None] - 1)  # those that do not count have a place that the caches know
        places = _places(xp, position_ids, rows, first)
        rotate = partial(rotary_embedding, interleaved=rotary_interleaved, rotary_embedding_dim=2 * cos_cache.shape[-1])
        q, k = (rotate(xp, x, cos_cache, sin_cache, places) for x in (q, k))
    k_store, v_store = (
        None if kind.upper() == "NONE" else _Quantized(xp, scale_, kv_cache_bit_width, past)
        for kind, scale_, past in ((k_quant_type, k_scale, past_key), (v_quant_type, v_scale, past_value))
    )
    k, v = (x if store is None else store.write(x) for x, store in ((k, k_store), (v, v_store)))
    k, v = (present_of(xp, past, x, starts, total, counts) for past, x in ((past_key, k), (past_value, v)))

    bias = visible = _visible(xp, starts, lengths, length, total, causal, local_window_size)
    if attention_bias is not None:
        bias = bias + widen(xp, attention_bias)[..., :total]
    keys, values = k[:, :, :total, :], v[:, :, :total, :]
    keys, values = (x if store is None else store.read(x) for x, store in ((keys, k_store), (values, v_store)))
    if head_sink is not None or smooth_softmax == 1:
        sink = xp.zeros((1,), dtype=bias.dtype) if head_sink is None else widen(xp, head_sink)
        keys, values, bias = _with_sink(xp, keys, values, bias, sink, (batch, num_heads, length))
    y, _, _, scores = attention(
        xp,
        q,
        keys,
        values,
        bias,
        scale=scale or 1 / math.sqrt(size),
        softcap=softcap,
        qk_matmul_output_mode=3 if qk_output == 2 else 2,
        n_outputs=4,
    )
    scores = scores[..., :total]
    if qk_output != 2:
        scores = xp.where(xp.isinf(visible), xp.zeros((), dtype=scores.dtype), scores)
    return (merged(xp, y), k, v, scores)[:n_outputs]


def _places(xp: Any, given: Any, rows: np.ndarray, first: bool) -> Any:
    """The place of each new token (batch, length): ``given``, of which the ``first`` step uses the first only, or ``rows``."""
    if given is None:
        return xp.asarray(rows)
    if not first:
        return given
    places = xp.arange(rows.shape[1], dtype=given.dtype) + given[0, 0]
    return xp.broadcast_to(places[None, :], rows.shape)


class _Quantized:
    """A cache of 8-bit numbers, int8 or float8, or of pairs of 4-bit integers offset by 8, low half first, in uint8.

    The scale is one number, or one for each (1, heads, 1, size).
    """

    def __init__(self, xp: Any, scale: Any, bits: int, past: Any) -> None:
        self.xp, self.scale, self.bits = xp, scale, bits or 8
        default = xp.uint8 if self.bits == 4 else xp.int8
        self.dtype = default if past is None else past.dtype
        if (self.bits == 4) != (self.dtype == xp.uint8):
            raise Refusal(f"caches of {self.dtype} do not hold numbers of {self.bits} bits", FAIL)

    def write(self, x: Any) -> Any:
        xp, values = self.xp, widen(self.xp, x) / self.scale
        if "float8" in str(self.dtype):
            return xp.astype(xp.clip(values, -448.0, 448.0), self.dtype)
        if self.bits == 8:
            return xp.astype(xp.clip(xp.round(values), -128, 127), self.dtype)
        codes = xp.astype(xp.clip(xp.round(values), -8, 7) + 8, xp.uint8)
        return codes[..., 0::2] | (codes[..., 1::2] << 4)

    def read(self, stored: Any) -> Any:
        xp = self.xp
        if self.bits == 4:
            halves = xp.stack([stored & 15, stored >> 4], axis=-1)
            stored = xp.astype(xp.reshape(halves, (*stored.shape[:-1], -1)), xp.int8) - 8
        return xp.astype(stored, self.scale.dtype) * self.scale


def heads_of(xp: Any, query: Any, key: Any, value: Any, heads: int, kv_heads: int) -> tuple[Any, Any, Any]:
    """Q, K and V as (batch, heads, sequence, size); without a key they lie side by side in the query."""
    if key is not None:
        return split_heads(xp, query, heads), split_heads(xp, key, kv_heads), split_heads(xp, value, kv_heads)
    packed = split_heads(xp, query, heads + 2 * kv_heads)
    return packed[:, :heads, ...], packed[:, heads : heads + kv_heads, ...], packed[:, heads + kv_heads :, ...]


def _normed(xp: Any, x: Any, weight: Any, epsilon: float) -> Any:
    values = widen(xp, x)
    root = xp.sqrt(xp.mean(values * values, axis=-1, keepdims=True) + epsilon)
    return narrow(xp, values / root * widen(xp, weight), x.dtype)


def _counts(
    given: np.ndarray | None, lengths: np.ndarray, length: int, total: int, past: Any, causal: int
) -> np.ndarray:
    """How many of the new tokens of each sequence count."""
    if given is None:
        return np.full_like(lengths, length)
    counts = np.asarray(given).reshape(-1).astype(np.int64)
    if past is None or not causal:
        raise ValueError("query_seqlens is for causal attention with past_key and past_value")
    if counts.shape != lengths.shape or (lengths < 1).any() or (lengths > total).any():
        raise ValueError(
            f"query_seqlens {counts.tolist()} goes with {lengths.size} sequences of 1 to {total} tokens, not {lengths.tolist()}"
        )
    if (counts < 0).any() or (counts > np.minimum(length, lengths)).any() or (lengths - counts > past.shape[2]).any():
        raise ValueError(
            f"query_seqlens {counts.tolist()} does not go with {length} new tokens, a cache of {past.shape[2]} and sequences of "
            f"{lengths.tolist()}"
        )
    return counts


def present_of(xp: Any, past: Any, new: Any, starts: np.ndarray, total: int, counts: np.ndarray | None = None) -> Any:
    """The cache with each sequence's new keys or values, the first ``counts`` of them, behind its ``starts`` old ones."""
    batch, heads, length, size = new.shape
    room = max(total, 0 if past is None else past.shape[2])
    present = xp.zeros((batch, heads, room, size), dtype=new.dtype)
    for b, start in enumerate(starts.tolist()):
        if past is not None and start:
            present[b, :, :start, :] = past[b, :, :start, :]
        count = length if counts is None else int(counts[b])
        present[b, :, start : start + count, :] = new[b, :, :count, :]
    return present


def _visible(
    xp: Any, starts: np.ndarray, lengths: np.ndarray, queries: int, keys: int, causal: int, window: int
) -> Any:
    """(batch, 1, queries, keys) of 0 for the keys a query may see, -inf for others."""
    key = np.arange(keys)
    place = (starts[:, None] + np.arange(queries))[:, None, :, None]
    if causal:
        seen = key <= place
        if window > 0:
            seen &= key > place - window
    else:
        seen = np.broadcast_to(key < lengths[:, None, None, None], (*place.shape[:3], keys))
    return xp.asarray(np.where(seen, 0.0, -np.inf).astype(np.float32))


def _with_sink(xp: Any, keys: Any, values: Any, bias: Any, sink: Any, shape: tuple[int, int, int]) -> Any:
    """Keys, values and bias with one more key: zero, so that ``sink`` is its score, and of value zero."""
    keys, values = (xp.concat([x, xp.zeros_like(x[:, :, :1, :])], axis=2) for x in (keys, values))
    scores = xp.broadcast_to(bias, (*shape, bias.shape[-1]))
    column = xp.broadcast_to(xp.reshape(sink, (1, -1, 1, 1)), (*shape, 1))
    return keys, values, xp.concat([scores, xp.astype(column, scores.dtype)], axis=-1)
