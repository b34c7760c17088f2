"""Biases by the distance of places, and sequences without their padding, in domain ``com.microsoft``."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"


@op("RelativePositionBias", 1, domain=MS, host_inputs=(1, 2))
def relative_position_bias(
    xp: Any, bias_table: Any, query_length: Any, key_length: Any, *, max_distance: int, is_bidirectional: int = 0
) -> Any:
    """(1, heads, query, key) entries of T5's table by how far a key is behind its query (Raffel et al., 2020): the first half of the
    buckets one for each distance, the others for ranges that grow up to ``max_distance``; with ``is_bidirectional`` half of all are for
    keys further on. ``bias_table`` (buckets, heads) lies in memory as (heads, buckets)."""
    buckets, heads = bias_table.shape
    table = xp.reshape(bias_table, (heads, buckets))
    queries, keys = int(query_length.item()), int(key_length.item())
    distance = xp.arange(queries, dtype=xp.int64)[:, None] - xp.arange(keys, dtype=xp.int64)[None, :]
    first = xp.zeros_like(distance)
    if is_bidirectional:
        buckets //= 2
        first = xp.where(distance < 0, xp.full_like(distance, buckets), first)
        distance = xp.abs(distance)
    distance = xp.maximum(distance, xp.zeros_like(distance))
    exact = buckets // 2
    ratio = xp.astype(xp.maximum(distance, xp.ones_like(distance)), xp.float32) / exact
    beyond = xp.log(ratio) / math.log(max_distance / exact) * (buckets - exact)
    ranged = xp.minimum(exact + xp.astype(beyond, xp.int64), xp.full_like(distance, buckets - 1))
    place = first + xp.where(distance < exact, distance, ranged)
    return xp.reshape(xp.take(table, xp.reshape(place, (-1,)), axis=1), (1, heads, queries, keys))


@op("GatedRelativePositionBias", 1, domain=MS)
def gated_relative_position_bias(
    xp: Any,
    query: Any,
    query_bias: Any,
    rel_pos: Any,
    weight: Any,
    bias: Any,
    eco_a: Any,
    token_offset: Any = None,
    *,
    num_heads: int,
) -> Any:
    """``rel_pos`` (1, heads, length, length) times a gate of each head and query (Chi et al., XLM-E, 2022; WavLM). Queries are (batch,
    length, heads * size), or with ``token_offset`` those of words alone."""
    y = widen(xp, query) + widen(xp, query_bias)
    if token_offset is not None:
        y = restore_padding(xp, y, token_offset)
    batch, length, width = y.shape
    y = xp.permute_dims(xp.reshape(y, (batch, length, num_heads, width // num_heads)), (0, 2, 1, 3))
    y = xp.matmul(y, widen(xp, weight)) + widen(xp, bias)
    gates = sigmoid(xp, xp.sum(xp.reshape(y, (*y.shape[:3], 2, y.shape[3] // 2)), axis=-1))
    gate = gates[..., :1] * (gates[..., 1:] * widen(xp, eco_a) - 1.0) + 2.0
    return narrow(xp, gate * widen(xp, rel_pos), query.dtype)


@op("RemovePadding", 1, domain=MS)
def remove_padding(xp: Any, x: Any, sequence_token_count: Any) -> tuple[Any, ...]:
    """The words of x (batch, length, hidden), of which each sequence has so many in front; the places of all words, then those of the
    padding; where sequences begin and the last one ends; the longest."""
    batch, length, hidden = x.shape
    counts, kind = xp.reshape(sequence_token_count, (-1,)), sequence_token_count.dtype
    is_padding = xp.reshape(xp.arange(length, dtype=kind)[None, :] >= counts[:, None], (-1,))
    order = xp.argsort(xp.astype(is_padding, xp.int8), stable=True)
    words = xp.take(xp.reshape(x, (-1, hidden)), order[: int(xp.sum(counts))], axis=0)
    ends = xp.cumulative_sum(counts, axis=0, dtype=kind, include_initial=True)
    return words, xp.astype(xp.reshape(order, (batch, length)), kind), ends, xp.max(counts, keepdims=True)


@op("RestorePadding", 1, domain=MS)
def restore_padding(xp: Any, x: Any, token_offset: Any) -> Any:
    """Words (count, hidden) at their places in (batch, length, hidden), zeros elsewhere."""
    places = xp.reshape(token_offset, (-1,))
    around = xp.zeros((places.shape[0] - x.shape[0], x.shape[1]), dtype=x.dtype)
    y = xp.take(xp.concat([x, around], axis=0), xp.argsort(places, stable=True), axis=0)
    return xp.reshape(y, (*token_offset.shape, x.shape[1]))
