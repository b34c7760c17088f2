"""The operators: greedy search, drawing, and beam search, each a loop around a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.graph.generation import layout_of
from onnxplug.place.units import ControlUnit
from onnxplug.run.control import Control
from onnxplug.run.executor import GraphRunner
from onnxplug.run.generation.beams import Beams
from onnxplug.run.generation.crossings import Crossings
from onnxplug.run.generation.decoding import Decoding, decoding
from onnxplug.run.generation.draws import Draws
from onnxplug.run.generation.request import Request, read, refused
from onnxplug.run.generation.scores import Processors, last_scores, log_softmax
from onnxplug.run.memory import Memories
from onnxplug.run.quiet import Quiet


class Generating(Control, ABC):
    """What the loops share."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        self.layout = layout_of(unit.node)
        self.outputs = [value is not None for value in unit.node.outputs]

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        request = read(self.node, self.layout.model, operands[: self.given])
        runs, at = {}, self.given
        for name, runner in self.runners.items():
            behind = at + len(runner.placed.captures)
            runs[name] = partial(self._run, runner, operands[at:behind], options)
            at = behind
        with Quiet():  # what is forbidden leaves the range of floats
            return self.generate(request, decoding(self.layout, request, runs))

    def _run(self, runner: GraphRunner, captured: Sequence[Any], options: Any, given: list[Any]) -> list[Any]:
        self._check(options)
        return runner.run([*given, *captured], options)

    @abstractmethod
    def generate(self, request: Request, steps: Decoding) -> list[Any]:
        """The node's outputs."""

    def asks(self, output: int) -> bool:
        """Whether the node has that output."""
        return output < len(self.outputs) and self.outputs[output]

    def vocabulary(self, logits: np.ndarray) -> int:
        """How many tokens there are; logits may be padded to more."""
        return self.layout.vocabulary or int(logits.shape[-1])


class GreedySearch(Generating):
    """Operator GreedySearch: the likeliest token each time, until all prompts have ended."""

    def generate(self, request: Request, steps: Decoding) -> list[Any]:
        eos, pad = request.attribute("eos_token_id", -1), request.attribute("pad_token_id", -1)
        tokens, logits = request.start, steps.first()
        process = Processors(request, self.layout.model, self.vocabulary(logits))
        choose = self.choosing(request)
        ended = np.zeros(request.batch, bool)
        while True:
            scores = last_scores(logits, self.vocabulary(logits))
            process(scores, tokens)
            chosen = choose(scores)
            ended |= chosen == eos
            tokens = np.concatenate([tokens, np.where(ended, pad, chosen)[:, None].astype(np.int32)], axis=1)
            if ended.all() or tokens.shape[1] >= request.max_length:
                break
            logits = steps.next(tokens, np.arange(request.batch))
        made = np.full((request.batch, request.max_length), pad, np.int32)
        made[:, : tokens.shape[1]] = tokens
        return [made, scores][: len(self.outputs)]

    def choosing(self, request: Request) -> Any:
        """What gives a token for each row of scores."""
        return partial(np.argmax, axis=1)


class Sampling(GreedySearch):
    """Operator Sampling: tokens drawn by their probabilities."""

    def choosing(self, request: Request) -> Any:
        draws = Draws(request)

        def choose(scores: np.ndarray) -> np.ndarray:
            draws.filter(scores)
            return draws(scores)

        return choose


class BeamSearch(Generating):
    """Operators BeamSearch and WhisperBeamSearch: the likeliest sequences of several tokens."""

    def generate(self, request: Request, steps: Decoding) -> list[Any]:
        crossings = Crossings(request, self.layout) if self.asks(3) else None
        logits, beams = steps.first(), Beams(request)
        vocabulary = self.vocabulary(logits)
        process = Processors(request, self.layout.model, vocabulary)
        speech = self._silence(request, last_scores(logits, vocabulary)) if self.asks(4) else None
        count = request.max_length - request.start.shape[1]
        known = np.zeros((count if self.asks(2) else 0, request.batch, request.beams, vocabulary), np.float32)
        for trip in range(count):
            scores = log_softmax(last_scores(logits, vocabulary))
            if scores.shape[0] == request.batch < beams.scores.size:
                scores = scores.repeat(request.beams, axis=0)
            process(scores, beams.tokens)
            scores += beams.scores[:, None]
            if trip < len(known):
                known[trip] = scores.reshape(known.shape[1:])
            if crossings is not None:
                crossings.take(steps.crossed)
            rows = beams.advance(scores)
            if crossings is not None:
                crossings.advance(rows)
            if beams.is_done or trip == count - 1:
                break
            logits = steps.next(beams.tokens, rows)
        sequences, found = beams.results()
        products = None if crossings is None else crossings.results(beams.origins, steps.frames)
        return [sequences, found, known, products, speech][: len(self.outputs)]

    def _silence(self, request: Request, scores: np.ndarray) -> np.ndarray:
        """How probable it is that nobody speaks (batch,), by the scores after the start."""
        token = request.attribute("no_speech_token_id", -1)
        if not 0 <= token < scores.shape[1]:
            raise refused(request.name, f"no_speech_token_id ({token}) is not in 0..{scores.shape[1] - 1}")
        made: np.ndarray = np.exp(log_softmax(scores)[:, token])
        return made[:: scores.shape[0] // request.batch]
