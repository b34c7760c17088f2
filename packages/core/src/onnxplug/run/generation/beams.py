"""Beam search: the best continuations of each prompt, and the finished ones among which the results are."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.run.generation.request import Request

_NOT_YET = -1e9
"""Score of the beams that begin as copies of a prompt's first."""


class Hypotheses:
    """The best finished sequences of one prompt, best first, scored by their log-probability over a power of their length."""

    def __init__(self, count: int, penalty: float, early: bool) -> None:
        self._count, self._penalty, self._early = count, penalty, early
        self.found: list[tuple[float, np.ndarray, int]] = []

    def add(self, tokens: np.ndarray, log_probability: float, row: int) -> None:
        """Keep a sequence if it is among the best; ``row`` is where it stood."""
        score = self._score(log_probability, tokens.size)
        if len(self.found) == self._count and score <= self.found[-1][0]:
            return
        at = sum(1 for known, *_ in self.found if known >= score)
        self.found.insert(at, (score, tokens.copy(), row))
        del self.found[self._count :]

    def is_done(self, log_probability: float, length: int) -> bool:
        """Whether nothing better is to come, where the best unfinished sequence has this log-probability and length."""
        if len(self.found) < self._count:
            return False
        return self._early or self.found[-1][0] >= self._score(log_probability, length)

    def _score(self, log_probability: float, length: int) -> float:
        return float(np.float32(log_probability) / np.float32(length) ** np.float32(self._penalty))


class Beams:
    """The state of a search: tokens (rows, length) so far, and the log-probability of each row."""

    def __init__(self, request: Request) -> None:
        self._request, beams = request, request.beams
        self._eos, self._pad = request.attribute("eos_token_id", -1), request.attribute("pad_token_id", -1)
        early = request.attribute("early_stopping", 0) == 1
        penalty = float(request.numbers["length_penalty"])
        self._finished = [Hypotheses(beams, penalty, early) for _ in range(request.batch)]
        self._done = [False] * request.batch
        self.tokens = request.start.repeat(beams, axis=0)
        self.scores = np.where(np.arange(self.tokens.shape[0]) % beams, _NOT_YET, 0).astype(np.float32)

    @property
    def is_done(self) -> bool:
        """Whether the results of all prompts are found."""
        return all(self._done)

    def advance(self, scores: np.ndarray) -> np.ndarray:
        """Append a token to each row, by the log-probabilities (rows, vocabulary) of the sequences that result; gives the rows that the new
        ones continue."""
        beams = self._request.beams
        rows = np.zeros(self.tokens.shape[0], np.int64)
        tokens = np.full_like(rows, self._pad)
        made = np.zeros_like(self.scores)
        width = scores.shape[1]
        for prompt, known in enumerate(scores.reshape(self._request.batch, -1)):
            if self._done[prompt]:
                continue
            best = largest(known, 2 * beams)
            first = prompt * beams
            taken = 0
            for place, at in enumerate(best):
                row, token = first + at // width, at % width
                if token == self._eos:
                    if place < beams:
                        self._finished[prompt].add(self.tokens[row], known[at], int(row))
                    continue
                rows[first + taken], tokens[first + taken], made[first + taken] = row, token, known[at]
                taken += 1
                if taken == beams:
                    break
            if taken < beams:
                raise Fail(f"a vocabulary of {width} tokens is too small for {beams} beams")
            self._done[prompt] = self._finished[prompt].is_done(known[best[0]], self.tokens.shape[1])
        self.tokens = np.concatenate([self.tokens[rows], tokens[:, None].astype(np.int32)], axis=1)
        self.scores = made
        return rows

    @property
    def origins(self) -> list[list[tuple[int, int]]]:
        """Of each prompt's results, how many tokens were chosen, and the row then."""
        start = self._request.start.shape[1]
        return [[(tokens.size - start, row) for _, tokens, row in finished.found] for finished in self._finished]

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequences (batch, returned, max_length), padded, and their scores (batch, returned), best first."""
        request, beams = self._request, self._request.beams
        count = int(request.numbers["num_return_sequences"])
        sequences = np.full((request.batch, count, request.max_length), self._pad, np.int32)
        scores = np.zeros((request.batch, count), np.float32)
        for prompt, finished in enumerate(self._finished):
            if not self._done[prompt]:
                for row in range(prompt * beams, (prompt + 1) * beams):
                    finished.add(self.tokens[row], self.scores[row], row)
            for at, (score, tokens, _) in enumerate(finished.found[:count]):
                sequences[prompt, at, : tokens.size], scores[prompt, at] = tokens, score
        return sequences, scores


def largest(values: np.ndarray, count: int) -> Any:
    """Where the ``count`` largest values are, in descending order, the first of equal ones first."""
    count = min(count, values.size)
    least = np.partition(values, values.size - count)[values.size - count]
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")[:count]]
