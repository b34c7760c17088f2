"""What one run of a generating node was asked for: its attributes, and the numbers and masks that it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.records import record
from onnxplug.graph.generation import GPT, WHISPER
from onnxplug.graph.ir import Node

MOST_TOKENS, MOST_BEAMS = 4096, 128
"""Limits of onnxruntime, which allocates for all of them."""
_COMMON = ("input_ids", "max_length", "min_length")
_MASKS = ("vocab_mask", "prefix_vocab_mask", "attention_mask")
_BEAMS = ("num_beams", "num_return_sequences", "length_penalty", "repetition_penalty")
INPUTS = {
    "GreedySearch": (*_COMMON, "repetition_penalty", *_MASKS),
    "Sampling": (*_COMMON, "repetition_penalty", *_MASKS, "presence_mask", "seed"),
    "BeamSearch": (*_COMMON, *_BEAMS, *_MASKS, "decoder_input_ids", "logits_processor"),
    "WhisperBeamSearch": (
        *_COMMON, *_BEAMS, *_MASKS, "decoder_input_ids", "logits_processor", "cross_qk_layer_head",
        "extra_decoding_ids", "temperature",
    ),
}  # fmt: skip
"""Names of the inputs, in order (ContribOperators.md)."""
_LISTS = ("cross_qk_layer_head", "extra_decoding_ids")
_NUMBERS = {
    "max_length": MOST_TOKENS, "min_length": 0, "num_beams": 1, "num_return_sequences": 1, "length_penalty": 1.0,
    "repetition_penalty": 1.0, "logits_processor": 0, "seed": 0, "temperature": 1.0,
}  # fmt: skip
"""Inputs of one number, and what they are where they are omitted."""


@record(slots=True)
class Request:
    """``ids`` are the prompt, tokens (batch, length) or sound (batch, channels, frames); ``start`` the tokens that decoding starts with.
    Numbers and masks, with them heads and tokens to follow, are named as in the operators' documentation; masks are None where there are
    none."""

    name: str
    ids: np.ndarray
    start: np.ndarray
    numbers: Mapping[str, Any]
    attributes: Mapping[str, Any]
    masks: Mapping[str, np.ndarray | None]

    @property
    def batch(self) -> int:
        """How many prompts there are."""
        return int(self.ids.shape[0])

    @property
    def beams(self) -> int:
        """Beams of a prompt."""
        return int(self.numbers["num_beams"])

    @property
    def max_length(self) -> int:
        """Tokens of a result, those of the prompt included."""
        return int(self.numbers["max_length"])

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the node, else the operator's default."""
        return self.attributes.get(name, default)

    def mask(self, name: str, *shape: int) -> np.ndarray | None:
        """A mask as it was given. InvalidArgument where it has another shape."""
        given = self.masks.get(name)
        if given is not None and given.shape != shape:
            raise refused(self.name, f"input '{name}' has shape {given.shape}, expected is {shape}")
        return given


def read(node: Node, model: int, operands: Sequence[Any]) -> Request:
    """The request of a node. InvalidArgument where a number or a shape is not what the operator takes."""
    named = dict(zip(INPUTS[node.op_type], operands, strict=False))
    numbers = {name: _number(node.name, name, named.get(name), default) for name, default in _NUMBERS.items()}
    ids = named["input_ids"]
    rank = 3 if model == WHISPER else 2
    if ids.ndim != rank or 0 in ids.shape[:1]:
        raise refused(node.name, f"input 'input_ids' has shape {ids.shape}, expected are {rank} dimensions and a batch")
    start = _start(node, model, ids, named.get("decoder_input_ids"))
    extra = named.get("extra_decoding_ids")
    if extra is not None and (extra.ndim != 2 or extra.shape[0] != ids.shape[0]):
        raise refused(
            node.name, f"input 'extra_decoding_ids' has shape {extra.shape}, expected is ({ids.shape[0]}, length)"
        )
    masks = {name: value for name, value in named.items() if name.endswith("_mask") or name in _LISTS}
    _check(node.name, numbers, start.shape[1])
    attended = masks.get("attention_mask")
    if attended is not None and attended.shape != ids.shape and model != WHISPER:
        raise refused(node.name, f"input 'attention_mask' has shape {attended.shape}, 'input_ids' has {ids.shape}")
    return Request(node.name, ids, start.astype(np.int32), numbers, node.attributes, masks)


def _start(node: Node, model: int, ids: np.ndarray, given: np.ndarray | None) -> np.ndarray:
    batch = ids.shape[0]
    if given is None and model == GPT:
        return ids
    if given is None:
        first = node.attributes.get("decoder_start_token_id", -1)
        if first < 0:
            raise refused(node.name, "attribute decoder_start_token_id says no token to start with")
        return np.full((batch, 1), first, np.int32)
    if model != WHISPER:
        raise refused(node.name, "input 'decoder_input_ids' is for model_type 2 (Whisper)")
    if given.ndim != 2 or given.shape[0] != batch or given.shape[1] < 1:
        raise refused(node.name, f"input 'decoder_input_ids' has shape {given.shape}, expected is ({batch}, length)")
    return given


def _number(node: str, name: str, given: np.ndarray | None, default: Any) -> Any:
    if given is None:
        return default
    if given.size != 1:
        raise refused(node, f"input '{name}' has shape {given.shape}, expected is one number")
    return given.astype(np.float32 if isinstance(default, float) else np.int64).item()


def _check(node: str, numbers: Mapping[str, Any], length: int) -> None:
    most, beams = numbers["max_length"], numbers["num_beams"]
    for fits, why in (
        (length > 0, f"there are {length} tokens to start with"),
        (most > length, f"max_length ({most}) is no greater than the length to start with ({length})"),
        (most <= MOST_TOKENS, f"max_length ({most}) is greater than {MOST_TOKENS}"),
        (numbers["min_length"] < most, f"min_length ({numbers['min_length']}) is no smaller than max_length ({most})"),
        (1 <= beams <= MOST_BEAMS, f"num_beams ({beams}) is not in 1..{MOST_BEAMS}"),
        (
            1 <= numbers["num_return_sequences"] <= beams,
            f"num_return_sequences ({numbers['num_return_sequences']}) is not in 1..num_beams ({beams})",
        ),
        (numbers["repetition_penalty"] > 0, f"repetition_penalty ({numbers['repetition_penalty']}) is not above 0"),
    ):
        if not fits:
            raise refused(node, why)


def refused(node: str, why: str) -> Exception:
    """What is raised for an input that does not fit."""
    return InvalidArgument(f"Node ({node}): {why}")
