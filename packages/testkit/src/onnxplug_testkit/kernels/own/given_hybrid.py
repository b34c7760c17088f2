"""The kit's own structures of com.microsoft's gates, recurrences, convolutions and embeddings with operands left out that all others give,
and attributes that all others leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import GONE, I32, F, N, OwnNode, bytes_of, ints, ms, numbers, real

Attributes = dict[str, Any]


def given_hybrid_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _gates()
    yield from _recurrences()
    yield from _cells()
    yield from _windows()
    yield from _others()


def _gates() -> Iterator[OwnNode]:
    x, rough = real(2, 3, 8), {"epsilon": 0.25}
    grouped = real(2, 3, 4, 6)
    yield ms("BranchwiseRMSNorm", [grouped], [F], "bare", **rough)
    yield ms("GatedRMSNorm", [x, real(4), real(2, 3, 8)], [F], "rough", **rough)
    yield ms("LinearAttentionGate", [real(2, 3, 4), real(4), real(4)], [F], "decay")
    keys = [grouped, real(2, 3, 4, 6), real(2, 3, 6), real(4, 6), real(4, 6)]
    yield ms("EngramGate", keys, [F], "bare", **rough)
    yield ms("EngramGate", [*keys, real(4, 6)], [F, F], "rough", **rough)
    turned: Attributes = {"groups": 2, "activation": 0, "epsilon": 0.25}
    image, row = real(2, 3, 4, 8), real(8)
    yield ms("SkipGroupNorm", [image, real(8, low=0.5), row, real(2, 8)], [F, F], "no_bias", **turned)


def _recurrences() -> Iterator[OwnNode]:
    told: Attributes = {"q_num_heads": 4, "kv_num_heads": 2}
    q, k, v = real(2, 5, 16), real(2, 5, 8, low=-0.5, high=0.5), real(2, 5, 12)
    decay, beta, past = real(2, 5, 2, low=-1, high=0), real(2, 5, 2, low=0, high=1), real(2, 2, 4, 6)
    yield ms("LinearAttention", [q, k, v, GONE, decay, beta], [F, F], "first", scale=0.7, chunk_size=2, **told)
    for rule in ("gated", "delta"):
        ends = [decay] if rule == "gated" else [GONE, beta]
        yield ms("LinearAttention", [q, k, v, past, *ends], [F, F], rule, update_rule=rule, **told)
    x, weight = real(2, 6, 5), real(6, 1, 3)
    yield ms("CausalConvWithState", [x, weight], [F, F], "bare")
    yield ms("CausalConvWithState", [x, weight, GONE, real(2, 6, 2)], [F, F], "state")
    deltas = [real(9, 2, 4), real(9, 2, 4, low=-1, high=1), real(9, 6, 3), numbers(0, 4, 5, 9)]
    gates = [real(9, 6, low=-1, high=0), real(9, 6, low=0, high=1)]
    yield ms("GatedDeltaNet", [*deltas, *gates], [F, F], "chunks", chunk_size=2)


def _cells() -> Iterator[OwnNode]:
    steps, batch, width, hidden, places, depth, keys = 4, 3, 5, 6, 7, 4, 3

    def small(*shape: int) -> tuple[Any, str]:
        return real(*shape, low=-0.8, high=0.8)

    attention = [small(1, hidden, keys), small(1, depth, keys), small(1, keys), small(batch, places, depth)]
    weights = [small(1, 4 * hidden, width + depth), small(1, 4 * hidden, hidden)]
    x, bare = real(steps, batch, width), [GONE] * 5
    named: Attributes = {"activations": ["Sigmoid", "Tanh", "Softsign"], "clip": 0.5}
    sloped: Attributes = {
        "activations": ["HardSigmoid", "Affine", "Tanh"],
        "activation_alpha": [0.3, 0.7],
        "activation_beta": [0.4, 0.1],
    }
    for label, more in (("bare", {}), ("named", named), ("sloped", sloped), ("coupled", {"input_forget": 1})):
        given = [x, *weights, *bare, *attention, GONE, GONE]
        yield ms("AttnLSTM", given[:12], [F, F, F], label, hidden_size=hidden, **more)


def _windows() -> Iterator[OwnNode]:
    image, filters = real(2, 4, 5, 6), real(4, 3, 3, 2)
    turned = "ConvTransposeWithDynamicPads"
    uneven: Attributes = {"strides": [2, 3], "dilations": [1, 2], "output_padding": [1, 0], "kernel_shape": [3, 2]}
    yield ms(turned, [image, filters], [F], "bare", **uneven)
    yield ms(turned, [image, filters, (ints(1, 0, 1, 1), N)], [F], "groups", group=2, strides=[2, 1])
    for padded in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield ms(turned, [image, filters], [F], padded, auto_pad=padded, strides=[2, 2])
        last: Attributes = {"auto_pad": padded, "strides": [2, 3], "group": 2, "kernel_shape": [3, 3]}
        fused = [real(1, 7, 8, 4), real(6, 2, 3, 3), real(6)]
        yield ms("NhwcFusedConv", fused, [F], padded, activation="Relu", **last)
    yield ms("NhwcFusedConv", [real(1, 7, 8, 4), real(6, 2, 3, 3)], [F], "bare", activation="Relu", group=2)
    for name in ("FusedConv", "NhwcConv"):
        given = [image, real(6, 4, 2, 3)] if name == "FusedConv" else [real(2, 5, 6, 4), real(6, 2, 3, 4)]
        more = {"activation": "Relu"} if name == "FusedConv" else {}
        yield ms(name, given, [F], "told", kernel_shape=[2, 3], **more)


def _others() -> Iterator[OwnNode]:
    hard: Attributes = {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4}
    yield ms("FusedGemm", [real(3, 4), real(4, 5), real(5)], [F], "hard", **hard)
    yield ms("FusedMatMulActivation", [real(2, 4, 5), real(2, 5, 6)], [F], "hard", **hard)
    both: Attributes = {"activation": "Relu", "transBatchA": 1, "transBatchB": 1}
    yield ms("FusedMatMulActivation", [real(4, 3, 5), real(5, 3, 6)], [F], "batch", **both)
    source, current = (ints(1, 5, 3, 4, 2, 5, 3), N), (ints(1, 5, 3), N)
    sized: Attributes = {"min_ngram_size": 2, "max_ngram_size": 2}
    yield ms("BifurcationDetector", [source, current, (ints(0), N), (ints(*range(8)), N)], [N, N], "sizes", **sized)
    yield ms("BifurcationDetector", [source, current, (ints(0), N)], [N, N], "bare")
    once, thrice = ((2, 1, 3, 3, 3, 1, 1, 3, 1), (2, 1, 1, 2)), ((3, 1, 1, 3, 2, 1, 1, 2, 3), (2, 3, 1, 1))
    for count, (tokens, now) in ((1, once), (3, thrice)):  # what only so many tokens are found by
        bounded = [(ints(*tokens), N), (ints(*now), N), (ints(0), N)]
        yield ms("BifurcationDetector", bounded, [N, N], f"found_by_{count}", **sized)
    ids, gamma, beta = (bytes_of(np.int32, 2, 5, high=5), I32), real(8, low=0.5), real(8)
    mask = (np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32), I32)
    whole = [ids, GONE, real(10, 8), real(6, 8), GONE, gamma, beta, mask]
    yield ms("EmbedLayerNormalization", whole, [F, I32], "kind", mask_index_type=0)
    words = (np.array([[1, 2, 3, 0], [4, 5, 6, 7], [8, 9, 0, 0]], np.int32), I32)
    sizes = {"embedding_size": 5, "conv_window_size": 2, "char_embedding_size": 3}
    yield ms("WordConvEmbedding", [words, real(5, 1, 2, 3), real(5), real(10, 3)], [F], "sizes", **sizes)
    x, skip = real(2, 3, 8), real(2, 3, 8, low=-1, high=1)
    yield ms("BiasDropout", [x, real(8), skip], [F], "seed", seed=7)
