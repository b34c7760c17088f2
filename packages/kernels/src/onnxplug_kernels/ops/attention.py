"""Scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import dtype_in
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced, require_range


@op("Attention", 23, 25)
def attention(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    n_outputs: int = 1,
) -> Any:
    """softmax(Q K' scale + bias) V per head, with grouped key and value heads, caches, causal and sliding-window masks.

    Inputs are (batch, heads, sequence, size), or (batch, sequence, heads * size) with the numbers of heads as
    attributes. Returns (Y, present key, present value, scores of ``qk_matmul_output_mode``), as many as are asked for.
    """
    packed, dtype = q.ndim == 3, q.dtype
    if packed:
        if not (q_num_heads and kv_num_heads):
            raise ValueError("Attention on 3-D inputs has no q_num_heads and kv_num_heads")
        q = split_heads(xp, q, q_num_heads)
        k, v = split_heads(xp, k, kv_num_heads), split_heads(xp, v, kv_num_heads)
    if past_key is not None:
        k, v = xp.concat([past_key, k], axis=2), xp.concat([past_value, v], axis=2)
    elif n_outputs > 1:
        k, v = xp.asarray(k, copy=True), xp.asarray(v, copy=True)
    if q.shape[1] % k.shape[1]:
        raise Refusal(
            "q_num_heads must be a multiple of kv_num_heads. This is required for grouped/multi-query and multi-headed attention.",
            FAIL,
        )

    raw = _scores(xp, q, k, 1 / math.sqrt(q.shape[3]) if scale is None else scale)
    capped = softcap * xp.tanh(raw / softcap) if softcap > 0 else raw
    if past_key is not None:
        offset: Any = past_key.shape[2]
    else:
        offset = 0 if nonpad_kv_seqlen is None else nonpad_kv_seqlen - q.shape[2]
    left, right = left_window_size, 0 if is_causal else right_window_size
    allowed = _allowed(xp, q.shape[2], k.shape[2], offset, left, right, nonpad_kv_seqlen)
    bias = _bias(xp, attn_mask, allowed, k.shape[2], raw.dtype)
    biased = capped if bias is None else capped + bias
    weights = _softmax(xp, biased, bias, softmax_precision)

    y = _weighted(xp, weights, v)
    if packed:
        y = xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], y.shape[1] * y.shape[3]))
    outputs = [narrow(xp, y, dtype), k, v]
    if n_outputs > 3:
        outputs.append(narrow(xp, (raw, capped, biased, weights)[qk_matmul_output_mode], dtype))
    return tuple(outputs[:n_outputs])


def split_heads(xp: Any, x: Any, heads: int) -> Any:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    batch, length, width = x.shape
    if width % heads:
        raise ValueError(f"a width of {width} does not divide into {heads} heads")
    return xp.permute_dims(xp.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _scores(xp: Any, q: Any, k: Any, scale: float) -> Any:
    """Q K' scale. Query heads that share a key head are one taller matrix."""
    batch, heads, length, size = q.shape
    tall = xp.reshape(widen(xp, q) * scale, (batch, k.shape[1], heads // k.shape[1] * length, size))
    return xp.reshape(xp.matmul(tall, xp.matrix_transpose(widen(xp, k))), (batch, heads, length, k.shape[2]))


def _weighted(xp: Any, weights: Any, v: Any) -> Any:
    batch, heads, length, total = weights.shape
    tall = xp.reshape(weights, (batch, v.shape[1], heads // v.shape[1] * length, total))
    return xp.reshape(xp.matmul(tall, widen(xp, v)), (batch, heads, length, v.shape[3]))


def _allowed(xp: Any, queries: int, keys: int, offset: Any, left: int, right: int, nonpad_kv_seqlen: Any) -> Any:
    """Which key each query may see, broadcastable to (batch, heads, queries, keys); None where it may see all.

    ``offset`` keys come before the first query; it is an integer or one per batch. Windows of -1 are unbounded.
    """
    key = xp.arange(keys, dtype=xp.int64)
    allowed = None
    if left >= 0 or right >= 0:
        place = xp.reshape(xp.arange(queries, dtype=xp.int64), (queries, 1))
        place = place + (offset if isinstance(offset, int) else xp.reshape(offset, (-1, 1, 1, 1)))
        if left >= 0:
            allowed = key >= place - left
        if right >= 0:
            before = key <= place + right
            allowed = before if allowed is None else allowed & before
    if nonpad_kv_seqlen is not None:
        present = key < xp.reshape(nonpad_kv_seqlen, (-1, 1, 1, 1))
        allowed = present if allowed is None else allowed & present
    return allowed


def _bias(xp: Any, mask: Any, allowed: Any, keys: int, dtype: Any) -> Any:
    """What is added to the scores: the mask, and minus infinity where a key is not to be seen; None for nothing."""
    if mask is not None:
        seen = mask.dtype == xp.bool
        if mask.shape[-1] < keys:
            missing = (*mask.shape[:-1], keys - mask.shape[-1])
            filler = xp.zeros(missing, dtype=mask.dtype) if seen else xp.full(missing, -math.inf, dtype=mask.dtype)
            mask = xp.concat([mask, filler], axis=-1)
        if seen:
            allowed = mask if allowed is None else allowed & mask
            mask = None
        else:
            mask = narrow(xp, mask, dtype)
    if allowed is None:
        return mask
    zero, never = xp.zeros((), dtype=dtype), xp.full((), -math.inf, dtype=dtype)
    return xp.where(allowed, zero if mask is None else mask, never)


def _softmax(xp: Any, scores: Any, bias: Any, precision: int | None) -> Any:
    """Softmax over the keys; a query that may see no key at all gets zeros. In the type of ``scores``."""
    if scores.shape[-1] == 0:
        return scores
    dtype = scores.dtype
    rounded = None if precision is None else dtype_in(xp, precision)
    if rounded is not None:
        scores = widen(xp, narrow(xp, scores, rounded))
    peak = xp.max(scores, axis=-1, keepdims=True)
    blind = None
    if bias is not None:
        peak = xp.where(peak == -math.inf, xp.zeros_like(peak), peak)
        blind = xp.max(bias, axis=-1, keepdims=True) == -math.inf
    weights = xp.exp(scores - peak)
    total = xp.sum(weights, axis=-1, keepdims=True)
    if blind is not None:
        weights = xp.where(blind, xp.zeros_like(total), weights)
        total = xp.where(blind, xp.ones_like(total), total)
    weights /= total
    return narrow(xp, weights if rounded is None else narrow(xp, weights, rounded), dtype)


@op("RotaryEmbedding", 23)
def rotary_embedding(
    xp: Any,
    x: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Rotate pairs of the first ``rotary_embedding_dim`` elements of each head by the angle of their position."""
    packed = x.ndim == 3
    if packed and not num_heads:
        raise ValueError("RotaryEmbedding on a 3-D input has no num_heads")
    heads = split_heads(xp, x, num_heads) if packed else x
    width = rotary_embedding_dim or heads.shape[3]
    if position_ids is not None:
        count = cos_cache.shape[0]
        if tuple(position_ids.shape) != (heads.shape[0], heads.shape[2]):
            raise Refusal(
                f"Input 'position_ids' has shape {braced(position_ids.shape)}, expected is (batch_size, sequence_length)"
            )
        require_range(
            xp, position_ids, count, f"position_ids value {{value}} at index {{at}} is out of range [0, {count})"
        )
        where = xp.reshape(position_ids, (-1,))
        shape = (*position_ids.shape, cos_cache.shape[-1])
        cos_cache = xp.reshape(xp.take(cos_cache, where, axis=0), shape)
        sin_cache = xp.reshape(xp.take(sin_cache, where, axis=0), shape)
    if cos_cache.shape[-1] * 2 != width:
        raise Refusal(f"the caches hold {cos_cache.shape[-1]} angles, half of {width} are needed")
    cos = xp.expand_dims(widen(xp, cos_cache), axis=1)
    sin = xp.expand_dims(widen(xp, sin_cache), axis=1)
    turned = widen(xp, heads[..., :width])
    first = turned[..., 0::2] if interleaved else turned[..., : width // 2]
    second = turned[..., 1::2] if interleaved else turned[..., width // 2 :]
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        turned = xp.reshape(xp.stack([real, imaginary], axis=-1), turned.shape)
    else:
        turned = xp.concat([real, imaginary], axis=-1)
    y = xp.concat([narrow(xp, turned, x.dtype), heads[..., width:]], axis=-1)
    return xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), x.shape) if packed else y
