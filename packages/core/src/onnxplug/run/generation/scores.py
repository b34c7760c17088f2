"""Scores of the next token: what forbids tokens and what weighs them, applied in turn to rows of scores (rows, vocabulary).

A row is a beam of a prompt, rows of a prompt stand together. The order of the steps is onnxruntime's; the meaning of each is that of
its namesake in transformers (``generation/logits_process.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.graph.generation import WHISPER
from onnxplug.run.generation.request import Request, refused
from onnxplug.run.generation.timestamps import Timestamps

LOWEST = float(np.finfo(np.float32).min)
"""Score of a token that must not come."""

Step = Callable[[np.ndarray, np.ndarray], None]
"""Changes scores in place; the second operand are the tokens so far (rows, length)."""


def last_scores(logits: np.ndarray, vocabulary: int) -> np.ndarray:
    """The scores after the last token, float32, from logits (rows, length, vocabulary or more)."""
    if logits.ndim != 3 or logits.shape[1] < 1 or logits.shape[2] < vocabulary:
        raise Fail(f"the decoder gave logits of shape {logits.shape}, expected is (rows, length, {vocabulary})")
    scores = logits[:, -1, :vocabulary].astype(np.float32)
    if np.isnan(scores).any():
        raise Fail("the decoder gave logits that are not numbers (NaN)")
    return scores


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities that rows of scores stand for."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    made: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return made


class Processors:
    """The steps that a request asks for; called for each new token."""

    def __init__(self, request: Request, model: int, vocabulary: int) -> None:
        numbers, eos = request.numbers, request.attribute("eos_token_id", -1)
        allowed = request.mask("vocab_mask", vocabulary)
        first = request.mask("prefix_vocab_mask", request.batch, vocabulary)
        present = request.mask("presence_mask", request.batch, vocabulary)
        ngram = request.attribute("no_repeat_ngram_size", 0)
        temperature = request.attribute("temperature", numbers["temperature"])
        penalty = request.attribute("presence_penalty", 0.0)
        steps: list[Step | None] = [
            _repetition(numbers["repetition_penalty"]) if numbers["repetition_penalty"] != 1 else None,
            _no_repeat(ngram) if ngram > 0 else None,
            _forbid(allowed == 0) if allowed is not None else None,
            _at_first(_forbid(first.repeat(request.beams, axis=0) == 0)) if first is not None else None,
            _min_length(numbers["min_length"], eos) if 0 <= eos < vocabulary else None,
            _temperature(temperature) if temperature > 0 and temperature != 1 else None,
            _presence(present, penalty) if present is not None and penalty else None,
            Timestamps(request, vocabulary) if model == WHISPER and numbers["logits_processor"] == 1 else None,
            _forced(request, vocabulary) if request.masks.get("extra_decoding_ids") is not None else None,
        ]
        self._steps = [step for step in steps if step is not None]

    def __call__(self, scores: np.ndarray, tokens: np.ndarray) -> None:
        """Change the scores after ``tokens`` in place."""
        for step in self._steps:
            step(scores, tokens)


def _repetition(penalty: float) -> Step:
    """Scores of tokens that were there are made lower: divided, those below 0 multiplied."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        for row, seen in zip(scores, tokens, strict=True):
            there = np.unique(seen)
            there = there[(there >= 0) & (there < row.size)]
            row[there] = np.where(row[there] < 0, row[there] * np.float32(penalty), row[there] / np.float32(penalty))

    return step


def _no_repeat(size: int) -> Step:
    """No run of ``size`` tokens comes twice."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        if tokens.shape[1] < size:
            return
        runs = np.lib.stride_tricks.sliding_window_view(tokens, size, axis=1)
        again = (runs[:, :, : size - 1] == tokens[:, None, tokens.shape[1] - size + 1 :]).all(axis=2)
        row, at = np.nonzero(again)
        scores[row, runs[row, at, -1]] = LOWEST

    return step


def _forbid(forbidden: np.ndarray) -> Step:
    """``forbidden``: (vocabulary,) or (rows, vocabulary)."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        scores[np.broadcast_to(forbidden, scores.shape)] = LOWEST

    return step


def _at_first(inner: Step) -> Step:
    """The step at the first token that is made, no later."""
    waits = [inner]

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        if waits:
            waits.pop()(scores, tokens)

    return step


def _forced(request: Request, vocabulary: int) -> Step:
    """The tokens of ``extra_decoding_ids`` (batch, length) come first, each as if it were certain; one below 0 ends those of its prompt."""
    given, start = np.asarray(request.masks["extra_decoding_ids"]), request.start.shape[1]
    if (given >= vocabulary).any():
        raise refused(
            request.name, f"input 'extra_decoding_ids' has {given.max()}, which is not among {vocabulary} tokens"
        )
    counts = np.logical_and.accumulate(given >= 0, axis=1)
    given, counts = given.repeat(request.beams, axis=0), counts.repeat(request.beams, axis=0)

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        at = tokens.shape[1] - start
        if at < given.shape[1]:
            rows = np.flatnonzero(counts[:, at])
            scores[rows] = LOWEST
            scores[rows, given[rows, at]] = 0

    return step


def _min_length(length: int, eos: int) -> Step:
    """No end before ``length`` tokens."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        if tokens.shape[1] < length:
            scores[:, eos] = LOWEST

    return step


def _temperature(temperature: float) -> Step:
    """High temperatures make scores alike."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        scores /= np.float32(temperature)

    return step


def _presence(present: np.ndarray, penalty: float) -> Step:
    """What is marked present scores less."""

    def step(scores: np.ndarray, tokens: np.ndarray) -> None:
        scores -= present.astype(np.float32) * np.float32(penalty)

    return step
