"""Operators of hybrid language models: linear attention and its gates, causal convolution, mixed streams, hashes of n-grams."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import SINGLE
from onnxplug_ep_cpu.schemas.shapes import dims, known, over, same, times

contrib("GatedAdd", "X: T, Y: T, gate: T, gate_weight: T? -> output: T", T=SINGLE)(same)
contrib("ScaledSiLU", "X: T, scale: M? -> Y: T", {"alpha": 1.0}, T=SINGLE, M=SINGLE)(same)
contrib("GatedRMSNorm", "X: T, scale: T, gate: T -> Y: T", {"activation": "silu", "epsilon": 1e-5}, T=SINGLE)(same)
contrib("BranchwiseRMSNorm", "X: T, scale: M? -> Y: T", {"epsilon": 1e-5, "num_branches": 0}, T=SINGLE, M=SINGLE)(same)
contrib(
    "HyperConnectionPostMix",
    "streams: T, block_output: T, post_mix: M, stream_mix: M? -> output: T",
    {"num_branches": 0},
    T=SINGLE,
    M=SINGLE,
)(same)


@contrib(
    "HyperConnectionPreMix",
    "streams: T, pre_mix: M -> output: T",
    {"num_branches": 0, "reduction_scale": 1.0},
    T=SINGLE,
    M=SINGLE,
)
def pre_mix(call: Call) -> Sequence[Shape | None]:
    """One stream of several."""
    streams, branches = call.shape(0), call.attribute("num_branches")
    if not streams:
        return [None]
    return [(*streams[:-1], over(streams[-1], branches)) if branches else (*streams[:-2], streams[-1])]


@contrib(
    "LinearAttentionGate",
    "a: T, dt_bias: TF, decay_scale: TF, b: T? -> decay: T, beta: T?",
    T=SINGLE,
    TF=("float",),
)
def linear_attention_gate(call: Call) -> Sequence[Shape | None]:
    """Shaped like a, and like b."""
    return call.shape(0), call.shape(3)


@contrib(
    "EngramGate",
    "key: T, query: T, value: T, key_norm_scale: T, query_norm_scale: T, conv_norm_scale: T? "
    "-> output: T, gated_value_normed: T?",
    {"epsilon": 1e-5},
    T=SINGLE,
)
def engram_gate(call: Call) -> Sequence[Shape | None]:
    """Both shaped like the keys."""
    return call.shape(0), call.shape(0)


def _windowed(call: Call, state: Shape) -> Shape:
    window = call.attribute("state_window")
    return (window, *state) if window else state


@contrib(
    "LinearAttention",
    "query: T, key: T, value: T, past_state: S?, decay: T?, beta: T? -> output: T, present_state: S",
    {
        "chunk_size": 64,
        "kv_num_heads": Required(int),
        "q_num_heads": Required(int),
        "scale": 0.0,
        "state_window": 0,
        "update_rule": "gated_delta",
    },
    T=SINGLE,
    S=SINGLE,
    unbound={"S": lambda call: call.element(0)},
)
def linear_attention(call: Call) -> Sequence[Shape | None]:
    """Values of the more numerous heads, and a matrix for each head of keys."""
    queries, kv_heads = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    batch, length, _ = dims(call.shape(0), 3)
    size, value_size = over(dims(call.shape(1), 3)[2], kv_heads), over(dims(call.shape(2), 3)[2], kv_heads)
    state = _windowed(call, (batch, kv_heads, size, value_size))
    return (batch, length, times(max(queries, kv_heads), value_size)), state


@contrib(
    "CausalConvWithState",
    "input: T, weight: T, bias: T?, past_state: T? -> output: T, present_state: T, state_update: T?",
    {
        "activation": "none",
        "channels_last": 0,
        "dilation": 1,
        "input_channel_offset": 0,
        "input_channels": 0,
        "ndim": 1,
        "state_channels_last": -1,
        "state_length": 0,
        "state_update_capacity": 0,
        "state_window": 0,
    },
    T=SINGLE,
)
def causal_conv(call: Call) -> Sequence[Shape | None]:
    """Shaped like the channels of the input that are convolved, the positions that are kept of the past, and the first rows."""
    x, size = call.shape(0), known(dims(call.shape(1), 3)[2])
    if not x:
        return call.shape(0), None, None
    last, width = call.attribute("channels_last"), call.attribute("input_channels")
    if width and last:
        x = (*x[:-1], width)
    kept: Dim = call.attribute("state_length") or (None if size is None else (size - 1) * call.attribute("dilation"))
    channels = x[2:] if last else x[1:2]
    layout = call.attribute("state_channels_last")
    state = (x[0], kept, *channels) if (last if layout < 0 else layout) else (x[0], *channels, kept)
    return x, _windowed(call, state), (x[0], call.attribute("state_update_capacity"), *x[2:])


@contrib(
    "NGramHashMapping",
    "input_ids: M, multipliers: M, vocab_sizes: M, past_ids: M?, head_offsets: M?, eos_token_id: M?, "
    "segment_ids: int32? -> hash_ids: M, present_ids: M?",
    {
        "max_ngram_size": Required(int),
        "n_head_per_ngram": Required(int),
        "pad_id": Required(int),
        "reset_on_eos": 0,
    },
    M=("int32", "int64"),
)
def ngram_hashes(call: Call) -> Sequence[Shape | None]:
    """A hash for each token, length of n-gram and head, and the tokens that go before the next."""
    batch, length = dims(call.shape(0), 2)
    before = call.attribute("max_ngram_size") - 1
    return (batch, length, before * call.attribute("n_head_per_ngram")), (batch, before)


contrib(
    "MRotaryEmbedding",
    "input: T, position_ids: M, cos_cache: T, sin_cache: T -> output: T",
    {
        "interleaved": int,
        "is_packed_batching": int,
        "mrope_layout": int,
        "mrope_section": Required(list[int]),
        "num_heads": int,
        "rotary_embedding_dim": int,
        "scale": float,
    },
    T=SINGLE,
    M=("int64",),
)(same)


@contrib(
    "GemmaRotaryEmbedding",
    "emb: U, q: T, q_rot: T, k: T, k_rot: T -> output1: T, output2: T",
    T=("float16",),
    U=("float",),
)
def gemma_rotary(call: Call) -> Sequence[Shape | None]:
    """Shaped like queries and keys."""
    return call.shape(1), call.shape(3)
