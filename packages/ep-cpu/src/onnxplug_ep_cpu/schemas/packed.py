"""Operators on sequences that stand one behind the other, and on weights in ggml's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug.contract.types import ELEMENT_NAMES, Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import SINGLE
from onnxplug_ep_cpu.schemas.shapes import dims, known, plus, times


@contrib(
    "VarlenCausalConvWithState",
    "input: T, weight: T, cumulative_sequence_length: M, bias: T?, initial_state: T, capture_count: M?, kernel_delta: T?, "
    "previous_mask: T? -> output: T, final_state: T, state_update: T?",
    {"activation": "none", "delta_offset": 0, "dilation": 1, "group_size": 1, "state_update_capacity": 0},
    T=SINGLE,
    M=("int32",),
)
def varlen_causal_conv(call: Call) -> Sequence[Shape | None]:
    """Shaped like the input and its states; a row for each token that is told."""
    state = dims(call.shape(4), 3)
    return call.shape(0), state, (state[0], call.attribute("state_update_capacity"), dims(call.shape(0), 2)[1])


@contrib(
    "VarlenNGramHashMapping",
    "input_ids: M, multipliers: M, vocab_sizes: M, cumulative_sequence_length: S, past_ids: M?, head_offsets: M?, "
    "eos_token_id: M?, segment_ids: int32?, past_segment_ids: S?, capture_count: S? -> hash_ids: M, present_ids: M?, "
    "present_segment_ids: S?, state_update: M?",
    {
        "max_ngram_size": Required(int),
        "n_head_per_ngram": Required(int),
        "pad_id": Required(int),
        "reset_on_eos": 0,
        "state_update_capacity": 0,
    },
    M=("int32", "int64"),
    S=("int32",),
)
def varlen_ngram_hashes(call: Call) -> Sequence[Shape | None]:
    """A hash for each token, length of n-gram and head, and what goes before the next tokens of each sequence."""
    before, batch = call.attribute("max_ngram_size") - 1, _sequences(call, 3)
    hashes = (dims(call.shape(0), 1)[0], before * call.attribute("n_head_per_ngram"))
    return hashes, (batch, before), (batch, before), (batch, call.attribute("state_update_capacity"), before)


def _sequences(call: Call, index: int) -> Dim:
    count = known(dims(call.shape(index), 1)[0])
    return None if count is None else count - 1


@contrib(
    "GatedDeltaNet",
    "query: T, key: T?, value: T?, cu_seqlens: TI?, decay: TG?, beta: TG?, initial_state: TS?, a_log: TS?, dt_bias: TS?, "
    "capture_count: TI?, state_update_active: TI? -> output: T, final_state: TS?, state_update: TS?",
    {
        "beta_activation": "none",
        "chunk_size": 64,
        "gate_activation": "none",
        "gate_lower_bound": -5.0,
        "qk_l2_norm": 0,
        "scale": 0.0,
        "state_update_capacity": 0,
        "update_rule": "gated_delta",
    },
    T=SINGLE,
    TS=("float",),
    TG=SINGLE,
    TI=("int32",),
    unbound={"TS": lambda call: "float"},
)
def gated_delta_net(call: Call) -> Sequence[Shape | None]:
    """Values of each head, a matrix for each sequence and head, and what repeats the first tokens."""
    query, key, value, state = (call.shape(i) for i in (0, 1, 2, 6))
    if query is None or (call.element(1) is None and state is None):
        return None, state, None
    packed = call.element(1) is None
    tokens = query[:-1] if packed else query[:-2]
    if state is None:
        if key is None or value is None:
            return None, None, None
        count = _sequences(call, 3) if call.element(3) is not None else tokens[0] if len(tokens) == 2 else None
        state = (count, value[-2], value[-1], key[-1])
    count, heads, value_size, size = dims(state, 4)
    keys: Dim = None if key is None else times(key[-2], known(size) or 0) if known(size) else None
    if packed and all(known(n) is not None for n in (query[-1], heads, value_size, size)):
        keys = (known(query[-1]) - known(heads) * known(value_size)) // 2  # type: ignore[operator]
    decay, capacity = call.shape(4), call.attribute("state_update_capacity")
    wide = decay is not None and len(decay) == len(tokens) + 2
    width = times(heads, size) if wide and isinstance(heads, int) and isinstance(size, int) else None if wide else heads
    if call.element(4) is not None and decay is None:
        width = None
    values = heads * value_size if isinstance(heads, int) and isinstance(value_size, int) else None
    told: Dim = 0
    for part in (width, keys, values):
        told = None if told is None or not isinstance(part, int) else plus(told, part)
    return (*tokens, heads, value_size), state, (count, None if told is None else told * capacity)


_PACKED: dict[str, Any] = {"K": Required(int), "packed_type": Required(int)}


@contrib(
    "GatherPacked",
    "data: T1, indices: Tind -> output: T2",
    {**_PACKED, "output_dtype": 16},
    T1=("uint8",),
    T2=SINGLE,
    Tind=("int32", "int64"),
    unbound={"T2": lambda call: ELEMENT_NAMES.get(call.attribute("output_dtype"))},
)
def gather_packed(call: Call) -> Sequence[Shape | None]:
    """A row for each index."""
    indices = call.shape(1)
    return [None if indices is None else (*indices, call.attribute("K"))]


@contrib(
    "MatMulPacked",
    "A: T1, B: T2, global_scale: Tscale? -> Y: T1",
    {**_PACKED, "N": Required(int), "activation_type": "none"},
    T1=("float16", "bfloat16"),
    T2=("uint8",),
    Tscale=("float",),
)
def matmul_packed(call: Call) -> Sequence[Shape | None]:
    """(..., N)."""
    a = call.shape(0)
    return [a and (*a[:-1], call.attribute("N"))]
