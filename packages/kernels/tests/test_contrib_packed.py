"""Operators of ``com.microsoft`` on sequences one behind the other, on weights in ggml's blocks, and others that onnxruntime's CPU provider
has: against onnxruntime, and written out where only its GPUs have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contrib_cases import F, case, flags, integers, normal, run, uniform
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable

H = np.float16
ENDS = np.array([0, 4, 5, 9], np.int32)
NEW = (1, 32)


def convolutions() -> Iterator[Case]:
    for dtype, atol in ((F, 1e-5), (H, 4e-3)):
        for dilation in (1, 2):
            x, w, b = normal(9, 6, dtype=dtype), normal(6, 1, 3, dtype=dtype), normal(6, dtype=dtype)
            state, told = normal(3, 6, 2 * dilation, dtype=dtype), {"dilation": dilation, "release": NEW}
            label = f"{np.dtype(dtype).name}-{dilation}"
            yield case("VarlenCausalConvWithState", [x, w, ENDS, b, state], 2, label, atol, **told)
            inputs = [x, w, ENDS, None, state, np.array([3, 0, 9], np.int32)]
            told |= {"activation": "silu", "state_update_capacity": 5}
            yield case("VarlenCausalConvWithState", inputs, 3, f"{label}-told", atol, **told)


def hashes() -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        ids, big, name = integers(dtype, 9, low=0, high=6), np.iinfo(dtype).max, np.dtype(dtype).name
        multipliers = integers(dtype, 3, low=big // 3, high=big)
        sizes, offsets = integers(dtype, 4, low=5, high=50), integers(dtype, 4, low=0, high=9)
        told: dict[str, Any] = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 7}
        past, end = integers(dtype, 3, 2, low=0, high=6), np.array(3, dtype)
        yield case("VarlenNGramHashMapping", [ids, multipliers, sizes, ENDS], 2, name, **told)
        counts, capacity = np.array([3, 5, 0], np.int32), {"state_update_capacity": 4}
        asked = ["h", "p", "", "s"]
        inputs = [ids, multipliers, sizes, ENDS, past, offsets, None, None, None, counts]
        yield case("VarlenNGramHashMapping", inputs, asked, f"{name}-past", **told, **capacity)
        segments, before = np.sort(integers(np.int32, 9, low=0, high=3)), integers(np.int32, 3, 2, low=0, high=2)
        for reset in (0, 1):
            for label, given in (("cut", None), ("cut-past", before)):
                inputs = [ids, multipliers, sizes, ENDS, past, None, end, segments, given, counts]
                told |= {"reset_on_eos": reset}
                yield case("VarlenNGramHashMapping", inputs, 4, f"{name}-{label}-{reset}", **told, **capacity)
        inputs = [ids, multipliers, sizes, ENDS, None, None, None, segments]
        yield case("VarlenNGramHashMapping", inputs, 3, f"{name}-segments", **told)


def deltas() -> Iterator[Case]:
    size, value_size, heads = 4, 6, 2
    for dtype, atol in ((F, 1e-5), (H, 4e-3)):
        for shared in (1, 3):
            values = shared * heads

            def parts(*lead: int, dtype: Any = dtype, values: int = values) -> list[np.ndarray]:
                shapes = ((heads, size), (heads, size), (values, value_size))
                return [normal(*lead, *shape, dtype=dtype) for shape in shapes]

            for rule in ("linear", "gated", "delta", "gated_delta"):
                each = size if shared == 1 else 1
                decay = -uniform(0, 1, *((9, values, size) if each > 1 else (9, values))) if "gated" in rule else None
                beta = uniform(0, 1, 9, values) if "delta" in rule else None
                state = normal(3, values, value_size, size)
                label = f"{np.dtype(dtype).name}-{shared}-{rule}"
                told: dict[str, Any] = {"update_rule": rule, "qk_l2_norm": 1, "release": NEW}
                cut = [*parts(9), ENDS, decay, beta]
                yield case("GatedDeltaNet", cut, 2, f"{label}-first", atol, **told)
                whole = [*cut, state, None, None, np.array([4, 1, 4], np.int32)]
                told |= {"scale": 0.5, "state_update_capacity": 1}
                yield case("GatedDeltaNet", whole, 3, f"{label}-told", atol, **told)
                idle = [*whole, np.array([0], np.int32)]
                yield case("GatedDeltaNet", idle, 3, f"{label}-idle", atol, **told)
            for gate in ("softplus", "qwen", "sigmoid", "kda"):
                told = {"gate_activation": gate, "beta_activation": "sigmoid", "qk_l2_norm": 1, "release": NEW}
                label, state = f"{np.dtype(dtype).name}-{shared}-{gate}", normal(2, values, value_size, size)
                wide = gate in ("kda", "qwen")
                decay = normal(2, 5, values, size, dtype=dtype) if wide else normal(2, 5, values, dtype=dtype)
                bias = normal(values, size) if wide else normal(values)
                gated = [None, decay, normal(2, 5, values, dtype=dtype), state, normal(values), bias]
                yield case("GatedDeltaNet", [*parts(2, 5), *gated], 2, label, atol, **told)
                packed = normal(2, 5, 2 * heads * size + values * value_size, dtype=dtype)
                told["gate_lower_bound"] = -2.0
                yield case("GatedDeltaNet", [packed, None, None, *gated], 2, f"{label}-packed", atol, **told)


def routers() -> Iterator[Case]:
    for dtype, atol in ((F, 1e-5), (H, 4e-3)):
        x, bias, name = normal(2, 3, 8, dtype=dtype), 0.2 * normal(8), np.dtype(dtype).name
        for groups, best, within, top in ((1, 1, 2, 3), (4, 2, 2, 3), (2, 1, 9, 4), (4, 1, 1, 5), (8, 3, 2, 2)):
            told = {"n_group": groups, "topk_group": best, "group_topk": within, "top_k": top, "release": NEW}
            yield case("MoEGroupRouter", [x, bias], 1, f"{name}-{groups}-{best}-{top}", atol, **told)
        told = {"top_k": 3, "n_group": 4, "topk_group": 2, "router_sentinel": -7.0, "release": NEW}
        yield case("MoEGroupRouter", [np.zeros((3, 8), dtype), np.zeros(8, F)], 1, f"{name}-equal", atol, **told)
        full = ["", "scores", "weights"]
        yield case("MoEGroupRouter", [x, bias], full, f"{name}-full", atol, top_k=2, release=NEW)
        inputs = [normal(3, 256, dtype=dtype), bias, 0.1 * normal(8, 256, dtype=dtype)]
        inputs[2] = inputs[2].astype(dtype)
        yield case("MoEGroupRouter", inputs, full, f"{name}-projected", atol, top_k=2, release=NEW)


BLOCKS = {
    2: (32, 18), 6: (32, 22), 8: (32, 34), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98), 20: (32, 18),
    22: (256, 82), 23: (256, 136),
}  # fmt: skip
"""Numbers and bytes of a block of each format."""
HALVES = {13: (0, 2), 14: (208,)}
"""Where blocks have their float16; all others have one at their start."""


def packed(kind: int, rows: int, depth: int) -> np.ndarray:
    """Random rows of a format, with scales that are numbers."""
    if kind == 30:
        return normal(rows, depth).astype(ml_dtypes.bfloat16).view(np.uint8)
    size, width = BLOCKS[kind]
    blocks = integers(np.uint8, rows * depth // size, width)
    for place in HALVES.get(kind, (0,)):
        blocks[:, place : place + 2] = normal(len(blocks), 1, dtype=H).view(np.uint8)
    return blocks.reshape(rows, -1)


def tables() -> Iterator[Case]:
    for kind in (*BLOCKS, 30):
        indices = np.array([[1, 0, 4], [-1, 7, 3]], np.int64 if kind % 4 else np.int32)
        for code in (1, 10) if kind == 8 else (1,):
            told = {"K": 512, "packed_type": kind, "output_dtype": code, "release": NEW}
            yield case("GatherPacked", [packed(kind, 5, 512), indices], label=f"{kind}-{code}", **told)


def products() -> Iterator[Case]:
    for kind in (0, 1):
        for depth, columns in ((64, 3), (32, 1), (96, 17)):
            blocks = integers(np.uint8, columns, depth // 32, 20 + kind)
            blocks[..., :4] = uniform(0.1, 1, columns, depth // 32, 1).view(np.uint8)
            blocks[..., 4 : 4 + kind] &= 15
            shape = np.array([depth, columns], np.int64)
            inputs = [normal(2, 3, depth), blocks.reshape(-1), shape]
            yield case("MatMulFpQ4", inputs, 1, f"{kind}-{depth}-{columns}", atol=3e-3, blk_quant_type=kind)


def recurrences() -> Iterator[Case]:
    steps, batch, inputs, hidden, places, depth, width = 4, 3, 5, 6, 7, 4, 3
    lengths, seen = np.array([4, 2, 3], np.int32), np.array([7, 1, 5], np.int32)

    def n(*shape: int) -> np.ndarray:
        return F(0.5) * normal(*shape)

    for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        for layer in (0, 8):
            told = {"hidden_size": hidden, "direction": direction}
            attended = layer or depth
            weights = [n(d, 4 * hidden, inputs + attended), n(d, 4 * hidden, hidden), n(d, 8 * hidden)]
            attention = [n(d, hidden, width), n(d, depth, width), n(d, width), n(batch, places, depth)]
            last = n(d, hidden + depth, layer) if layer else None
            bare = [n(steps, batch, inputs), *weights, *[None] * 4, *attention, None, last]
            yield case("AttnLSTM", bare, 3, f"{direction}-{layer}", **told)
            states = [n(d, batch, hidden), n(d, batch, hidden), n(d, 3 * hidden)]
            whole = [bare[0], *weights, lengths, *states, *attention, seen, last]
            yield case("AttnLSTM", whole, 3, f"{direction}-{layer}-whole", **told, clip=0.7)


def pools() -> Iterator[Case]:
    for spatial in ((11,), (5, 6), (4, 3, 5)):
        rank = len(spatial)
        x, mask = normal(2, 4, *spatial), flags(2, 4, *spatial) | flags(2, 4, *spatial)
        for kernel, stride, pads in ((2, 1, 0), (3, 2, 1), (3, 1, 1)):
            told = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pads] * 2 * rank}
            yield case("MaxpoolWithMask", [x, mask], label=f"{rank}-{kernel}-{stride}", **told)
        yield case("MaxpoolWithMask", [x, mask[:1, :1]], label=f"{rank}-shared", kernel_shape=[2] * rank)
        yield case("MaxpoolWithMask", [x, mask], label=f"{rank}-same", kernel_shape=[2] * rank, auto_pad="SAME_UPPER")
        larger = {"kernel_shape": [max(x.shape) + 1] * rank, "strides": [max(x.shape) + 1] * rank}
        yield case("MaxpoolWithMask", [x, mask], label=f"{rank}-larger", **larger)


CASES = [*convolutions(), *hashes(), *deltas(), *routers(), *tables(), *products(), *recurrences(), *pools()]
OWN = [
    case("SwiGLU", [normal(2, 3, 8), normal(2, 3, 8)]),
    case("SwiGLU", [normal(2, 3, 8, dtype=H)], label="halves", limit=0.5, round_activation=1),
    case("GatherPacked", [packed(8, 5, 64), np.array([3, 9])], label="bfloat16", K=64, packed_type=8),
    case("MatMulPacked", [normal(2, 3, 64, dtype=H), packed(8, 5, 64)], K=64, N=5, packed_type=8),
]
"""What onnxruntime has on GPUs alone."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in [*CASES, *OWN] if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


@pytest.mark.parametrize("capacity", [2, 5])
def test_told_transitions_repeat_the_state(capacity: int) -> None:
    """Which is what they are for: S *= decay, S += outer(key, delta)."""
    parts = [normal(9, 2, 4), normal(9, 2, 4), normal(9, 4, 3), ENDS, -uniform(0, 1, 9, 4), uniform(0, 1, 9, 4)]
    state, counts = normal(3, 4, 3, 4), np.array([capacity, 1, 0], np.int32)
    told = {"qk_l2_norm": 1, "state_update_capacity": capacity}
    *_, told_ = run("GatedDeltaNet", [*parts, state, None, None, counts], 3, **told)
    decays, keys, learned = np.split(told_, np.cumsum([4 * capacity, 8 * capacity]), axis=1)
    again = state[0].copy()
    for token in range(min(4, capacity)):
        again *= decays.reshape(3, capacity, 4)[0, token][:, None, None]
        key = keys.reshape(3, capacity, 2, 4)[0, token].repeat(2, axis=0)
        again += learned.reshape(3, capacity, 4, 3)[0, token][:, :, None] * key[:, None, :]
    upto = np.array([0, min(4, capacity)], np.int32)
    cut = [None if x is None else x[: upto[1]] for x in (*parts[:3], None, *parts[4:])]
    cut[3] = upto
    _, wanted = run("GatedDeltaNet", [*cut, state[:1]], 2, qk_l2_norm=1)
    np.testing.assert_allclose(again, wanted[0], rtol=1e-4, atol=1e-5)
    assert not learned.reshape(3, capacity, 12)[2].any()


def test_clamped_swiglu() -> None:
    gate, up = 3 * normal(2, 5), 3 * normal(2, 5)
    (y,) = run("SwiGLU", [gate, up], activation_alpha=1.7, activation_beta=1.0, limit=2.0)
    g, low = np.minimum(gate, 2), np.clip(up, -2, 2)
    np.testing.assert_allclose(y, g / (1 + np.exp(-1.7 * g)) * (low + 1), rtol=1e-5)
    (halves,) = run("SwiGLU", [np.concatenate([gate, up], axis=1)])
    np.testing.assert_allclose(halves, gate / (1 + np.exp(-gate)) * up, rtol=1e-5)


@pytest.mark.parametrize("activation", ["none", "relu2", "silu"])
def test_products_of_packed_weights(activation: str) -> None:
    a, table = normal(2, 3, 64, dtype=H), packed(2, 5, 64)
    (y,) = run("MatMulPacked", [a, table], K=64, N=5, packed_type=2, activation_type=activation)
    told = {"K": 64, "packed_type": 2, "output_dtype": 10}
    (weights,) = run("GatherPacked", [table, np.arange(5)], **told)
    plain = (a.astype(F) @ weights.astype(F).T).astype(H).astype(F)
    wanted = plain
    if activation != "none":
        wanted = np.maximum(plain, 0) ** 2 if activation == "relu2" else plain / (1 + np.exp(-np.maximum(plain, -80)))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(y, wanted.astype(H), rtol=1e-3, atol=1e-3)


REFUSED = [
    ("GatherPacked", [np.zeros((2, 66), np.uint8), np.zeros(1, np.int64)], {"K": 256, "packed_type": 15}, "packed_type is 15"),
    ("GatherPacked", [np.zeros((2, 17), np.uint8), np.zeros(1, np.int64)], {"K": 32, "packed_type": 2}, "rows of 17 bytes"),
    ("MaxpoolWithMask", [normal(1, 1, 4), flags(1, 1, 4)], {}, "kernel_shape must be specified"),
    ("MaxpoolWithMask", [normal(1, 1, 4), flags(1, 1, 4)], {"kernel_shape": [9]}, "output dimension is negative"),
    ("MaxpoolWithMask", [normal(1, 1, 4), flags(1, 1, 3)], {"kernel_shape": [2]}, "mask=3 input=4"),
    ("MaxpoolWithMask", [normal(1, 1, 4), flags(0, 1, 4)], {"kernel_shape": [2]}, "must be greater than 0"),
    ("MatMulFpQ4", [normal(1, 32), np.zeros(7, np.uint8), np.array([32, 1])], {}, "blob size differ"),
    ("MoEGroupRouter", [normal(1, 8), normal(8)], {"top_k": 9}, "do not go with 8 experts"),
    ("GatedDeltaNet", [normal(2, 1, 4), normal(2, 1, 4), normal(2, 1, 4)], {"update_rule": "linear"}, "initial_state is required"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_makes_no_sense_is_refused(
    op_type: str, inputs: list[Any], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        run(op_type, inputs, **attributes)
