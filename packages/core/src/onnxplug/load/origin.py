"""Where the bytes of initializers came from, so that they can be had again after they were let go."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.records import record


@record(frozen=True, slots=True)
class FileOrigin:
    """A model's file as it was when it was read."""

    path: Path
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path, descriptor: int) -> FileOrigin:
        """The file that is open under a descriptor."""
        state = os.fstat(descriptor)
        return cls(path.absolute(), state.st_size, state.st_mtime_ns)

    def bytes_at(self, offset: int, nbytes: int) -> np.ndarray:
        """A part of the file, mapped into memory: it is read where it is looked at. Fail when the file is not the one that
        was read."""
        try:
            state = self.path.stat()
            if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
                raise OSError("it has been written to since the session was created")
            return np.asarray(np.memmap(self.path, np.uint8, "r", offset, (nbytes,)))
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


Origin = FileOrigin | BytesOrigin
