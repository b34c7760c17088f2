"""Alignment of tokens in domain ``com.microsoft``: dynamic time warping, aggressive decoding, and words embedded by their characters."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op

MS = "com.microsoft"


@op("DynamicTimeWarping", 1, domain=MS, portable=False)
def dynamic_time_warping(xp: Any, costs: Any) -> Any:
    """The cheapest path through a cost matrix (M, N), or (1, M, N), from its first element to its last: rows and columns, (2, steps) int32.

    A step goes down, right, or both. Where two ways are equally cheap the step goes right, whatever that costs: OpenAI's
    ``whisper/timing.py`` and onnxruntime do so.
    """
    if costs.ndim == 3 and costs.shape[0] == 1:
        costs = costs[0]
    if costs.ndim != 2 or 0 in costs.shape:
        raise ValueError(f"costs have shape {costs.shape}, expected is (M, N) or (1, M, N)")
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.zeros((rows + 1, columns + 1, 2), np.int8)
    for places in range(2, rows + columns + 1):  # elements of a diagonal do not depend on each other
        i = np.arange(max(1, places - columns), min(rows, places - 1) + 1)
        j = places - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both, is_down = (both < down) & (both < right), (down < both) & (down < right)
        total[i, j] = costs[i - 1, j - 1] + np.where(is_both, both, np.where(is_down, down, right))
        steps[i, j, 0], steps[i, j, 1] = is_both | is_down, ~is_down
    steps[1, 2:], steps[2:, 1] = (0, 1), (1, 0)
    i, j, path = rows, columns, [(rows - 1, columns - 1)]
    while i > 1 or j > 1:
        down, right = steps[i, j]
        i, j = i - int(down), j - int(right)
        path.append((i - 1, j - 1))
    return np.array(path[::-1], np.int32).T


@op("BifurcationDetector", 1, domain=MS, portable=False)
def bifurcation_detector(
    xp: Any,
    source: Any,
    current: Any,
    previous: Any,
    predicted: Any = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[Any, Any]:
    """``current`` with the predicted tokens behind it up to the first that differs from the source's, that one included, where the source
    is read from place ``previous``; then the place in the source behind the shortest last n-gram that it has just once, else -1."""
    if not 1 <= min_ngram_size <= max_ngram_size:
        raise ValueError(f"n-grams of {min_ngram_size} to {max_ngram_size} tokens")
    tokens = current
    if predicted is not None:
        expected = source[int(previous.reshape(())) :]
        if predicted.size != expected.size + 1:
            raise ValueError(f"{predicted.size} tokens are predicted for {expected.size} of the source")
        differs = np.flatnonzero(predicted[:-1] != expected)
        tokens = np.concatenate([current, predicted[: 1 + (differs[0] if differs.size else expected.size)]])
    place = -1
    for size in range(min_ngram_size, min(max_ngram_size, tokens.size, source.size) + 1):
        runs = np.lib.stride_tricks.sliding_window_view(source, size)
        found = np.flatnonzero((runs == tokens[tokens.size - size :]).all(axis=1))
        if found.size < 2:
            place = int(found[0]) + size if found.size else -1
            break
    return np.array(tokens, copy=True), np.array([place], source.dtype)


@op("WordConvEmbedding", 1, domain=MS, portable=False)
def word_conv_embedding(
    xp: Any,
    words: Any,
    w: Any,
    b: Any,
    table: Any,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> Any:
    """Vectors (words, filters) of words given by their characters, (words, length), 0 behind the last: each filter (filters, 1, window,
    size) slides over the characters' embeddings, and the largest tanh of what it finds stays. An empty word has the vector 0."""
    filters, _, window, size = w.shape
    told = {"embedding_size": (embedding_size, filters), "conv_window_size": (conv_window_size, window)}
    told["char_embedding_size"] = (char_embedding_size, size)
    for name, (given, is_) in told.items():
        if given not in (None, is_):
            raise ValueError(f"{name} is {given}, the tensors have {is_}")
    if words.ndim != 2 or words.shape[1] < window or table.shape[1] != size:
        raise ValueError(f"words {words.shape} and characters {table.shape} do not go with filters {w.shape}")
    lengths = np.count_nonzero(words > 0, axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(table[words], window, axis=1)
    made = np.tanh(np.einsum("wpsk,fks->wpf", windows, w[:, 0], optimize=True) + b)
    behind = np.arange(made.shape[1]) > np.maximum(lengths - window, 0)[:, None]
    best = np.where(behind[:, :, None], np.float32(-1), made).max(axis=1)
    return np.where(lengths[:, None] > 0, best, np.float32(0)).astype(w.dtype)
