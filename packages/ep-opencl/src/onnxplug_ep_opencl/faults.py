"""Errors that only a kernel sees. The kernel leaves their number on the device, and the end of a run asks for it."""

from __future__ import annotations

import threading

import numpy as np

from onnxplug.contract import DataTransfer
from onnxplug_ep_opencl.memory import ClAllocator, ClTensor
from onnxplug_kernel_text.nodes.faults import Watched


class Faults(Watched):
    """Which of a session's nodes met such an error since the calling thread last asked. Kernels that several threads have launched each
    tell their own: a run ends with its errors and no other's."""

    def __init__(self, allocator: ClAllocator, transfer: DataTransfer) -> None:
        super().__init__()
        self._allocator, self._transfer = allocator, transfer
        self._own = threading.local()

    def here(self) -> ClTensor:
        """Where kernels that this thread launches leave numbers."""
        found: ClTensor | None = getattr(self._own, "tensor", None)
        if found is None:
            found = self._own.tensor = self._allocator.tensor(np.dtype(np.int32), (1,))
            self.clear()
        return found

    def check(self) -> None:
        """The error that names the node, if one met an error."""
        if not hasattr(self._own, "tensor"):
            return
        found = np.zeros(1, np.int32)
        self._transfer.copy(self._own.tensor, found)
        if found[0]:
            self.clear()
            raise self.error(found[0])

    def clear(self) -> None:
        """Forget what this thread's kernels have told."""
        if hasattr(self._own, "tensor"):
            self._transfer.copy(np.zeros(1, np.int32), self._own.tensor)
