"""Hashes of n-grams of tokens, in domain ``com.microsoft``: rows of Engram's embedding tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.contrib_packed import captured, check_capture, request_spans

MS = "com.microsoft"


@op("NGramHashMapping", 1, domain=MS, portable=False)
def ngram_hash_mapping(
    xp: Any,
    input_ids: Any,
    multipliers: Any,
    vocab_sizes: Any,
    past_ids: Any = None,
    head_offsets: Any = None,
    eos_token_id: Any = None,
    segment_ids: Any = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """For each token of (batch, length) and each n from 2 up: the n tokens that end there, each times its multiplier, exclusive-or,
    modulo the size of each head's table; (batch, length, heads of all n). Then the ids that the next call takes as the past."""
    fill = _fill(pad_id, eos_token_id)
    batch, length = input_ids.shape
    ids = _with_past(past_ids, input_ids, (batch, max_ngram_size - 1), fill)
    segments = None
    if segment_ids is not None:  # what lies before the first is in its segment
        segments = _with_past(None, segment_ids, (batch, max_ngram_size - 1), segment_ids[:, :1])
    ends = fill if eos_token_id is not None and reset_on_eos else None
    hashes = _hashes(
        ids, multipliers, vocab_sizes, head_offsets, segments, fill, ends, max_ngram_size, n_head_per_ngram
    )
    return (hashes, np.array(ids[:, length:], copy=True))[:n_outputs]


@op("VarlenNGramHashMapping", 1, domain=MS, portable=False)
def varlen_ngram_hash_mapping(
    xp: Any,
    input_ids: Any,
    multipliers: Any,
    vocab_sizes: Any,
    cumulative_sequence_length: Any,
    past_ids: Any = None,
    head_offsets: Any = None,
    eos_token_id: Any = None,
    segment_ids: Any = None,
    past_segment_ids: Any = None,
    capture_count: Any = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """NGramHashMapping of sequences that stand one behind the other in (tokens,), ``cumulative_sequence_length`` telling where each
    begins; hashes (tokens, heads of all n). Then for each sequence the ids and segments that its next call takes, and the ids so after
    each of its first ``capture_count`` tokens, (sequences, capacity, n - 1)."""
    spans = request_spans(cumulative_sequence_length, input_ids.shape[0])
    check_capture(capture_count, state_update_capacity, len(spans))
    if past_segment_ids is not None and segment_ids is None:
        raise ValueError("past_segment_ids requires segment_ids")
    if n_outputs == 3 and segment_ids is None:
        raise ValueError("present_segment_ids requires segment_ids")
    fill, before = _fill(pad_id, eos_token_id), max_ngram_size - 1
    ends = fill if eos_token_id is not None and reset_on_eos else None
    hashes, present, kept = [], [], []
    updates = np.full((len(spans), state_update_capacity, before), pad_id, input_ids.dtype)
    for row, (start, stop) in enumerate(spans):
        past = None if past_ids is None else past_ids[row : row + 1]
        ids = _with_past(past, input_ids[None, start:stop], (1, before), fill)
        segments = None
        if segment_ids is not None:
            past = None if past_segment_ids is None else past_segment_ids[row : row + 1]
            given, first = segment_ids[None, start:stop], segment_ids[start]
            segments = _with_past(past, given, (1, before), first, "past_segment_ids")
            kept.append(segments[:, stop - start :])
        hashes.append(
            _hashes(ids, multipliers, vocab_sizes, head_offsets, segments, fill, ends, max_ngram_size, n_head_per_ngram)
        )
        present.append(ids[:, stop - start :])
        for token in range(captured(capture_count, row, state_update_capacity, stop - start)):
            updates[row, token] = ids[0, token + 1 : token + 1 + before]
    segments = np.concatenate(kept) if kept else None
    return (np.concatenate(hashes, axis=1)[0], np.concatenate(present), segments, updates)[:n_outputs]


def _fill(pad_id: int, eos_token_id: Any) -> int:
    """What stands for tokens before the first."""
    return pad_id if eos_token_id is None else int(eos_token_id.reshape(()))


def _with_past(past: Any, given: Any, shape: tuple[int, int], fill: Any, name: str = "past_ids") -> Any:
    """(batch, past + length): what was given behind its past of ``shape``, which is ``fill`` where there is none."""
    if past is None:
        past = np.broadcast_to(np.asarray(fill, given.dtype), shape)
    if past.shape != shape:
        raise ValueError(f"{name} has shape {past.shape}, expected is {shape}")
    return np.concatenate([past, given], axis=1)


def _hashes(
    ids: Any,
    multipliers: Any,
    vocab_sizes: Any,
    head_offsets: Any,
    segments: Any,
    fill: int,
    ends: int | None,
    max_ngram_size: int,
    n_head_per_ngram: int,
) -> Any:
    """Hashes of the tokens behind the past; no n-gram reaches over a token ``ends`` or from one segment into another."""
    before = max_ngram_size - 1
    heads = before * n_head_per_ngram
    if max_ngram_size < 2 or n_head_per_ngram < 1 or multipliers.shape[0] < max_ngram_size:
        raise ValueError(f"{multipliers.shape[0]} multipliers for n-grams of up to {max_ngram_size} tokens")
    if vocab_sizes.shape != (heads,) or (vocab_sizes <= 0).any():
        raise ValueError(f"vocab_sizes are {vocab_sizes.tolist()}, expected are {heads} numbers above 0")
    length = ids.shape[1] - before
    resets = np.zeros(ids.shape, bool)  # places whose tokens cannot see what lies before them
    if ends is not None:
        resets[:, 1:] |= ids[:, :-1] == ends
    if segments is not None:
        resets[:, 1:] |= segments[:, 1:] != segments[:, :-1]
    starts = np.maximum.accumulate(np.where(resets, np.arange(ids.shape[1]), -1), axis=1)
    with np.errstate(over="ignore"):
        mix = ids[:, before:] * multipliers[0]
        made = []
        for shift in range(1, max_ngram_size):
            places = np.arange(before - shift, before - shift + length)
            seen = np.where(places >= starts[:, before:], ids[:, places], np.asarray(fill, ids.dtype))
            mix = mix ^ (seen * multipliers[shift])
            sizes = vocab_sizes[(shift - 1) * n_head_per_ngram : shift * n_head_per_ngram]
            made.append(mix[:, :, None] % sizes)
        hashes = np.concatenate(made, axis=2)
        return hashes if head_offsets is None else hashes + head_offsets
