"""Operators of hybrid language models in ``com.microsoft``: against onnxruntime, and written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contrib_cases import F, case, integers, normal, run, uniform
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable

H = np.float16


def gates() -> Iterator[Case]:
    for dtype, atol in ((F, 1e-5), (H, 4e-3)):

        def n(*shape: int, dtype: Any = dtype) -> np.ndarray:
            return normal(*shape, dtype=dtype)

        name = np.dtype(dtype).name
        x = n(2, 3, 8)
        yield case("GatedAdd", [x, n(2, 3, 8), n(2, 3, 1)], 1, name, atol)
        yield case("ScaledSiLU", [x], 1, name, atol, alpha=1.7)
        yield case("ScaledSiLU", [x, np.array(0.3, F)], 1, f"{name}-scale", atol, alpha=1.7)
        gate = [n(2, 3, 4), normal(4), normal(4)]
        yield case("LinearAttentionGate", gate, 1, name, atol)
        yield case("LinearAttentionGate", [*gate, n(2, 3, 4)], 2, f"{name}-beta", atol)
        for activation in ("silu", "swish", "sigmoid"):
            inputs = [x, n(4), n(2, 3, 8)]
            yield case("GatedRMSNorm", inputs, 1, f"{name}-{activation}", atol, activation=activation, epsilon=1e-3)
        grouped = n(2, 3, 4, 6)
        flat = grouped.reshape(2, 3, 24)
        yield case("BranchwiseRMSNorm", [grouped], 1, name, atol)
        for shape in ((24,), (4, 6), (6,)):
            yield case("BranchwiseRMSNorm", [grouped, normal(*shape)], 1, f"{name}-{len(shape)}{shape[0]}", atol)
            told = {"num_branches": 4}
            yield case("BranchwiseRMSNorm", [flat, n(*shape)], 1, f"{name}-{len(shape)}{shape[0]}-flat", atol, **told)
        for shape in ((2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 6)):
            mix, told = normal(*shape), {"reduction_scale": 0.5}
            yield case("HyperConnectionPreMix", [grouped, mix], 1, f"{name}-{shape}", atol, **told)
            inputs = [grouped, n(2, 3, 6), mix, normal(2, 3, 4, 4)]
            yield case("HyperConnectionPostMix", inputs, 1, f"{name}-{shape}", atol)
            yield case("HyperConnectionPostMix", inputs[:3], 1, f"{name}-{shape}-own", atol)
        yield case("HyperConnectionPreMix", [flat, normal(2, 3, 24)], 1, f"{name}-flat", atol, num_branches=4)
        inputs = [flat, n(2, 3, 6), normal(2, 3, 4), normal(2, 3, 4, 4)]
        yield case("HyperConnectionPostMix", inputs, 1, f"{name}-flat", atol, num_branches=4)
        engram = [grouped, n(2, 3, 4, 6), n(2, 3, 6), n(4, 6), n(4, 6)]
        yield case("EngramGate", engram, 1, name, atol)
        yield case("EngramGate", [*engram, n(4, 6)], 2, f"{name}-normed", atol)


def recurrences() -> Iterator[Case]:
    size, value_size = 4, 6
    for queries, keys in ((4, 2), (2, 2), (2, 4)):
        for rule in ("linear", "gated", "delta", "gated_delta"):
            for shared in (0, 1):
                q, k = normal(2, 5, queries * size), 0.3 * normal(2, 5, keys * size)
                v, past = normal(2, 5, keys * value_size), normal(2, keys, size, value_size)
                decay = -uniform(0, 1, 2, 5, keys * (1 if shared else size)) if "gated" in rule else None
                beta = uniform(0, 1, 2, 5, 1 if shared else keys) if "delta" in rule else None
                told = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule}
                label = f"{queries}-{keys}-{rule}-{shared}"
                yield case("LinearAttention", [q, k, v, past, decay, beta], 2, label, **told)
                yield case("LinearAttention", [q, k, v, None, decay, beta], 2, f"{label}-first", scale=0.3, **told)
    for dilation in (1, 2):
        for activation in ("none", "silu"):
            x, w, b, kept = normal(2, 6, 5), normal(6, 1, 3), normal(6), 2 * dilation
            told, label = {"dilation": dilation, "activation": activation}, f"{dilation}-{activation}"
            yield case("CausalConvWithState", [x, w, b, normal(2, 6, kept)], 2, label, **told)
            yield case("CausalConvWithState", [x, w], 2, f"{label}-bare", **told)
            turned = [normal(2, 5, 2, 3), w, b, normal(2, kept, 2, 3)]
            yield case("CausalConvWithState", turned, 2, f"{label}-last", channels_last=1, **told)


def hashes() -> Iterator[Case]:
    for dtype in (np.int32, np.int64):
        ids, big = integers(dtype, 2, 9, low=0, high=6), np.iinfo(dtype).max
        multipliers = integers(dtype, 3, low=big // 3, high=big)
        sizes, offsets = integers(dtype, 4, low=5, high=50), integers(dtype, 4, low=0, high=9)
        told = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 7}
        name, past, end = np.dtype(dtype).name, integers(dtype, 2, 2, low=0, high=6), np.array(3, dtype)
        yield case("NGramHashMapping", [ids, multipliers, sizes], 2, name, **told)
        yield case("NGramHashMapping", [ids, multipliers, sizes, past, offsets], 2, f"{name}-past", **told)
        for reset in (0, 1):
            inputs = [ids, multipliers, sizes, past, None, end]
            yield case("NGramHashMapping", inputs, 2, f"{name}-end-{reset}", reset_on_eos=reset, **told)
        segments = np.sort(integers(np.int32, 2, 9, low=0, high=3), axis=1)
        yield case("NGramHashMapping", [ids, multipliers, sizes, past, None, None, segments], 2, f"{name}-cut", **told)
        whole = [ids[:, :1], multipliers, sizes, past, offsets, end, segments[:, :1]]
        yield case("NGramHashMapping", whole, 2, f"{name}-one", reset_on_eos=1, **told)


def rotations() -> Iterator[Case]:
    heads, size, angles = 3, 16, 8
    caches = [normal(40, angles), normal(40, angles)]
    places = integers(np.int64, 3, 2, 5, low=0, high=40)
    for layout, section in ((0, [4, 2, 2]), (1, [4, 2, 2]), (1, [2, 3, 3]), (0, [8, 0, 0]), (0, [0, 5, 3])):
        for interleaved in (0, 1):
            told = {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved}
            label = f"{layout}-{section}-{interleaved}"
            yield case(
                "MRotaryEmbedding", [normal(2, 5, heads * size), places, *caches], label=label, num_heads=heads, **told
            )
            split = [normal(2, heads, 5, size), places, *caches]
            yield case("MRotaryEmbedding", split, label=f"{label}-split", **told)
    part = {"mrope_section": [2, 1, 1], "num_heads": heads, "rotary_embedding_dim": 8}
    inputs = [normal(2, 5, heads * size), places, *(x[:, :4] for x in caches)]
    yield case("MRotaryEmbedding", inputs, label="part", **part)
    yield case("MRotaryEmbedding", inputs, label="scale", scale=0.5, **part)


CASES = [*gates(), *recurrences(), *hashes(), *rotations()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_window_of_states(window: int) -> None:
    """onnxruntime has it on GPUs alone: the states after each of the last tokens, zeros where there are fewer tokens."""
    told = {"q_num_heads": 2, "kv_num_heads": 2}
    q, k, v, decay, beta = (normal(2, 5, 8) for _ in range(5))
    decay, beta, past = -np.abs(decay), np.abs(beta[..., :2]), normal(window, 2, 2, 4, 4)
    y, states = run("LinearAttention", [q, k, v, past, decay, beta], 2, state_window=window, **told)
    x, w, before = normal(2, 6, 5), normal(6, 1, 3), normal(window, 2, 6, 2)
    made, kept = run("CausalConvWithState", [x, w, None, before], 2, state_window=window)
    turned, rows = run(
        "CausalConvWithState",
        [x.swapaxes(1, 2), w, None, before.swapaxes(2, 3)],
        2,
        state_window=window,
        channels_last=1,
    )
    np.testing.assert_allclose(turned.swapaxes(1, 2), made, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.swapaxes(2, 3), kept)
    assert states.shape == (window, 2, 2, 4, 4)
    for slot in range(window):
        end = 5 - window + slot + 1
        if end < 1:
            assert not states[slot].any()
            assert not kept[slot].any()
            continue
        part = [a[:, :end] for a in (q, k, v)]
        want, state = run("LinearAttention", [*part, past[-1], decay[:, :end], beta[:, :end]], 2, **told)
        np.testing.assert_allclose(states[slot], state, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y[:, :end], want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(kept[slot], run("CausalConvWithState", [x[..., :end], w, None, before[-1]], 2)[1])


def test_states_of_another_length_and_layout() -> None:
    """onnxruntime has it on GPUs alone: a slice of the channels, a longer history, and the rows that a speculation wrote."""
    x, w, bias, past = normal(2, 5, 10), normal(6, 1, 3), normal(6), normal(2, 6, 7)
    told = {"channels_last": 1, "activation": "silu", "input_channel_offset": 3, "input_channels": 6, "state_length": 7}
    part = np.ascontiguousarray(x[:, :, 3:9])
    want, _ = run(
        "CausalConvWithState", [part, w, bias, past[:, :, 5:].swapaxes(1, 2)], 2, channels_last=1, activation="silu"
    )
    for layout, state in ((0, past), (1, past.swapaxes(1, 2)), (-1, past.swapaxes(1, 2))):
        for capacity in (3, 8):
            more = {"state_channels_last": layout, "state_update_capacity": capacity}
            y, present, update = run("CausalConvWithState", [x, w, bias, state], 3, **told, **more)
            np.testing.assert_array_equal(y, want)
            kept = np.concatenate([past, part.swapaxes(1, 2)], 2)[:, :, -7:]
            np.testing.assert_array_equal(present, kept if layout == 0 else kept.swapaxes(1, 2))
            rows = np.zeros((2, capacity, 6), F)
            rows[:, :5] = part[:, :capacity]
            np.testing.assert_array_equal(update, rows)
    y, present = run("CausalConvWithState", [part.swapaxes(1, 2), w, bias, past.swapaxes(1, 2)], 2, state_length=7,
                     state_channels_last=1, activation="silu")  # fmt: skip
    np.testing.assert_allclose(y.swapaxes(1, 2), want, rtol=1e-6, atol=1e-6)
    assert present.shape == (2, 7, 6)


@pytest.mark.parametrize("dtype", [F, H])
def test_a_gate_that_is_projected(dtype: Any) -> None:
    """onnxruntime has it on GPUs alone; each step rounded."""
    x, y, hidden, weight = (normal(*shape, dtype=dtype) for shape in ((2, 3, 8), (2, 3, 8), (2, 3, 5), (5, 1)))
    gate = (hidden.astype(F) @ weight.astype(F)).astype(dtype)
    gate = (1 / (1 + np.exp(-gate.astype(F)))).astype(dtype)
    (got,) = run("GatedAdd", [x, y, hidden, weight])
    np.testing.assert_allclose(got, run("GatedAdd", [x, y, gate])[0], rtol=2e-3 if dtype == H else 1e-6, atol=1e-3)


def test_gemma_rotates_halves_that_were_turned_before() -> None:
    """onnxruntime has it on GPUs alone."""
    angles, parts = normal(2, 5, 8), [normal(2, 3, 5, 8, dtype=H) for _ in range(4)]
    made = run("GemmaRotaryEmbedding", [angles, *parts], 2)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    for got, (x, turned) in zip(made, (parts[:2], parts[2:]), strict=True):
        assert got.dtype == H
        np.testing.assert_allclose(got, x * cos + turned * sin, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("GatedAdd", [normal(2, 3), normal(2, 3), normal(2, 3)], {}),
        ("GatedAdd", [normal(2, 3), normal(2, 3), normal(2, 4), normal(3, 1)], {}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3)], {"state_length": 1}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3)], {"input_channels": 1}),
        ("CausalConvWithState", [normal(1, 4, 2), normal(2, 1, 3)], {"channels_last": 1, "input_channels": 2, "input_channel_offset": 1}),
        ("CausalConvWithState", [normal(1, 4, 2), normal(2, 1, 3)], {"channels_last": 1, "state_update_capacity": 9}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3)], {"state_length": 5, "state_window": 2}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3), None, normal(1, 2, 3)], {}),
        ("GatedRMSNorm", [normal(2, 8), normal(3), normal(2, 8)], {}),
        ("GatedRMSNorm", [normal(2, 8), normal(4), normal(2, 8)], {"activation": "relu"}),
        ("BranchwiseRMSNorm", [normal(2, 8)], {"num_branches": 3}),
        ("HyperConnectionPreMix", [normal(8), normal(8)], {}),
        ("LinearAttention", [normal(1, 2, 6), normal(1, 2, 4), normal(1, 2, 4)], {"q_num_heads": 3, "kv_num_heads": 2}),
        ("LinearAttention", [*[normal(1, 2, 8)] * 3, normal(1, 1, 4, 4)], {"q_num_heads": 2, "kv_num_heads": 2}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3)], {"ndim": 2}),
        ("CausalConvWithState", [normal(1, 2, 4), normal(2, 1, 3)], {"dilation": 0}),
        ("MRotaryEmbedding", [normal(1, 2, 8), np.zeros((3, 1, 2), np.int64), *[normal(4, 4)] * 2], {"mrope_section": [1]}),
        ("MRotaryEmbedding", [normal(1, 2, 8), np.zeros((1, 2), np.int64), *[normal(4, 4)] * 2], {"mrope_section": [2, 1, 1]}),
    ],
)  # fmt: skip
def test_refusals(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    more = {"update_rule": "linear"} if op_type == "LinearAttention" else {}
    with pytest.raises(ValueError, match=r"\w"):
        run(op_type, inputs, **attributes | more)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("LinearAttentionGate", [normal(1, 2, 4), normal(4), normal(4)]),
        ("EngramGate", [normal(1, 2, 2, 4), normal(1, 2, 2, 4), normal(1, 2, 4), normal(2, 4), normal(2, 4)]),
    ],
)
def test_outputs_whose_inputs_are_not_given(op_type: str, inputs: list[Any]) -> None:
    with pytest.raises(ValueError, match="is not given"):
        run(op_type, inputs, 2)


@pytest.mark.parametrize("sizes", [[5, 0, 5, 5], [5, 5, 5]])
def test_tables_that_do_not_fit(sizes: list[int]) -> None:
    ids, told = np.zeros((1, 3), np.int64), {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}
    with pytest.raises(ValueError, match="vocab_sizes"):
        run("NGramHashMapping", [ids, np.ones(3, np.int64), np.array(sizes)], **told)
