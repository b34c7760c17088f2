"""Runs of the decoder's subgraphs, step after step: what they are fed, and which rows of the past the next step continues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from onnxplug.graph.generation import GPT, T5, Layout
from onnxplug.run.generation.request import Request

Run = Callable[[list[Any]], list[Any]]
"""A subgraph's outputs for its inputs."""


class Decoding(ABC):
    """One text being made; ``runs`` are the subgraphs by the names of their attributes."""

    def __init__(self, layout: Layout, request: Request, runs: Mapping[str, Run]) -> None:
        self.layout, self.request, self.runs = layout, request, runs
        self._rows = request.batch * request.beams
        self._past: list[Any] = []
        self._length = 0
        """Tokens that the past knows."""
        self.crossed: Sequence[Any] = ()
        """Of each layer, products of queries and the source's keys (rows, heads, tokens, frames) that the last run gave."""

    @property
    def frames(self) -> int:
        """Length of what was encoded."""
        return 0

    @abstractmethod
    def first(self) -> np.ndarray:
        """Logits (rows or prompts, length, vocabulary) after the start."""

    @abstractmethod
    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Logits (rows, 1, vocabulary) after ``tokens`` (rows, length), where the new rows continue these old ones."""

    def _buffer(self, state: np.ndarray, axis: int) -> np.ndarray:
        """A past of full length, where past and present are one buffer."""
        missing = self.request.max_length - state.shape[axis]
        if not self.layout.extras or missing <= 0:
            return state
        shape = (*state.shape[:axis], missing, *state.shape[axis + 1 :])
        return np.concatenate([state, np.zeros(shape, state.dtype)], axis=axis)

    def _extras(self) -> list[np.ndarray]:
        """Length of the past, beams of a prompt, and whose past a beam has at each place: its own, since rows are brought in order."""
        request = self.request
        own = np.arange(request.beams, dtype=np.int32)[None, :, None]
        cache = np.broadcast_to(own, (request.batch, request.beams, request.max_length)).copy()
        made = [np.array([self._length], np.int32), np.array([request.beams], np.int32), cache]
        return made[: self.layout.extras]


class Gpt(Decoding):
    """A decoder alone."""

    def first(self) -> np.ndarray:
        request, layout = self.request, self.layout
        tokens = request.start
        given = request.masks.get("attention_mask")
        words = (tokens != request.attribute("pad_token_id", -1)).astype(np.int32)
        positions = np.maximum(np.cumsum(words, axis=1, dtype=np.int32) - 1, 0) * words
        self._mask = (words if given is None else given).repeat(request.beams, axis=0)
        tokens, words, positions = (x.repeat(request.beams, axis=0) for x in (tokens, words, positions))
        self._positions = words.sum(axis=1, dtype=np.int32, keepdims=True)
        shape = (2, self._rows, layout.heads, 0, layout.size)
        self._past = [self._buffer(np.zeros(shape, numpy_dtype(layout.element)), 3)] * layout.layers
        return self._run(self.runs.get("init_decoder", self.runs["decoder"]), tokens, positions)

    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        self._past = [state[:, rows] for state in self._past] if self.request.beams > 1 else self._past
        self._mask = np.concatenate([self._mask, np.ones((self._rows, 1), np.int32)], axis=1)
        logits = self._run(self.runs["decoder"], tokens[:, -1:], self._positions)
        self._positions = self._positions + np.int32(1)
        return logits

    def _run(self, run: Run, tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        logits, *self._past = run([tokens, positions, self._mask, *self._past, *self._extras()])
        self._length += tokens.shape[1]
        made: np.ndarray = logits
        return made


class EncoderDecoder(Decoding):
    """T5 and Whisper: what was encoded is the same in all steps, as are its keys and values."""

    def first(self) -> np.ndarray:
        request, layout = self.request, self.layout
        source = [request.ids]
        if layout.model == T5:
            given = request.masks.get("attention_mask")
            # Padding is on the left; behind the first word a pad is the end of the text.
            known = (
                (request.ids != request.attribute("pad_token_id", -1)).cumsum(axis=1) > 0 if given is None else given
            )
            source.append(known.astype(np.int32))
        self._fixed = [x.repeat(request.beams, axis=0) for x in source[1:]]
        if layout.starts:
            logits, encoded, *states = self.runs["encoder"]([*source, request.start])
            self._fixed += self._expanded([encoded]) if layout.encoded else []
            own, self._crossed = states[: 2 * layout.layers], self._expanded(states[2 * layout.layers :])
            self._past = [self._buffer(state, 2) for state in self._expanded(own)]
            self._length = request.start.shape[1]
            made: np.ndarray = logits
            return made
        self._crossed = self._expanded(self.runs["encoder"](source))
        empty = np.zeros((self._rows, layout.heads, 0, layout.size), numpy_dtype(layout.element))
        self._past = [self._buffer(empty, 2)] * (2 * layout.layers)
        return self._run(request.start.repeat(request.beams, axis=0))

    @property
    def frames(self) -> int:
        return int(self._crossed[0].shape[2])

    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        self._past = [state[rows] for state in self._past] if self.request.beams > 1 else self._past
        return self._run(tokens if self.layout.whole else tokens[:, -1:])

    def _run(self, tokens: np.ndarray) -> np.ndarray:
        made = self.runs["decoder"]([tokens, *self._fixed, *self._past, *self._crossed, *self._extras()])
        behind = 1 + 2 * self.layout.layers
        self._past, self.crossed = made[1:behind], made[behind:]
        self._length += 1 if self.layout.whole else tokens.shape[1]
        logits: np.ndarray = made[0]
        return logits

    def _expanded(self, states: Sequence[Any]) -> list[Any]:
        return [state.repeat(self.request.beams, axis=0) for state in states]


def decoding(layout: Layout, request: Request, runs: Mapping[str, Run]) -> Decoding:
    """The one for a layout."""
    return (Gpt if layout.model == GPT else EncoderDecoder)(layout, request, runs)
