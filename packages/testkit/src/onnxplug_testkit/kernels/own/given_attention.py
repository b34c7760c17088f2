"""The kit's own structures of com.microsoft's attention in which an operand is packed with another, left out or given, or an attribute has
another value than by default, that all others leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    U8,
    F,
    N,
    Operand,
    OwnNode,
    bytes_of,
    ints,
    ms,
    numbers,
    real,
    scalar,
    scale,
)

Attributes = dict[str, Any]
_BATCH, _LENGTH, _HEADS, _SIZE = 2, 4, 2, 8
_WIDTH = _HEADS * _SIZE


def given_attention_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _projected()
    yield from _several()
    yield from _decoders()
    yield from _grouped()
    yield from _rotary()


def _keys(*lengths: int) -> Operand:
    """A mask of as many keys as each row has, of ``_LENGTH``."""
    return np.array([[int(i < n) for i in range(_LENGTH)] for n in lengths], np.int32), I32


def _projected() -> Iterator[OwnNode]:
    x, bias, w = real(_BATCH, _LENGTH, _WIDTH), real(3 * _WIDTH), real(_WIDTH, 3 * _WIDTH, low=-0.3, high=0.3)
    heads: Attributes = {"num_heads": _HEADS}
    yield ms("Attention", [x, w, bias, _keys(3, 2)], [F], "filter", mask_filter_value=-1.5, **heads)
    data = (bytes_of(np.uint8, _BATCH, _LENGTH, _WIDTH, high=100), U8)
    weights = (bytes_of(np.int8, _WIDTH, 3 * _WIDTH, low=-30, high=30), I8)
    whole = [data, weights, bias, scale(0.01), scale(0.005), _keys(3, 2)]
    yield ms("QAttention", whole, [F], "filter", mask_filter_value=-1.5, **heads)
    yield ms("QAttention", whole[:5], [F], "scale", scale=0.7, **heads)


def _several() -> Iterator[OwnNode]:
    q, k, v = (real(_BATCH, _LENGTH, _WIDTH, low=-1, high=i) for i in (1, 2, 3))
    bias, heads = real(3 * _WIDTH), {"num_heads": _HEADS}
    masked = [q, k, v, GONE, _keys(3, 2)]
    yield ms("MultiHeadAttention", masked, [F], "filter", mask_filter_value=-1.5, **heads)
    together = real(_BATCH, _LENGTH, _HEADS, 3, _SIZE)
    yield ms("MultiHeadAttention", [together], [F], "together", **heads)
    yield ms("MultiHeadAttention", [together, GONE, GONE, bias], [F], "together_bias", **heads)
    yield ms("MultiHeadAttention", [q, real(_BATCH, 6, _HEADS, 2, _SIZE)], [F], "pairs", **heads)


def _decoders() -> Iterator[OwnNode]:
    decoder, room = "DecoderMaskedMultiHeadAttention", 6
    told: Attributes = {"num_heads": _HEADS, "past_present_share_buffer": 1}
    token, cache = (
        [real(4, 1, _WIDTH, low=-1, high=i) for i in (1, 2, 3)],
        [real(4, _HEADS, room, _SIZE) for _ in range(2)],
    )
    mask, past = (np.array([[1, 1, 0, 1]] * 4, np.int32), I32), numbers(3)
    added, bias = real(1, _HEADS, 1, 4), real(3 * _WIDTH)
    whole = [*token, mask, GONE, *cache, past]
    yield ms(decoder, whole, [F, F, F], "filter", mask_filter_value=-1.5, scale=0.7, **told)
    yield ms(decoder, [*token, GONE, added, *cache, past], [F, F, F], "added", **told)
    yield ms(decoder, [*whole, GONE, GONE, bias], [F, F, F], "bias", **told)
    yield ms(decoder, whole, [F, F, F, F], "scores", output_qk=1, **told)
    alone = "DecoderMaskedSelfAttention"
    projection = [token[0], real(_WIDTH, 3 * _WIDTH, low=-0.3, high=0.3), bias]
    held = real(2, 4, _HEADS, room, _SIZE)
    yield ms(alone, [*projection, mask, held, GONE, past], [F, F], "mask", mask_filter_value=-1.5, **told)
    yield ms(alone, [*projection, GONE, held, added, past], [F, F], "added", scale=0.7, **told)
    beams = [numbers(2), (bytes_of(np.int32, 2, 2, room, high=1), I32)]
    yield ms(alone, [*projection, GONE, held, GONE, past, *beams], [F, F], "beams", **told)


def _grouped() -> Iterator[OwnNode]:
    heads, shared, size, name = 4, 2, 16, "GroupQueryAttention"
    cos, sin = (real(40, size // 2, low=-1, high=1) for _ in range(2))
    qkv = [real(2, 5, n * size) for n in (heads, shared, shared)]
    sizes = [numbers(4, 4), (scalar(5, np.int32), I32)]
    cache = [real(2, shared, 12, size) for _ in range(2)]
    common: Attributes = {"num_heads": heads, "kv_num_heads": shared, "tied": True}
    whole = [*qkv, *cache, *sizes]
    yield ms(name, [*qkv, GONE, GONE, *sizes], [F, F, F], "first", **common)
    yield ms(name, whole, [F, F, F], "both_ways", causal=0, **common)
    places = (bytes_of(np.int64, 2, 5, high=19), N)
    yield ms(name, [*whole, cos, sin, places], [F, F, F], "places", do_rotary=1, **common)
    single = [
        *[real(2, 1, n * size) for n in (heads, shared, shared)],
        *cache,
        numbers(6, 3),
        (scalar(7, np.int32), I32),
    ]
    far = (np.array([[19], [8]]), N)
    yield ms(name, [*single, cos, sin, far], [F, F, F], "later_places", do_rotary=1, **common)
    for kind in (1, 2):
        yield ms(name, whole, [F, F, F, F], f"scores_{kind}", qk_output=kind, **common)
    norms = [*whole, *[GONE] * 7, real(size, low=0.5), real(size, low=0.5)]
    yield ms(name, norms, [F, F, F], "norms", **common)
    yield ms(name, norms, [F, F, F], "norms_rough", qk_norm_epsilon=0.25, **common)
    yield ms(name, norms, [F, F, F], "norms_apart", q_norm_epsilon=0.25, k_norm_epsilon=0.5, **common)
    rows, columns = (np.array([[0, 1, 3]], np.int32), I32), (np.array([[0, 0, 1]], np.int32), I32)
    blocks: Attributes = {"num_heads": heads, "kv_num_heads": shared, "sparse_block_size": 16}
    parts = [real(1, 20, n * size) for n in (heads, shared, shared)]
    behind = [real(1, shared, 32, size), real(1, shared, 32, size), rows, columns, numbers(20), numbers(20)]
    yield ms("SparseAttention", [*parts, *behind], [F, F, F], "scale", scale=0.7, **blocks)
    together = (np.concatenate([part for part, _ in parts], -1), F)
    yield ms("SparseAttention", [together, GONE, GONE, *behind], [F, F, F], "together", **blocks)
    for interleaved in (0, 1):
        turned: Attributes = {"do_rotary": 1, "rotary_interleaved": interleaved}
        label = f"rotary_{interleaved}"
        yield ms("SparseAttention", [*parts, *behind, cos, sin], [F, F, F], label, **turned, **blocks)
    layouts = (
        (np.array([[0, 1, 3, 5]] * 2, np.int32), I32),
        (np.array([[0, 0, 1, 0, 2], [0, 0, 1, 1, 2]], np.int32), I32),
    )
    held, tables = (
        [real(2, shared, 48, size) for _ in range(2)],
        [real(48, size // 2, low=-1, high=1) for _ in range(2)],
    )
    for label, length in (("layouts", 41), ("cached", 1)):
        tokens = [real(2, length, n * size) for n in (heads, shared, shared)]
        whole = [*tokens, *held, *layouts, numbers(41), numbers(41, 41)]
        yield ms("SparseAttention", whole, [F, F, F], label, **blocks)
        yield ms("SparseAttention", [*whole, *tables], [F, F, F], f"{label}_rotary", do_rotary=1, **blocks)


def _rotary() -> Iterator[OwnNode]:
    heads, size = 3, 16
    places, caches = (bytes_of(np.int64, 3, 2, 5, high=30), N), [real(40, 8), real(40, 8)]
    split: Attributes = {"num_heads": heads, "mrope_section": [4, 2, 2]}
    x = real(2, 5, heads * size)
    yield ms("MRotaryEmbedding", [x, places, *caches], [F], "pairs", interleaved=1, **split)
    part: Attributes = {"num_heads": heads, "mrope_section": [2, 1, 1], "rotary_embedding_dim": 8}
    halves = [real(40, 4), real(40, 4)]
    yield ms("MRotaryEmbedding", [x, places, *halves], [F], "partly", **part)
    for name, given in (("MRotaryEmbedding", [x, places, *caches]), ("RotaryEmbedding", [x, (ints(7), N), *caches])):
        told = split if name == "MRotaryEmbedding" else {"num_heads": heads}
        yield ms(name, given, [F], "scale", scale=0.5, **told)
        yield ms(name, given, [F], "batching", is_packed_batching=1, **told)
