"""The kit's own structures of com.microsoft's operators on sequences that stand one behind the other, on weights in blocks of bytes, and of
others that few runtimes have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import (
    GONE,
    I32,
    U8,
    F,
    H,
    N,
    Operand,
    OwnNode,
    bytes_of,
    flags,
    ints,
    ms,
    numbers,
    real,
    waves,
)
from onnxplug_testkit.kernels.sparse import FORMATS, sparse


def packed_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _convolutions()
    yield from _hashes()
    yield from _deltas()
    yield from _blocks()
    yield from _recurrences()
    yield from _sparse_products()
    yield from _others()


def _sparse_products() -> Iterator[OwnNode]:
    rows, columns = np.array([0, 0, 2, 2, 2]), np.array([1, 3, 0, 2, 3])
    for form in FORMATS:
        for across in (0, 1):
            left = sparse((3, 4), rows, columns, waves(5), form), "sparse_tensor(float)"
            given = [left, real(5, 4) if not across else real(3, 5)]
            turned: dict[str, Any] = {"transA": across, "transB": 1 - across, "alpha": 0.5 + across}
            yield ms("SparseToDenseMatMul", given, [F], f"{form}_{across}", tied=True, **turned)


def _ends() -> Operand:
    return numbers(0, 4, 5, 9)


def _convolutions() -> Iterator[OwnNode]:
    x, weight, bias, state = real(9, 6), real(6, 1, 3), real(6), real(3, 6, 4)
    yield ms("VarlenCausalConvWithState", [x, weight, _ends(), bias, state], [F, F], dilation=2)
    told: dict[str, Any] = {"activation": "silu", "state_update_capacity": 5}
    short = [x, weight, _ends(), GONE, real(3, 6, 2), numbers(3, 0, 9)]
    yield ms("VarlenCausalConvWithState", short, [F, F, F], "told", **told)


def _hashes() -> Iterator[OwnNode]:
    told: dict[str, Any] = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 7}
    ids, multipliers = (bytes_of(np.int64, 9, high=5), N), (ints(12345677, 7654321, 9876543), N)
    given = [ids, multipliers, (ints(11, 13, 17, 19), N), _ends()]
    yield ms("VarlenNGramHashMapping", given, [N, N], **told)
    past, offsets, end = (bytes_of(np.int64, 3, 2, high=5), N), (ints(0, 11, 24, 41), N), (np.array(1), N)
    segments, before = numbers(0, 0, 0, 1, 2, 2, 2, 3, 3), (bytes_of(np.int32, 3, 2, high=2), I32)
    whole = [*given, past, offsets, end, segments, before, numbers(3, 5, 0)]
    more = {"reset_on_eos": 1, "state_update_capacity": 4}
    yield ms("VarlenNGramHashMapping", whole, [N, N, I32, N], "whole", **told, **more)


def _deltas() -> Iterator[OwnNode]:
    q, k, v = real(9, 2, 4), real(9, 2, 4, low=-1, high=1), real(9, 6, 3)
    decay, beta, state = real(9, 6, low=-1, high=0), real(9, 6, low=0, high=1), real(3, 6, 3, 4)
    yield ms("GatedDeltaNet", [q, k, v, _ends(), decay, beta], [F, F], qk_l2_norm=1)
    told: dict[str, Any] = {"scale": 0.7, "qk_l2_norm": 1, "state_update_capacity": 2}
    whole = [q, k, v, _ends(), decay, beta, state, GONE, GONE, numbers(4, 1, 0)]
    yield ms("GatedDeltaNet", whole, [F, F, F], "told", **told)
    yield ms("GatedDeltaNet", [*whole, numbers(0)], [F, F, F], "idle", **told)
    rows = [real(2, 5, 2, 4), real(2, 5, 2, 4, low=-1, high=1), real(2, 5, 2, 3), GONE]
    opened = [real(2, 5, 2), real(2, 2, 3, 4), real(2, low=-1, high=0.5)]
    told = {"qk_l2_norm": 1, "beta_activation": "sigmoid"}
    heads = [*rows, real(2, 5, 2), *opened, real(2)]
    yield ms("GatedDeltaNet", heads, [F, F], "softplus", gate_activation="softplus", **told)
    channels = [*rows, real(2, 5, 2, 4), *opened, real(2, 4)]
    yield ms("GatedDeltaNet", channels, [F, F], "kda", gate_activation="kda", gate_lower_bound=-2.0, **told)


def rows_of(packed_type: int, rows: int, depth: int) -> Operand:
    """Rows of blocks of 32 numbers, each with a float16 as its scale, in a format of ggml."""
    width = {2: 18, 8: 34}[packed_type]
    blocks = bytes_of(np.uint8, rows * depth // 32, width, high=255)
    blocks[:, :2] = waves(len(blocks), 1, low=-1 / 64, high=1 / 64).astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, -1), U8


def _blocks() -> Iterator[OwnNode]:
    indices = (np.array([[1, 0, 4], [-1, 7, 3]]), N)
    for kind in (2, 8):
        told = {"K": 64, "packed_type": kind}
        yield ms("GatherPacked", [rows_of(kind, 5, 64), indices], [F], f"{kind}", output_dtype=1, **told)
        for activation in ("none", "silu", "relu2"):
            halves = (waves(2, 3, 64).astype(np.float16), H)
            label, given = f"{kind}_{activation}", [halves, rows_of(kind, 5, 64)]
            yield ms("MatMulPacked", given, [H], label, N=5, activation_type=activation, **told)
    for kind in (0, 1):
        for depth, columns in ((64, 3), (96, 17)):
            blocks = bytes_of(np.uint8, columns, depth // 32, 20 + kind, high=255)
            blocks[..., :4] = waves(columns, depth // 32, 1, low=0.1, high=1).view(np.uint8)
            blocks[..., 4 : 4 + kind] &= 15
            given = [real(2, 3, depth), (blocks.reshape(-1), U8), (ints(depth, columns), N)]
            yield ms("MatMulFpQ4", given, [F], f"{kind}_{columns}", blk_quant_type=kind)


def _recurrences() -> Iterator[OwnNode]:
    steps, batch, width, hidden, places, depth, keys = 4, 3, 5, 6, 7, 4, 3

    def small(*shape: int) -> Operand:
        return real(*shape, low=-0.8, high=0.8)

    for direction, d, layer in (("forward", 1, 0), ("reverse", 1, 8), ("bidirectional", 2, 8)):
        attended = layer or depth
        weights = [small(d, 4 * hidden, width + attended), small(d, 4 * hidden, hidden), small(d, 8 * hidden)]
        attention = [small(d, hidden, keys), small(d, depth, keys), small(d, keys), small(batch, places, depth)]
        last = small(d, hidden + depth, layer) if layer else GONE
        states = [small(d, batch, hidden), small(d, batch, hidden), small(d, 3 * hidden)]
        told: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        x = real(steps, batch, width)
        whole = [x, *weights, numbers(4, 2, 3), *states, *attention, numbers(7, 1, 5), last]
        yield ms("AttnLSTM", whole, [F, F, F], f"{direction}_whole", **told)
        yield ms("AttnLSTM", [x, *weights, *[GONE] * 4, *attention, GONE, last], [F, F, F], direction, **told)


def _others() -> Iterator[OwnNode]:
    yield ms("SwiGLU", [real(2, 3, 8), real(2, 3, 8, low=-1)], [F])
    told: dict[str, Any] = {"activation_alpha": 1.7, "activation_beta": 1.0, "limit": 0.5, "round_activation": 1}
    yield ms("SwiGLU", [real(2, 3, 8)], [F], "halves", **told)
    for groups, best, within, top in ((1, 1, 2, 3), (4, 2, 2, 3), (2, 1, 9, 4), (4, 1, 1, 2)):
        routed = {"n_group": groups, "topk_group": best, "group_topk": within, "top_k": top, "router_sentinel": -7.0}
        yield ms("MoEGroupRouter", [real(2, 3, 8), real(8, low=-0.3, high=0.3)], [F], f"{groups}_{best}", **routed)
    yield ms("MoEGroupRouter", [real(2, 3, 8), real(8)], ["", F, F], "full", top_k=2)
    projected = [real(3, 16), real(8), real(8, 16, low=-0.3, high=0.3)]
    yield ms("MoEGroupRouter", projected, ["", F, F], "projected", top_k=2)
    for spatial in ((11,), (5, 6), (4, 3, 5)):
        rank = len(spatial)
        windows = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * 2 * rank}
        yield ms("MaxpoolWithMask", [real(2, 4, *spatial), flags(2, 4, *spatial)], [F], f"{rank}", **windows)
        same = {"kernel_shape": [2] * rank, "auto_pad": "SAME_UPPER"}
        yield ms("MaxpoolWithMask", [real(2, 4, *spatial), flags(1, 1, *spatial)], [F], f"{rank}_shared", **same)
