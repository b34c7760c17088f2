"""Drawing a token by its probability, among the likeliest that together have a probability of ``top_p``."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.run.generation.request import Request


class Generator:
    """Uniform numbers from the linear congruential generator of Lewis, Goodman and Miller (1969), C++'s ``minstd_rand0``: as
    onnxruntime, the same seed gives the same tokens."""

    _MULTIPLIER, _MODULUS = 16807, 2**31 - 1

    def __init__(self, seed: int) -> None:
        self._state = seed % 2**32 % self._MODULUS or 1

    def _step(self) -> int:
        self._state = self._state * self._MULTIPLIER % self._MODULUS
        return self._state - 1

    def uniform(self) -> float:
        """A number in [0, 1), of two steps since one has too few bits."""
        span = self._MODULUS - 1
        low = self._step()
        return min((low + self._step() * span) / (float(span) * span), math.nextafter(1, 0))


class Draws:
    """Draws tokens for a request."""

    def __init__(self, request: Request) -> None:
        self._generator = Generator(int(request.numbers["seed"]))
        self._top = np.float32(request.attribute("top_p", 0.0))
        self._kept = request.attribute("min_tokens_to_keep", 0)
        self._filtered = np.float32(request.attribute("filter_value", -1e20))
        self._from_above = request.attribute("custom", 0) != 0

    def filter(self, scores: np.ndarray) -> None:
        """Give ``filter_value`` in place to tokens behind the likeliest ones (rows, vocabulary)."""
        for row in scores:
            order = np.argsort(-row if self._from_above else row, kind="stable")
            ranked = row[order]
            shares = np.exp(ranked - ranked.max())
            below = np.cumsum(shares / shares.sum(), dtype=np.float32)
            if self._from_above:
                row[order[1:][below[:-1] > self._top]] = self._filtered
            else:
                gone = below <= 1 - self._top
                gone[max(1, row.size - self._kept) :] = False
                row[order[gone]] = self._filtered

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """A token for each row of scores, whose exponentials are the weights."""
        made = np.empty(scores.shape[0], np.int32)
        for row, known in enumerate(scores):
            finite = np.isfinite(known)
            weights = np.where(finite, np.exp(known - known.max(where=finite, initial=-np.inf), dtype=np.float64), 0)
            edges = np.cumsum(weights)
            made[row] = min(np.searchsorted(edges, self._generator.uniform() * edges[-1], side="right"), known.size - 1)
        return made
