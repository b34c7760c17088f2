"""Whisper's rules for timestamps (OpenAI's ``whisper/decoding.py``, ApplyTimestampRules): they come in pairs, do not decrease, the first
is near the start of the sound, and one comes where timestamps together are likelier than any word."""

from __future__ import annotations

import numpy as np

from onnxplug.run.generation.request import Request, refused

_LATEST = 50
"""The latest first timestamp: one second, in steps of 0.02 s."""
_NEVER = ("no_timestamps_token_id", "start_of_lm_token_id")
_AT_START = ("decoder_start_token_id", "translate_token_id", "transcribe_token_id")


class Timestamps:
    """Changes scores (rows, vocabulary) in place, by the tokens so far (rows, length). Tokens from ``beginning_timestamp_token_id`` on
    are timestamps; InvalidArgument where the vocabulary has none."""

    def __init__(self, request: Request, vocabulary: int) -> None:
        self._first = request.attribute("beginning_timestamp_token_id", -1)
        if not 0 < self._first < vocabulary:
            raise refused(request.name, f"beginning_timestamp_token_id ({self._first}) is not in 1..{vocabulary - 1}")
        self._end = request.attribute("eos_token_id", -1)
        self._never, self._at_start = (
            [token for name in names if 0 <= (token := request.attribute(name, -1)) < vocabulary]
            for names in (_NEVER, _AT_START)
        )

    def __call__(self, scores: np.ndarray, tokens: np.ndarray) -> None:
        """Change the scores after ``tokens`` in place."""
        scores[:, self._never] = np.finfo(scores.dtype).min
        for row, sequence in zip(scores, tokens, strict=True):
            self._pair(row, sequence)
            self._prefer(row)

    def _pair(self, row: np.ndarray, sequence: np.ndarray) -> None:
        first, lowest = self._first, np.finfo(row.dtype).min
        times = np.flatnonzero(sequence >= first)
        start = times[0] + 1 if times.size else sequence.size  # tokens up to the first timestamp
        single = False
        if sequence.size > start:
            row[self._at_start] = lowest
            single = sequence[-1] >= first > sequence[-2]
        else:
            row[first + _LATEST + 1 :] = lowest
        if single:
            row[: self._end] = lowest
        elif sequence[-1] >= first:
            row[first:] = lowest
        if times.size:
            row[first : sequence[times[-1]] + (not single)] = lowest

    def _prefer(self, row: np.ndarray) -> None:
        lowest = np.finfo(row.dtype).min
        words, times = row[: self._first], row[self._first :]
        likely = times[times > lowest]
        if likely.size and likely.max() + np.log(np.exp(likely - likely.max()).sum()) > words.max():
            words[:] = lowest
