"""Output ``cross_qk`` of WhisperBeamSearch: products of queries and keys of the source in chosen heads, of the sequences returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.graph.generation import Layout
from onnxplug.run.generation.request import Request, refused


class Crossings:
    """What the decoder gave in each of its runs, and which rows each choice of tokens continued. Heads are those of
    ``cross_qk_layer_head`` (heads, 2), a layer and a head each; all where it is omitted."""

    def __init__(self, request: Request, layout: Layout) -> None:
        if not layout.crossed:
            raise Fail(f"Node ({request.name}): output 'cross_qk' is asked for, decoder_output_cross_qk is 0")
        self._request = request
        given = request.masks.get("cross_qk_layer_head")
        every = np.indices((layout.layers, layout.heads)).reshape(2, -1).T
        pairs = every if given is None else given
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise refused(request.name, f"input 'cross_qk_layer_head' has shape {pairs.shape}, expected is (heads, 2)")
        if ((pairs < 0) | (pairs >= (layout.layers, layout.heads))).any():
            raise refused(
                request.name,
                f"input 'cross_qk_layer_head' names heads beyond {layout.layers} layers of {layout.heads}",
            )
        self._pairs = pairs.tolist()
        self._runs: list[tuple[int, np.ndarray]] = []
        self._parents: list[np.ndarray] = []

    def take(self, layers: Sequence[Any]) -> None:
        """Keep what a run gave, of each layer (rows, heads, tokens, frames)."""
        if layers:
            kept = [layers[layer][:, head] for layer, head in self._pairs]
            made = np.stack(kept, axis=1) if kept else np.zeros((layers[0].shape[0], 0, *layers[0].shape[2:]))
            self._runs.append((len(self._parents), made.astype(np.float32)))

    def advance(self, rows: np.ndarray) -> None:
        """Each new row continues one of the old ones."""
        self._parents.append(rows)

    def results(self, origins: Sequence[Sequence[tuple[int, int]]], frames: int) -> np.ndarray:
        """(batch, returned, heads, tokens, frames), zeros behind the end of a sequence. ``origins``: of each sequence, how many tokens were
        chosen for it, and its row then."""
        count = int(self._request.numbers["num_return_sequences"])
        length = sum(run.shape[2] for _, run in self._runs)
        made = np.zeros((self._request.batch, count, len(self._pairs), length, frames), np.float32)
        for prompt, found in enumerate(origins):
            for at, (chosen, row) in enumerate(found[:count]):
                rows = [row]
                for parents in reversed(self._parents[:chosen]):
                    rows.append(int(parents[rows[-1]]))
                rows.reverse()
                begin = 0
                for trip, run in self._runs[: sum(trip <= chosen for trip, _ in self._runs)]:
                    end = begin + run.shape[2]
                    made[prompt, at, :, begin:end] = run[rows[trip]]
                    begin = end
        return made
