"""Hashes of n-grams of tokens, in domain ``com.microsoft``: rows of Engram's embedding tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op

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
    before = max_ngram_size - 1
    heads = before * n_head_per_ngram
    if max_ngram_size < 2 or n_head_per_ngram < 1 or multipliers.shape[0] < max_ngram_size:
        raise ValueError(f"{multipliers.shape[0]} multipliers for n-grams of up to {max_ngram_size} tokens")
    if vocab_sizes.shape != (heads,) or (vocab_sizes <= 0).any():
        raise ValueError(f"vocab_sizes are {vocab_sizes.tolist()}, expected are {heads} numbers above 0")
    fill = pad_id if eos_token_id is None else int(eos_token_id.reshape(()))
    batch, length = input_ids.shape
    past = np.full((batch, before), fill, input_ids.dtype) if past_ids is None else past_ids
    if past.shape != (batch, before):
        raise ValueError(f"past_ids has shape {past.shape}, expected is {(batch, before)}")
    ids = np.concatenate([past, input_ids], axis=1)
    resets = np.zeros(ids.shape, bool)  # places whose tokens cannot see what lies before them
    if eos_token_id is not None and reset_on_eos:
        resets[:, 1:] |= ids[:, :-1] == fill
    if segment_ids is not None:
        resets[:, before + 1 :] |= segment_ids[:, 1:] != segment_ids[:, :-1]
    starts = np.maximum.accumulate(np.where(resets, np.arange(ids.shape[1]), -1), axis=1)
    with np.errstate(over="ignore"):
        mix = input_ids * multipliers[0]
        made = []
        for shift in range(1, max_ngram_size):
            places = np.arange(before - shift, before - shift + length)
            seen = np.where(places >= starts[:, before:], ids[:, places], np.asarray(fill, ids.dtype))
            mix = mix ^ (seen * multipliers[shift])
            sizes = vocab_sizes[(shift - 1) * n_head_per_ngram : shift * n_head_per_ngram]
            made.append(mix[:, :, None] % sizes)
        hashes = np.concatenate(made, axis=2)
        if head_offsets is not None:
            hashes = hashes + head_offsets
    return (hashes, np.array(ids[:, ids.shape[1] - before :], copy=True))[:n_outputs]
