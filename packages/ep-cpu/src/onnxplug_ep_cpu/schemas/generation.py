"""Operators that generate text around subgraphs, which the core runs: it tells the shapes of their outputs itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import GraphProto

from onnxplug.contract.types import Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib

_TOKENS: dict[str, Any] = {
    "decoder": Required(GraphProto),
    "decoder_start_token_id": -1,
    "encoder": GraphProto,
    "eos_token_id": Required(int),
    "init_decoder": GraphProto,
    "model_type": 0,
    "no_repeat_ngram_size": 0,
    "pad_token_id": Required(int),
    "vocab_size": -1,
}
_PROMPT = "input_ids: I, max_length: I, min_length: I?"
_GREEDY = f"{_PROMPT}, repetition_penalty: T?, vocab_mask: I?, prefix_vocab_mask: I?, attention_mask: I?"
_BEAMS = (
    "input_ids: F, max_length: I, min_length: I?, num_beams: I, num_return_sequences: I, length_penalty: T?, "
    "repetition_penalty: T?, vocab_mask: M?, prefix_vocab_mask: M?, attention_mask: I?, decoder_input_ids: I?, "
    "logits_processor: I?"
)
_SCORES = "sequences: I, sequences_scores: T?, scores: T?"
_HALVES = ("float", "float16")
_SOURCE = ("float", "int32", "float16")
_IDS = ("int32",)


def _by_the_core(call: Call) -> Sequence[Shape | None]:
    return []


contrib("GreedySearch", f"{_GREEDY} -> sequences: I", _TOKENS, T=("float",), I=_IDS)(_by_the_core)
contrib(
    "Sampling",
    f"{_GREEDY}, presence_mask: I?, seed: I? -> sequences: I, filtered_logits: T?",
    {
        **_TOKENS,
        "custom": 0,
        "filter_value": -1e20,
        "min_tokens_to_keep": 0,
        "presence_penalty": 0.0,
        "temperature": 1.0,
        "top_p": 0.0,
    },
    T=("float",),
    I=_IDS,
)(_by_the_core)
contrib("BeamSearch", f"{_BEAMS} -> {_SCORES}", {**_TOKENS, "early_stopping": 0}, T=_HALVES, F=_SOURCE, I=_IDS, M=_IDS)(
    _by_the_core
)
contrib(
    "WhisperBeamSearch",
    f"{_BEAMS}, cross_qk_layer_head: I?, extra_decoding_ids: I?, temperature: T? -> {_SCORES}, cross_qk: V?, "
    "non_speech_probs: T?",
    {
        **_TOKENS,
        "model_type": 2,
        "early_stopping": 0,
        **{
            name: int
            for name in (
                "beginning_timestamp_token_id", "decoder_output_cross_qk", "no_speech_token_id",
                "no_timestamps_token_id", "start_of_lm_token_id", "transcribe_token_id", "translate_token_id",
            )
        },
    },
    T=_HALVES, F=_SOURCE, I=_IDS, M=_IDS,
    V=("float",),
)(_by_the_core)  # fmt: skip
