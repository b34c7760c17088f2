"""One memory space of a provider, used directly: blocks, native arrays over them, and bytes in and out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Allocator, Buffer, DataTransfer
from onnxplug.plugins import ProviderInstance
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.subject import Subject


class Space:
    """The default memory of an instance."""

    def __init__(self, instance: ProviderInstance) -> None:
        allocators = instance.call("create_allocators")
        if not allocators:
            raise Unsupported("allocator")
        self.instance = instance
        self.allocator: Allocator = allocators[0]
        self.transfer: DataTransfer | None = instance.call("get_data_transfer")

    def view(self, buffer: Buffer, dtype: np.dtype, shape: Sequence[int], offset: int = 0) -> Any:
        """A native array over a block."""
        return self.instance.provider.view(buffer, offset, dtype, tuple(shape))

    def write(self, array: np.ndarray, native: Any) -> None:
        """Host to native."""
        if self.transfer is None:
            np.copyto(native, array)
        else:
            self.transfer.copy(array, native)

    def read(self, native: Any) -> np.ndarray:
        """Native to a fresh host array."""
        if self.transfer is None:
            return np.array(native)
        array = np.empty(tuple(native.shape), np.dtype(native.dtype))
        self.transfer.copy(native, array)
        return array

    @contextlib.contextmanager
    def block(self, nbytes: int) -> Iterator[Buffer]:
        """A block, given back at the end."""
        buffer = self.allocator.allocate(nbytes)
        try:
            yield buffer
        finally:
            self.allocator.free(buffer)


@contextlib.contextmanager
def space_of(subject: Subject, **options: str) -> Iterator[Space]:
    """The default memory of a fresh instance; Unsupported when the provider brings no allocator."""
    with subject.instance(**options) as instance:
        yield Space(instance)
