"""Native arrays between guard bands: what a kernel may write is its outputs and its workspace, not a byte before or behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxplug.contract import Buffer
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.space import Space

GUARD = 256
BYTES = np.dtype(np.uint8)


@dataclass(frozen=True)
class Banded:
    """A native array with a band of noise on both sides. ``whole`` shows all of it, ``before`` is what it held at first; ``buffer`` is
    the block of a memory that is the provider's."""

    native: Any
    whole: Any
    before: np.ndarray
    buffer: Buffer | None = None

    def keeps(self, after: np.ndarray, everything: bool) -> bool:
        """Whether the bands (and for inputs the contents) are as they were."""
        if everything:
            return after.tobytes() == self.before.tobytes()
        return all(
            after[band].tobytes() == self.before[band].tobytes() for band in (slice(0, GUARD), slice(-GUARD, None))
        )

    def shown_as(self, instance: Any, like: np.ndarray) -> Banded:
        """The same bytes as a native array of another type and shape."""
        if self.buffer is not None:
            return replace(self, native=instance.provider.view(self.buffer, GUARD, like.dtype, like.shape))
        return replace(self, native=self.whole[GUARD:-GUARD].view(like.dtype).reshape(like.shape))


@contextlib.contextmanager
def banded(
    instance: Any,
    array: np.ndarray,
    rng: np.random.Generator | None = None,
    arrange: Callable[[np.ndarray], np.ndarray] = np.ascontiguousarray,
) -> Iterator[Banded]:
    """``array`` in the default memory of an instance. ``arrange`` lays it out anew where that is the host's and the core's own."""
    rng = rng or np.random.default_rng(array.nbytes)
    try:
        space = Space(instance)
    except Unsupported:  # host memory of the core's own
        yield _on_host(rng, array, arrange)
        return
    before = _framed(rng, array)
    with space.block(before.size) as buffer:
        whole = space.view(buffer, BYTES, (before.size,))
        space.write(before, whole)
        yield Banded(space.view(buffer, array.dtype, array.shape, GUARD), whole, before, buffer)


def _framed(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    noise = [rng.integers(0, 256, GUARD).astype(BYTES) for _ in range(2)]
    return np.concatenate([noise[0], np.frombuffer(array.tobytes(), BYTES), noise[1]])


def _on_host(rng: np.random.Generator, array: np.ndarray, arrange: Callable[[np.ndarray], np.ndarray]) -> Banded:
    laid = arrange(array)
    if not laid.flags.c_contiguous:
        whole = _bytes_under(laid)
        return Banded(laid, whole, whole.copy())
    before = _framed(rng, array)
    room = np.empty(before.size + 64, BYTES)
    start = -room.ctypes.data % 64
    whole = room[start : start + before.size]
    whole[:] = before
    return Banded(whole[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape), whole, before)


def _bytes_under(array: np.ndarray) -> np.ndarray:
    """All bytes of the array a view shows."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return root.reshape(-1).view(BYTES)


def contents_of(instance: Any, operand: Any, like: Any) -> Any:
    """What an output of the form of ``like`` holds, as a host array."""
    if not isinstance(operand, Banded):
        return operand
    whole = read(instance, operand.whole)
    return whole[GUARD : GUARD + like.nbytes].view(like.dtype).reshape(like.shape)


def read(instance: Any, native: Any) -> np.ndarray:
    """A host copy of a native array."""
    if isinstance(native, np.ndarray):
        return native.copy()
    return Space(instance).read(native)
