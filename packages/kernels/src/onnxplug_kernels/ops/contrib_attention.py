"""Multi-head attention of domain ``com.microsoft``: Attention, QAttention, MultiHeadAttention (grouped heads:
``contrib_gqa``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.attention import attention, split_heads
from onnxplug_kernels.ops.contrib_matmul import matmul_integer_to_float
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal, braced, watched

MS = "com.microsoft"


@op("Attention", 1, domain=MS, host_inputs=(6,))
def attention_(
    xp: Any,
    x: Any,
    weights: Any,
    bias: Any = None,
    mask_index: Any = None,
    past: Any = None,
    attention_bias: Any = None,
    past_sequence_length: Any = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Self-attention with its input projection: (batch, sequence, hidden) times ``weights`` gives queries, keys and
    values.

    ``past`` and the second output hold keys and values, (2, batch, heads, length, size). What a mask hides gets
    ``mask_filter_value`` added to its score.
    """
    if do_rotary:
        raise ValueError("do_rotary has no portable meaning in com.microsoft.Attention: it takes no cosines and sines")
    projected = xp.matmul(widen(xp, x), widen(xp, weights))
    if bias is not None:
        projected = projected + widen(xp, bias)
    third = weights.shape[1] // 3
    return self_attention(
        xp,
        narrow(xp, projected, x.dtype),
        list(qkv_hidden_sizes or (third, third, third)),
        mask_index,
        past,
        attention_bias,
        past_sequence_length if past_present_share_buffer else None,
        num_heads,
        mask_filter_value,
        scale,
        unidirectional,
    )[:n_outputs]


@op("QAttention", 1, domain=MS)
def qattention(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any,
    input_scale: Any,
    weight_scale: Any,
    mask_index: Any = None,
    input_zero_point: Any = None,
    weight_zero_point: Any = None,
    past: Any = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Attention whose input projection multiplies 8-bit matrices; the rest is in floats."""
    if do_rotary or past_present_share_buffer:
        raise ValueError("QAttention has no portable do_rotary and past_present_share_buffer")
    projected = matmul_integer_to_float(
        xp, x, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias
    )
    third = weight.shape[1] // 3
    return self_attention(
        xp,
        projected,
        [third, third, third],
        mask_index,
        past,
        None,
        None,
        num_heads,
        mask_filter_value,
        scale,
        unidirectional,
    )[:n_outputs]


@op("MultiHeadAttention", 1, domain=MS, host_inputs=(8,))
def multi_head_attention(
    xp: Any,
    query: Any,
    key: Any = None,
    value: Any = None,
    bias: Any = None,
    key_padding_mask: Any = None,
    attention_bias: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_sequence_length: Any = None,
    cache_indirection: Any = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int = 0,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Attention after the input projection, whose bias is added here; outputs: result, present key, present value, and
    the scores that softmax is applied to.

    Packed inputs are (batch, sequence, heads, 3, size), or keys and values (batch, sequence, heads, 2, size). Keys and
    values that come as (batch, heads, sequence, size), as those of cross attention do, have their bias in them.
    ``cache_indirection`` (prompts, beams, length) says whose past a beam has at each place, where the batch is of beams.
    """
    q, k, v = _heads_of(xp, query, key, value, bias, num_heads)
    k, v = joined(xp, past_key, k, past_sequence_length), joined(xp, past_value, v, past_sequence_length)
    present = (k, v)
    past = _length(past_key, past_sequence_length)
    if past_sequence_length is not None:
        k, v = k[:, :, : past + q.shape[2], :], v[:, :, : past + q.shape[2], :]
    if cache_indirection is not None:
        k, v = (of_beams(xp, x, cache_indirection, past) for x in (k, v))
    hidden = mask_bias(
        xp, key_padding_mask, q.shape[0], q.shape[2], k.shape[2], past, mask_filter_value, unidirectional
    )
    y, _, _, scores = attention(
        xp, q, k, v, _sum(hidden, attention_bias), scale=scale or None, qk_matmul_output_mode=2, n_outputs=4
    )
    return (merged(xp, y), *present, scores)[:n_outputs]


def self_attention(
    xp: Any,
    projected: Any,
    sizes: list[int],
    mask_index: Any,
    past: Any,
    attention_bias: Any,
    past_length: Any,
    heads: int,
    filter_value: float,
    scale: float | None,
    unidirectional: int,
    cache_indirection: Any = None,
) -> tuple[Any, Any]:
    """(Y, present) from the projected (batch, sequence, Q and K and V side by side)."""
    ends = [sizes[0], sizes[0] + sizes[1]]
    q = split_heads(xp, projected[..., : ends[0]], heads)
    k = split_heads(xp, projected[..., ends[0] : ends[1]], heads)
    v = split_heads(xp, projected[..., ends[1] :], heads)
    if past is not None:
        k, v = joined(xp, past[0, ...], k, past_length), joined(xp, past[1, ...], v, past_length)
    present = xp.stack([k, v]) if k.shape == v.shape else None
    offset = 0 if past is None else _length(past[0, ...], past_length)
    if past_length is not None:
        k, v = k[:, :, : offset + q.shape[2], :], v[:, :, : offset + q.shape[2], :]
    if cache_indirection is not None:
        k, v = (of_beams(xp, x, cache_indirection, offset) for x in (k, v))
    hidden = mask_bias(xp, mask_index, q.shape[0], q.shape[2], k.shape[2], offset, filter_value, unidirectional)
    y = attention(xp, q, k, v, _sum(hidden, attention_bias), scale=scale or None)[0]
    return merged(xp, y), present


def _heads_of(xp: Any, query: Any, key: Any, value: Any, bias: Any, heads: int) -> tuple[Any, Any, Any]:
    """Q, K and V as (batch, heads, sequence, size), with bias."""
    if query.ndim == 5:
        q, k, v = (_unpacked(xp, query, i) for i in range(3))
    elif key is None:
        raise ValueError("MultiHeadAttention has neither a key nor a packed query")
    else:
        q = query
        k, v = (_unpacked(xp, key, 0), _unpacked(xp, key, 1)) if key.ndim == 5 else (key, value)
    if bias is not None:
        width = q.shape[-1]
        q = q + bias[:width]
        if k.ndim == 3:
            k, v = k + bias[width : width + k.shape[-1]], v + bias[width + k.shape[-1] :]
    return tuple(split_heads(xp, x, heads) if x.ndim == 3 else x for x in (q, k, v))


def _unpacked(xp: Any, packed: Any, place: int) -> Any:
    part = packed[:, :, :, place, :]
    return xp.reshape(part, (*part.shape[:2], -1))


def joined(xp: Any, past: Any, new: Any, past_length: Any) -> Any:
    """The cache with the new keys or values: behind it or, where its valid length is given, inside the buffer that it
    is.
    """
    if past is None:
        return new
    if past_length is None:
        return xp.concat([past, new], axis=2)
    start = _length(past, past_length)
    buffer = xp.asarray(past, copy=True)
    buffer[:, :, start : start + new.shape[2], :] = new
    return buffer


def of_beams(xp: Any, cache: Any, indirection: Any, past: int) -> Any:
    """Keys or values (batch, heads, length, size) of which the first ``past`` are those of the beams that ``indirection`` (prompts, beams,
    at least ``past``) names; rows of a batch are the beams of one prompt after the other."""
    prompts, beams, known = indirection.shape
    batch, heads, length, size = cache.shape
    if prompts * beams != batch or known < past:
        raise ValueError(
            f"cache_indirection has shape {tuple(indirection.shape)}, the cache {tuple(cache.shape)}, of which {past} are past"
        )
    first = xp.reshape(xp.arange(prompts, dtype=xp.int64) * beams, (prompts, 1, 1))
    rows = xp.reshape(first + xp.astype(indirection[:, :, :past], xp.int64), (batch, past))
    rows = xp.concat([rows, xp.broadcast_to(xp.arange(batch, dtype=xp.int64)[:, None], (batch, length - past))], axis=1)
    places = xp.reshape(rows * length + xp.arange(length, dtype=xp.int64), (-1,))
    watched(xp, places, -batch * length, batch * length)
    flat = xp.reshape(xp.permute_dims(cache, (0, 2, 1, 3)), (batch * length, heads * size))
    return xp.permute_dims(xp.reshape(xp.take(flat, places, axis=0), (batch, length, heads, size)), (0, 2, 1, 3))


def _length(past: Any, past_length: Any) -> int:
    """How many keys a cache holds."""
    if past is None:
        return 0
    return past.shape[2] if past_length is None else int(past_length.reshape(-1)[0])


def merged(xp: Any, y: Any) -> Any:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, length, size = y.shape
    return xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), (batch, length, heads * size))


def mask_bias(
    xp: Any, mask: Any, batch: int, queries: int, keys: int, offset: int, filter_value: float, unidirectional: int
) -> Any:
    """What a mask adds to the scores, broadcastable to (batch, heads, queries, keys) float32; None for nothing.

    A mask holds one number for each (batch, keys), (batch, queries, keys) or (batch, 1, longest, longest), 0 for what
    is hidden; or the end of each sequence (batch), or the ends and then the starts (2 * batch), or the ends among other
    things (3 * batch + 2). ``unidirectional`` hides the future, where ``offset`` keys come before the first query.
    """
    position = xp.arange(keys, dtype=xp.int64)
    bias = None
    if mask is not None:
        known: dict[int, list[tuple[int, ...]]] = {
            1: [(batch,), (2 * batch,), (3 * batch + 2,)],
            2: [(batch, keys)],
            3: [(batch, queries, keys)],
        }
        if tuple(mask.shape) not in known.get(mask.ndim, [tuple(mask.shape)]):
            wanted = ", ".join(map(braced, known[mask.ndim]))
            raise Refusal(f"a mask has shape {braced(mask.shape)}, it must be one of {wanted}", INVALID_ARGUMENT)
        if mask.ndim == 1:
            ends = xp.reshape(mask[:batch], (batch, 1, 1, 1))
            seen = position < ends
            if mask.shape[0] == 2 * batch:
                seen = seen & (position >= xp.reshape(mask[batch:], (batch, 1, 1, 1)))
        elif mask.ndim == 2:
            seen = mask[:, None, None, :] > 0
        elif mask.ndim == 3:
            seen = mask[:, None, :, :] > 0
        else:
            seen = mask[:, :, offset : offset + queries, :keys] > 0
        bias = xp.where(seen, 0.0, xp.asarray(filter_value, dtype=xp.float32))
    if unidirectional and queries > 1:
        place = xp.reshape(xp.arange(queries, dtype=xp.int64), (queries, 1)) + offset
        lowest = float(np.finfo(np.float32).min)
        future = xp.where(position <= place, 0.0, xp.asarray(lowest, dtype=xp.float32))[None, None, :, :]
        bias = future if bias is None else xp.maximum(bias + future, xp.asarray(lowest, dtype=xp.float32))
    return bias


def _sum(mask: Any, bias: Any) -> Any:
    if mask is None or bias is None:
        return mask if bias is None else bias
    return mask + bias
