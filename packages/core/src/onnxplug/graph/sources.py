"""How the array of a constant is had once more after it was let go, as far as that can be told to a later process."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType
from onnxplug.graph.value import Value
from onnxplug.load.origin import Origin


@record(frozen=True, slots=True, eq=False)
class Stored:
    """An initializer that lies in the model at ``offset``."""

    origin: Origin
    offset: int
    type: TensorType

    def __call__(self) -> np.ndarray:
        """A view of the model, read-only."""
        return self._array(self.origin.bytes_at(self.offset, self._nbytes))

    def read(self) -> np.ndarray:
        """An array of its own, read-only, which stays what it is whatever becomes of the model's file."""
        return self._array(self.origin.read(self.offset, self._nbytes))

    @property
    def _nbytes(self) -> int:
        return math.prod(self.type.static_shape or ()) * self.type.dtype.itemsize

    def _array(self, held: np.ndarray) -> np.ndarray:
        array: np.ndarray = held.view(self.type.dtype).reshape(self.type.static_shape or ())
        array.flags.writeable = False
        return array


@record(frozen=True, slots=True, eq=False)
class Transposed:
    """Another constant with its dimensions in another order."""

    source: Value
    order: tuple[int, ...]

    def __call__(self) -> np.ndarray:
        """A view of the constant, where that lies."""
        return self._turned(self.source.view())

    def read(self) -> np.ndarray:
        """A view of the constant, read into memory."""
        return self._turned(self.source.constant)

    def _turned(self, array: np.ndarray | None) -> np.ndarray:
        assert array is not None
        return array.transpose(self.order)


@record(frozen=True, slots=True, eq=False)
class Widened:
    """Another constant, of 16 bits, in float32."""

    source: Value

    def __call__(self) -> np.ndarray:
        """The same numbers."""
        array = self.source.view()
        assert array is not None
        return array.astype(np.float32)


@record(frozen=True, slots=True, eq=False)
class Scaled:
    """Another constant times ``factors``, which broadcast to it."""

    source: Value
    factors: np.ndarray

    def __call__(self) -> np.ndarray:
        """The product."""
        array = self.source.view()
        assert array is not None
        if array.dtype not in (np.float16, np.float32):
            return np.asarray((array * self.factors).astype(array.dtype))
        # in float64 as well, but a few thousand at a time: a whole weight never exists in it
        made: np.ndarray = np.multiply(array, self.factors, out=np.empty_like(array), casting="same_kind")
        return made
