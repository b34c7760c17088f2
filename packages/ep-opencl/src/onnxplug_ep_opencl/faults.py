"""Errors that only a kernel sees, as an index beyond a tensor. The kernel leaves its node's number on the device, and the end of a run
asks for it."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import DataTransfer
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_opencl.memory import ClAllocator, ClTensor

OUT_OF_BOUNDS = "an index is out of bounds"


class Faults:
    """Which of a session's nodes met such an error since it was last asked. Runs of several threads share it."""

    def __init__(self, allocator: ClAllocator, transfer: DataTransfer) -> None:
        self._allocator, self._transfer = allocator, transfer
        self._tensor: ClTensor | None = None
        self._known: list[tuple[str, type[Exception]]] = []

    def watch(
        self, name: str, text: str = OUT_OF_BOUNDS, error: type[Exception] = InvalidArgument
    ) -> tuple[ClTensor, int]:
        """Where a node's kernel leaves its number, and the number, for the ``error`` that says ``text``."""
        said = f"{name}: {text}", error
        if self._tensor is None:
            self._tensor = self._allocator.tensor(np.dtype(np.int32), (1,))
            self._clear()
        if said not in self._known:
            self._known.append(said)
        return self._tensor, self._known.index(said) + 1

    def check(self) -> None:
        """The error that names the node, if one met an error."""
        if self._tensor is None:
            return
        found = np.zeros(1, np.int32)
        self._transfer.copy(self._tensor, found)
        if found[0]:
            self._clear()
            said, error = self._known[found[0] - 1]
            raise error(said)

    def _clear(self) -> None:
        self._transfer.copy(np.zeros(1, np.int32), self._tensor)
