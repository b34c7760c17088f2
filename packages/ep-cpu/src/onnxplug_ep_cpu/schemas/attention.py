"""Attention, and the recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import BYTES, SINGLE
from onnxplug_ep_cpu.schemas.shapes import dims, over, plus, same, times


@contrib(
    "Attention",
    "input: T, weights: T, bias: T?, mask_index: M?, past: T?, attention_bias: T?, past_sequence_length: M? "
    "-> output: T, present: T?",
    {
        "do_rotary": int,
        "mask_filter_value": float,
        "num_heads": Required(int),
        "past_present_share_buffer": int,
        "qkv_hidden_sizes": list[int],
        "rotary_embedding_dim": int,
        "scale": float,
        "unidirectional": 0,
    },
    T=SINGLE,
    M=("int32",),
)
def attention(call: Call) -> Sequence[Shape | None]:
    """Result and present of self-attention."""
    sizes = call.attribute("qkv_hidden_sizes")
    return _self_attention(call, 4, sizes[2] if sizes else over(dims(call.shape(1), 2)[1], 3))


@contrib(
    "QAttention",
    "input: T1, weight: T2, bias: T3, input_scale: T3, weight_scale: T3, mask_index: T4?, input_zero_point: T1?, "
    "weight_zero_point: T2?, past: T3? -> output: T3, present: T3?",
    {
        "do_rotary": int,
        "mask_filter_value": float,
        "num_heads": Required(int),
        "past_present_share_buffer": int,
        "scale": float,
        "unidirectional": 0,
    },
    T1=BYTES,
    T2=BYTES,
    T3=("float16", "float"),
    T4=("int32",),
)
def quantized_attention(call: Call) -> Sequence[Shape | None]:
    """Result and present of self-attention."""
    return _self_attention(call, 8, over(dims(call.shape(1), 2)[1], 3))


def _self_attention(call: Call, past: int, width: Dim) -> Sequence[Shape | None]:
    batch, length, _ = dims(call.shape(0), 3)
    heads = call.attribute("num_heads")
    before = call.shape(past)
    total = length if before is None else plus(before[3], length)
    if before is not None and call.attribute("past_present_share_buffer"):
        total = before[3]
    return (batch, length, width), (2, batch, heads, total, over(width, heads))


@contrib(
    "MultiHeadAttention",
    "query: T, key: T?, value: T?, bias: T?, key_padding_mask: M?, attention_bias: T?, past_key: T?, past_value: T?, "
    "past_sequence_length: M?, cache_indirection: M? -> output: T, present_key: T?, present_value: T?, qk: QK?",
    {"mask_filter_value": float, "num_heads": Required(int), "scale": float, "unidirectional": 0},
    T=SINGLE,
    QK=SINGLE,
    M=("int32",),
    unbound={"QK": lambda call: call.element(0)},
)
def multi_head_attention(call: Call) -> Sequence[Shape | None]:
    """Result, presents and scores."""
    query, heads = call.shape(0), call.attribute("num_heads")
    if query is None:
        return (None,) * 4
    keys, key_size, value_size, width = _keys(call, query, heads)
    past = call.shape(6)
    room = total = keys if past is None else plus(past[2], keys)
    if past is not None and call.element(8) is not None:
        room, total = past[2], None  # the pasts are buffers, filled as far as the past's length says
    return (
        (*query[:2], width),
        (query[0], heads, room, key_size),
        (query[0], heads, room, value_size),
        (query[0], heads, query[1], total),
    )


def _keys(call: Call, query: Shape, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    """How many keys there are, the size of one and of a value, and the width of all heads' values."""
    key, value = call.shape(1), call.shape(2)
    packed = query if len(query) == 5 else key if key is not None and len(key) == 5 else None
    if packed is not None:
        return packed[1], packed[4], packed[4], times(packed[4], heads)
    if key is None or value is None:
        return (None,) * 4
    length, size = (key[2], key[3]) if len(key) == 4 else (key[1], over(key[2], heads))
    if len(value) == 4:
        return length, size, value[3], times(value[3], heads)
    return length, size, over(value[2], heads), value[2]


def _cache(call: Call) -> str | None:
    if call.attribute("k_quant_type").upper() == "NONE":
        return call.element(0)
    return "uint8" if call.attribute("kv_cache_bit_width") == 4 else "int8"


@contrib(
    "GroupQueryAttention",
    "query: T, key: T?, value: T?, past_key: T_CACHE?, past_value: T_CACHE?, seqlens_k: M, total_sequence_length: M, "
    "cos_cache: T?, sin_cache: T?, position_ids: int64?, attention_bias: T?, head_sink: T?, k_scale: T_KV_SCALE?, "
    "v_scale: T_KV_SCALE?, q_norm_weight: T?, k_norm_weight: T?, query_seqlens: M? "
    "-> output: T, present_key: T_CACHE?, present_value: T_CACHE?, output_qk: T?",
    {
        "causal": 1,
        "do_rotary": int,
        "k_norm_epsilon": float,
        "k_quant_type": "NONE",
        "kv_cache_bit_width": int,
        "kv_num_heads": Required(int),
        "local_window_size": -1,
        "num_heads": Required(int),
        "q_norm_epsilon": float,
        "qk_norm_epsilon": 1e-6,
        "qk_output": 0,
        "rotary_interleaved": int,
        "scale": float,
        "sliding_window_cache": 0,
        "smooth_softmax": -1,
        "softcap": float,
        "v_quant_type": "NONE",
    },
    T=SINGLE,
    T_CACHE=(*SINGLE, "float8e4m3fn", "int8", "uint8"),
    T_KV_SCALE=("float",),
    M=("int32",),
    unbound={"T_CACHE": _cache},
)
def group_query_attention(call: Call) -> Sequence[Shape | None]:
    """Result, presents and scores; presents are as long as the pasts, or longer where they have to be."""
    batch, length, width = dims(call.shape(0), 3)
    heads, kv_heads = call.attribute("num_heads"), call.attribute("kv_num_heads")
    packed = call.element(1) is None
    size = over(width, heads + 2 * kv_heads if packed else heads)
    past, totals = call.shape(3), call.ints(6)
    total: Dim = totals[0] if totals else None
    room = total
    if past is not None:
        room = max(total, past[2]) if isinstance(total, int) and isinstance(past[2], int) else None
    stored = over(size, 2) if call.attribute("kv_cache_bit_width") == 4 else size
    present = (batch, kv_heads, room, stored)
    return (batch, length, times(heads, size)), present, present, (batch, heads, length, total)


contrib(
    "RotaryEmbedding",
    "input: T, position_ids: M, cos_cache: T, sin_cache: T -> output: T",
    {"interleaved": int, "is_packed_batching": int, "num_heads": int, "rotary_embedding_dim": int, "scale": float},
    T=SINGLE,
    M=("int64",),
)(same)


_LSTM: dict[str, Any] = {
    "activation_alpha": list[float],
    "activation_beta": list[float],
    "activations": list[str],
    "clip": float,
    "direction": "forward",
    "hidden_size": int,
    "input_forget": 0,
}


@contrib(
    "AttnLSTM",
    "X: T, W: T, R: T, B: T?, sequence_lens: T1?, initial_h: T?, initial_c: T?, P: T?, QW: T?, MW: T?, V: T?, M: T?, "
    "memory_seq_lens: T1?, AW: T? -> Y: T?, Y_h: T?, Y_c: T?",
    _LSTM,
    T=("float", "double"),
    T1=("int32",),
)
def attention_lstm(call: Call) -> Sequence[Shape | None]:
    """(steps, directions, batch, hidden), and two states."""
    return _recurrent(call, dims(call.shape(2), 3)[2])


@contrib(
    "DynamicQuantizeLSTM",
    "X: T, W: T2, R: T2, B: T?, sequence_lens: T1?, initial_h: T?, initial_c: T?, P: T?, W_scale: T, "
    "W_zero_point: T2, R_scale: T, R_zero_point: T2 -> Y: T?, Y_h: T?, Y_c: T?",
    _LSTM,
    T=("float",),
    T1=("int32",),
    T2=BYTES,
)
def lstm(call: Call) -> Sequence[Shape | None]:
    """(steps, directions, batch, hidden), and two states."""
    return _recurrent(call, dims(call.shape(2), 3)[1])


def _recurrent(call: Call, hidden: Dim) -> Sequence[Shape | None]:
    steps, batch, _ = dims(call.shape(0), 3)
    directions = 2 if call.attribute("direction") == "bidirectional" else 1
    size = call.attribute("hidden_size") or hidden
    state = (directions, batch, size)
    return (steps, directions, batch, size), state, state


_DECODER = {
    "mask_filter_value": float,
    "num_heads": Required(int),
    "past_present_share_buffer": int,
    "scale": float,
}


@contrib(
    "DecoderMaskedMultiHeadAttention",
    "query: T, key: T?, value: T?, mask_index: M?, attention_bias: T?, past_key: T?, past_value: T?, "
    "past_sequence_length: M?, beam_width: M?, cache_indirection: M?, bias: T? "
    "-> output: T, present_key: T?, present_value: T?, qk: T?",
    {**_DECODER, "output_qk": int},
    T=("float", "float16"),
    M=("int32",),
)
def decoder_attention(call: Call) -> Sequence[Shape | None]:
    """Result, presents and scores."""
    batch, one, width = dims(call.shape(0), 3)
    heads, key, value, past = call.attribute("num_heads"), call.shape(1), call.shape(2), call.shape(5)
    if call.element(1) is None:
        width = values = over(width, 3)
    else:
        values = None if value is None else times(value[3], heads) if len(value) == 4 else value[2]
    known: Dim = key[2] if key is not None and len(key) == 4 else one
    shared = past is not None and call.attribute("past_present_share_buffer")
    total = known if past is None else past[2] if shared else plus(past[2], known)
    return (
        (batch, one, values),
        (batch, heads, total, over(width, heads)),
        (batch, heads, total, over(values, heads)),
        (batch, heads, one, None if shared else total),
    )


@contrib(
    "DecoderMaskedSelfAttention",
    "input: T, weights: T, bias: T, mask_index: M?, past: T, attention_bias: T?, past_sequence_length: M, "
    "beam_width: M?, cache_indirection: M? -> output: T, present: T",
    {**_DECODER, "do_rotary": int},
    T=("float", "float16"),
    M=("int32",),
)
def decoder_self_attention(call: Call) -> Sequence[Shape | None]:
    """Result and present of self-attention."""
    return _self_attention(call, 4, over(dims(call.shape(1), 2)[1], 3))


@contrib(
    "SparseAttention",
    "query: T, key: T?, value: T?, past_key: T, past_value: T, block_row_indices: M, block_col_indices: M, "
    "total_sequence_length: M, key_total_sequence_lengths: M, cos_cache: T?, sin_cache: T? "
    "-> output: T, present_key: T, present_value: T",
    {
        "do_rotary": int,
        "kv_num_heads": Required(int),
        "num_heads": Required(int),
        "rotary_interleaved": int,
        "scale": float,
        "sparse_block_size": Required(int),
    },
    T=SINGLE,
    M=("int32",),
)
def sparse_attention(call: Call) -> Sequence[Shape | None]:
    """Result, and presents as long as the pasts."""
    batch, length, width = dims(call.shape(0), 3)
    heads = call.attribute("num_heads")
    if call.element(1) is None:
        width = times(over(width, heads + 2 * call.attribute("kv_num_heads")), heads)
    return (batch, length, width), call.shape(3), call.shape(4)
