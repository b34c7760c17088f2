"""Normalisations that onnxruntime fuses: SkipLayerNormalization and kin, in domain ``com.microsoft``.

``SimplifiedLayerNormalization`` (root mean square) is also written into the default domain, by onnxruntime's exporter
and optimizer.
"""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import dtype_in
from onnxplug_kernels.ops.norm import group_normalization, require_scales
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import Refusal, braced, require_axis, require_range

MS = "com.microsoft"


@op("SimplifiedLayerNormalization", 1)
@op("SimplifiedLayerNormalization", 1, domain=MS)
def simplified_layer_normalization(
    xp: Any, x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, n_outputs: int = 1
) -> tuple[Any, ...]:
    """x over its root mean square on the axes from ``axis`` on, times ``scale``, in the type of ``scale``; then the
    inverse root.
    """
    require_scales(x, scale)
    y, inverse = _rms(xp, widen(xp, x), tuple(range(require_axis(axis, x.ndim), x.ndim)), epsilon)
    return (narrow(xp, y * widen(xp, scale), scale.dtype), narrow(xp, inverse, dtype_in(xp, stash_type)))[:n_outputs]


@op("SkipSimplifiedLayerNormalization", 1, domain=MS)
def skip_simplified_layer_normalization(
    xp: Any, x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12, n_outputs: int = 1
) -> tuple[Any, ...]:
    """Root-mean-square normalisation of x + skip + bias over the last axis; outputs: result, nothing, inverse root, the
    sum.
    """
    total = _sum(xp, x, skip, bias)
    y, inverse = _rms(xp, total, (-1,), epsilon)
    y = narrow(xp, y * widen(xp, gamma), x.dtype)
    return (y, None, inverse, narrow(xp, total, x.dtype))[:n_outputs]


@op("SkipLayerNormalization", 1, domain=MS)
def skip_layer_normalization(
    xp: Any,
    x: Any,
    skip: Any,
    gamma: Any,
    beta: Any = None,
    bias: Any = None,
    *,
    epsilon: float = 1e-12,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Layer normalisation of x + skip + bias over the last axis; outputs: result, mean, inverse deviation, the sum."""
    total = _sum(xp, x, skip, bias)
    y, mean, inverse = _standardized(xp, total, epsilon)
    y = narrow(xp, _scaled(xp, y, gamma, beta), x.dtype)
    return (y, mean, inverse, narrow(xp, total, x.dtype))[:n_outputs]


@op("EmbedLayerNormalization", 1, domain=MS)
def embed_layer_normalization(
    xp: Any,
    input_ids: Any,
    segment_ids: Any,
    word_embedding: Any,
    position_embedding: Any,
    segment_embedding: Any,
    gamma: Any,
    beta: Any,
    mask: Any = None,
    position_ids: Any = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """Layer normalisation of word + position + segment embeddings (BERT's first layer).

    Outputs: (batch, sequence, hidden); the number of words each mask leaves, 0 without a mask; the sum of embeddings.
    """
    batch, length = input_ids.shape
    for name, ids in (("segment_ids", segment_ids), ("mask", mask)):
        if ids is not None and ids.shape != input_ids.shape:
            raise Refusal(f"input_ids has shape {braced(input_ids.shape)}, {name} has {braced(ids.shape)}")
    total = _rows(xp, word_embedding, input_ids)
    if position_ids is None:
        total = total + widen(xp, position_embedding[:length, :])
    else:
        total = total + _rows(xp, position_embedding, position_ids)
    if segment_embedding is not None and segment_ids is not None:
        total = total + _rows(xp, segment_embedding, segment_ids)
    y = narrow(xp, _scaled(xp, _standardized(xp, total, epsilon)[0], gamma, beta), word_embedding.dtype)
    if mask is None:
        words = xp.zeros((batch,), dtype=input_ids.dtype)
    else:
        words = xp.astype(xp.sum(xp.astype(mask == 1, xp.int64), axis=1), input_ids.dtype)
    return (y, words, narrow(xp, total, word_embedding.dtype))[:n_outputs]


@op("QEmbedLayerNormalization", 1, domain=MS)
def qembed_layer_normalization(
    xp: Any,
    input_ids: Any,
    segment_ids: Any,
    word_embedding: Any,
    position_embedding: Any,
    segment_embedding: Any,
    gamma: Any,
    beta: Any,
    mask: Any,
    *parameters: Any,
    epsilon: float = 1e-12,
) -> tuple[Any, ...]:
    """EmbedLayerNormalization on 8-bit tables; ``parameters`` are the five scales, then the five zero points of the
    tables.
    """
    tables = (word_embedding, position_embedding, segment_embedding, gamma, beta)
    floats = [
        None if table is None else (xp.astype(table, factor.dtype) - xp.astype(zero, factor.dtype)) * factor
        for table, factor, zero in zip(tables, parameters[:5], parameters[5:], strict=True)
    ]
    word, position, segment, scale, shift = floats
    return embed_layer_normalization(
        xp, input_ids, segment_ids, word, position, segment, scale, shift, mask, epsilon=epsilon, n_outputs=2
    )


@op("GroupNorm", 1, domain=MS)
def group_norm(
    xp: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Any:
    """GroupNormalization of (N, *spatial, C), or (N, C, *spatial) without ``channels_last``, then x * sigmoid(x) if ``activation`` is 1."""
    total = xp.moveaxis(widen(xp, x), -1, 1) if channels_last else widen(xp, x)
    y = group_normalization(xp, total, gamma, beta, num_groups=groups, epsilon=epsilon)
    y = y * sigmoid(xp, y) if activation else y
    return narrow(xp, xp.moveaxis(y, 1, -1) if channels_last else y, x.dtype)


@op("SkipGroupNorm", 1, domain=MS)
def skip_group_norm(
    xp: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    skip: Any,
    bias: Any = None,
    *,
    channels_last: int = 1,
    n_outputs: int = 1,
    **attributes: Any,
) -> tuple[Any, ...]:
    """GroupNorm of x + skip + bias, and the sum; ``skip`` may have one number for each channel of an instance, (N, C) or (N, 1, 1, C)."""
    if skip.ndim == 2:
        around = (1,) * (x.ndim - 2)
        skip = xp.reshape(skip, (skip.shape[0], *around, skip.shape[1]) if channels_last else (*skip.shape, *around))
    if bias is not None and not channels_last:
        bias = xp.reshape(bias, (-1, *(1,) * (x.ndim - 2)))
    total = _sum(xp, x, skip, bias)
    y = group_norm(xp, total, gamma, beta, channels_last=channels_last, **attributes)
    return (narrow(xp, y, x.dtype), narrow(xp, total, x.dtype))[:n_outputs]


def _sum(xp: Any, x: Any, skip: Any, bias: Any) -> Any:
    total = widen(xp, x) + widen(xp, skip)
    return total if bias is None else total + widen(xp, bias)


def _rows(xp: Any, table: Any, ids: Any) -> Any:
    require_range(xp, ids, table.shape[0], "input index out of range")
    taken = xp.take(table, xp.reshape(ids, (-1,)), axis=0)
    return widen(xp, xp.reshape(taken, (*ids.shape, table.shape[1])))


def _rms(xp: Any, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any]:
    inverse = 1 / xp.sqrt(xp.mean(x * x, axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


def _standardized(xp: Any, x: Any, epsilon: float) -> tuple[Any, Any, Any]:
    mean = xp.mean(x, axis=-1, keepdims=True)
    y = x - mean
    inverse = 1 / xp.sqrt(xp.mean(y * y, axis=-1, keepdims=True) + epsilon)
    y *= inverse
    return y, mean, inverse


def _scaled(xp: Any, y: Any, gamma: Any, beta: Any) -> Any:
    y *= widen(xp, gamma)
    if beta is not None:
        y += widen(xp, beta)
    return y
