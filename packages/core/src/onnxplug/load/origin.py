"""Where the bytes of initializers came from, so that they can be had again after they were let go."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.records import record

WORD = 8
"""Bytes; where elements lie across words, arithmetic is slow or not possible."""


def absolute(path: str) -> str:
    """A path that does not depend on the working folder; ".." stays, as what it means depends on symbolic links."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


@record(frozen=True, slots=True)
class FileOrigin:
    """A model's file as it was when it was read."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str, descriptor: int) -> FileOrigin:
        """The file that is open under a descriptor."""
        state = os.fstat(descriptor)
        return cls(absolute(path), state.st_size, state.st_mtime_ns)

    def bytes_at(self, offset: int, nbytes: int) -> np.ndarray:
        """A part of the file, mapped into memory: it is read where it is looked at. Fail when the file is not the one that
        was read."""
        with self._unchanged():
            return np.asarray(np.memmap(self.path, np.uint8, "r", offset, (nbytes,)))

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """A part of the file, read into memory. Fail as above."""
        held = np.empty(nbytes, np.uint8)
        with self._unchanged(), open(self.path, "rb", buffering=0) as file:
            file.seek(offset)
            filled = 0
            while filled < nbytes:  # the system reads at most 2 GB at once
                if not (count := file.readinto(held[filled:].data)):
                    raise OSError("it ends before them")
                filled += count
        return held

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        try:
            state = os.stat(self.path)
            if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
                raise OSError("it has been written to since the session was created")
            yield
        except (OSError, ValueError) as error:
            raise Fail(
                f"Weights are needed again from '{self.path}', but {error}. Keep the file as long as its sessions, or create "
                "them from bytes"
            ) from error


@record(frozen=True, slots=True)
class BytesOrigin:
    """A model given as bytes, which are kept."""

    data: bytes

    def bytes_at(self, offset: int, nbytes: int) -> np.ndarray:
        """A part of the bytes, not copied."""
        return np.frombuffer(self.data, np.uint8, nbytes, offset)

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """The same, but copied where elements would lie across words."""
        held = self.bytes_at(offset, nbytes)
        return held if held.ctypes.data % WORD == 0 else held.copy()


Origin = FileOrigin | BytesOrigin
