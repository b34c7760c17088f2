"""Errors that only a kernel sees, as an index beyond a tensor: it leaves a number, and whoever reads that raises the error."""

from __future__ import annotations

import threading

from onnxplug.contract.errors import InvalidArgument

OUT_OF_BOUNDS = "an index is out of bounds"
INFINITE = "All 'rois' values must be finite"
TOO_MANY = "a region has too many samples"
NO_STEP = "Invalid sequence length: it must be in [0, time]"
NO_KEY = "seqlens_k is out of range"


class Watched:
    """The errors that the nodes of a session may meet, by number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, type[Exception]], int] = {}
        self._adding = threading.Lock()

    def watch(self, name: str, text: str = OUT_OF_BOUNDS, error: type[Exception] = InvalidArgument) -> int:
        """The number, 1 or more, that a node's kernel leaves for the ``error`` that says ``text``."""
        with self._adding:
            return self._numbers.setdefault((f"{name}: {text}", error), len(self._numbers) + 1)

    def error(self, number: int) -> Exception:
        """The error that a kernel left this number for."""
        said, error = list(self._numbers)[number - 1]
        return error(said)
