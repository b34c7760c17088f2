"""What EPContext nodes keep outside of their model: handed to a function when it is made, asked of one when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxplug.contract.errors import Fail
from onnxplug.session.options import SessionOptions
from onnxplug.session.settings import as_size


class OrtEpContextData:
    """Data that a compilation produced, during the call that hands it over."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._data)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A part of the data. IndexError outside of it."""
        length = len(self._data) - offset if length is None else length
        if not 0 <= offset <= len(self._data) or not 0 <= length <= len(self._data) - offset:
            raise IndexError(f"bytes {offset}..{offset + length} of {len(self._data)}")
        return self._data[offset : offset + length]


class OrtEpContextDataBuffer:
    """Where a ``set_ep_context_data_read_func`` function puts the data it is asked for."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._data: bytearray | None = None

    @property
    def max_size(self) -> int:
        """The most bytes that may be allocated."""
        return self._max_size

    @property
    def is_allocated(self) -> bool:
        """Whether ``allocate`` was called."""
        return self._data is not None

    @property
    def size(self) -> int:
        """Bytes allocated."""
        return len(self._data or b"")

    def allocate(self, size: int) -> None:
        """Take memory for the whole data, once. RuntimeError for a second call and for more than ``max_size``."""
        if self._data is not None:
            raise RuntimeError("The buffer is allocated already")
        if as_size(size) > self._max_size:
            raise RuntimeError(f"{size} bytes are more than the {self._max_size} that were allowed")
        self._data = bytearray(size)

    def write(self, data: Any, offset: int = 0) -> None:
        """Copy a part of the data. RuntimeError before ``allocate``, IndexError outside of the buffer."""
        if self._data is None:
            raise RuntimeError("allocate() must be called before write()")
        part = memoryview(data).cast("B")
        if not 0 <= offset <= len(self._data) - len(part):
            raise IndexError(f"bytes {offset}..{offset + len(part)} of {len(self._data)}")
        self._data[offset : offset + len(part)] = part


def reader(options: SessionOptions) -> Callable[[str], bytes] | None:
    """The options' function in the form in which placement calls it. Fail where it does not do its part."""
    if options._ep_context_reader is None:
        return None
    function, limit = options._ep_context_reader

    def read(name: str) -> bytes:
        buffer = OrtEpContextDataBuffer(limit)
        try:
            function(name, buffer)
        except Exception as error:
            raise Fail(f"The function that reads EPContext data failed for '{name}': {error}") from error
        if buffer._data is None:
            raise Fail(f"The function that reads EPContext data allocated nothing for '{name}'")
        return bytes(buffer._data)

    return read
