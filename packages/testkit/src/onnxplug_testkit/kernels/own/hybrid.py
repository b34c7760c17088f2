"""The kit's own structures of com.microsoft's operators of hybrid language models, of decoders with beams, and of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import GONE, I32, F, H, N, OwnNode, bytes_of, ints, ms, numbers, real


def hybrid_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _gates()
    yield from _recurrences()
    yield from _hashes()
    yield from _decoders()
    yield from _tokens()


def _gates() -> Iterator[OwnNode]:
    x, grouped, flat = real(2, 3, 8), real(2, 3, 4, 6), real(2, 3, 24)
    yield ms("GatedAdd", [x, real(2, 3, 8), real(2, 3, 1)], [F])
    yield ms("ScaledSiLU", [x], [F], "alpha", alpha=1.5)
    yield ms("ScaledSiLU", [x, (np.array(0.5, np.float32), F)], [F], "scale")
    yield ms("LinearAttentionGate", [real(2, 3, 4), real(4), real(4), real(2, 3, 4)], [F, F])
    for activation in ("silu", "sigmoid"):
        yield ms("GatedRMSNorm", [x, real(4), real(2, 3, 8)], [F], activation, activation=activation)
    yield ms("BranchwiseRMSNorm", [grouped, real(4, 6)], [F])
    yield ms("BranchwiseRMSNorm", [flat, real(24)], [F], "flat", num_branches=4)
    yield ms("HyperConnectionPreMix", [grouped, real(2, 3, 4)], [F], reduction_scale=0.5)
    yield ms("HyperConnectionPreMix", [flat, real(2, 3, 24)], [F], "flat", num_branches=4)
    yield ms("HyperConnectionPostMix", [grouped, real(2, 3, 6), real(2, 3, 4), real(2, 3, 4, 4)], [F])
    yield ms("HyperConnectionPostMix", [flat, real(2, 3, 6), real(2, 3, 4)], [F], "flat", num_branches=4)
    scales = [real(4, 6), real(4, 6), real(4, 6)]
    yield ms("EngramGate", [grouped, real(2, 3, 4, 6), real(2, 3, 6), *scales], [F, F])


def _recurrences() -> Iterator[OwnNode]:
    told: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
    q, k, v, past = real(2, 5, 16), real(2, 5, 8, low=-0.5, high=0.5), real(2, 5, 12), real(2, 2, 4, 6)
    decay, beta = real(2, 5, 2, low=-1, high=0), real(2, 5, 2, low=0, high=1)
    yield ms("LinearAttention", [q, k, v, past, decay, beta], [F, F], **told)
    yield ms("LinearAttention", [q, k, v, past], [F, F], "linear", update_rule="linear", **told)
    yield ms("CausalConvWithState", [real(2, 6, 5), real(6, 1, 3), real(6), real(2, 6, 4)], [F, F], dilation=2)
    turned = [real(2, 5, 2, 3), real(6, 1, 3), real(6), real(2, 2, 2, 3)]
    yield ms("CausalConvWithState", turned, [F, F], "last", channels_last=1, activation="silu")


def _hashes() -> Iterator[OwnNode]:
    told: dict[str, Any] = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 7}
    ids, multipliers = (bytes_of(np.int64, 2, 9, high=5), N), (ints(12345677, 7654321, 9876543), N)
    sizes, past = (ints(11, 13, 17, 19), N), (bytes_of(np.int64, 2, 2, high=5), N)
    yield ms("NGramHashMapping", [ids, multipliers, sizes], [N, N], **told)
    whole = [ids, multipliers, sizes, past, (ints(0, 11, 24, 41), N), (np.array(3), N), numbers(*[0] * 9)]
    segments = (np.sort(bytes_of(np.int32, 2, 9, high=3), axis=1), I32)
    yield ms("NGramHashMapping", [*whole[:-1], segments], [N, N], "whole", reset_on_eos=1, **told)
    places, caches = (bytes_of(np.int64, 3, 2, 5, high=30), N), [real(40, 8), real(40, 8)]
    split: dict[str, Any] = {"num_heads": 3, "mrope_section": [4, 2, 2]}
    yield ms("MRotaryEmbedding", [real(2, 5, 48), places, *caches], [F], "runs", **split)
    yield ms("MRotaryEmbedding", [real(2, 5, 48), places, *caches], [F], "turns", mrope_layout=1, **split)
    parts = [(real(2, 3, 5, 8)[0].astype(np.float16), H)] * 4
    yield ms("GemmaRotaryEmbedding", [real(2, 5, 8), *parts], [H, H])


def _decoders() -> Iterator[OwnNode]:
    heads, size, room = 2, 8, 6
    told: dict[str, Any] = {"num_heads": heads, "past_present_share_buffer": 1}
    token, cache = [real(4, 1, 16, low=-1, high=i) for i in (1, 2, 3)], [real(4, heads, room, size) for _ in range(2)]
    mask = (np.array([[1, 1, 0, 1]] * 4, np.int32), I32)
    beams = [numbers(3), numbers(2), (bytes_of(np.int32, 2, 2, room, high=1), I32)]
    decoder = "DecoderMaskedMultiHeadAttention"
    yield ms(decoder, [*token, mask, GONE, *cache, *beams], [F, F, F], "beams", **told)
    yield ms(decoder, [token[0], real(4, heads, 5, size), real(4, heads, 5, size)], [F], "cross", num_heads=heads)
    yield ms(
        "MultiHeadAttention",
        [*token, GONE, GONE, GONE, *cache, beams[0], beams[2]],
        [F, F, F],
        "beams",
        num_heads=heads,
    )
    projection = [token[0], real(16, 48, low=-0.3, high=0.3), real(48)]
    behind = [GONE, real(2, 4, heads, room, size), GONE, numbers(3)]
    yield ms("DecoderMaskedSelfAttention", [*projection, *behind], [F, F], **told)
    rows, columns = (np.array([[0, 1, 3]], np.int32), I32), (np.array([[0, 0, 1]], np.int32), I32)
    blocks: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    keys = [real(1, 20, 64), real(1, 20, 32), real(1, 20, 32), real(1, 2, 32, 16), real(1, 2, 32, 16)]
    yield ms("SparseAttention", [*keys, rows, columns, numbers(20), numbers(20)], [F, F, F], **blocks)


def _tokens() -> Iterator[OwnNode]:
    yield ms("DynamicTimeWarping", [real(4, 6, low=0)], [I32])
    source, predicted = (ints(1, 5, 3, 4, 2), N), (ints(1, 5, 3, 9, 4, 2), N)
    yield ms("BifurcationDetector", [source, (ints(1), N), (ints(0), N), predicted], [N, N])
    words = (np.array([[1, 2, 3, 0], [4, 5, 6, 7], [8, 9, 0, 0]], np.int32), I32)
    yield ms("WordConvEmbedding", [words, real(5, 1, 2, 3), real(5), real(10, 3)], [F])
    yield ms("ComplexMul", [real(3, 4, 2), real(4, 2)], [F])
    yield ms("ComplexMulConj", [real(3, 4, 2), real(4, 2)], [F])
    yield ms("SampleOp", [real(2, 3)], [F])
    image, added = real(2, 6, 6, 4), real(2, 6, 6, 6)
    told: dict[str, Any] = {"group": 2, "pads": [1] * 4, "activation": "Relu"}
    yield ms("NhwcFusedConv", [image, real(6, 2, 3, 3), real(6), added], [F], **told)
