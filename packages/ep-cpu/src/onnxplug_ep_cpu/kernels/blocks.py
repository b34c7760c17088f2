"""Scratch memory and cache-sized blocks, shared by the families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec

# Elements a chain of ufuncs works on at a time: operands stay in the last cache level, and calls cost little.
BLOCK = 1 << 16


class Scratch:
    """Lays arrays out in the workspace of one bound kernel; each starts on a cache line."""

    def __init__(self) -> None:
        self.nbytes = 0

    def array(self, shape: Sequence[int], dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
        """Reserve an array; the function returned finds it in the workspace of a run."""
        shape, start = tuple(shape), self.nbytes
        self.nbytes += -(-math.prod(shape) * dtype.itemsize // 64) * 64
        return lambda workspace: np.ndarray(shape, dtype, workspace, start)


def spans(total: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive blocks of at most ``step``."""
    step = max(1, step)
    return ((start, min(start + step, total)) for start in range(0, total, step))


def blockwise(body: Callable[..., None], x: TensorSpec, scratch: int = 0) -> Into:
    """``body(x, y, *scratch)`` over flat blocks of one input and an output of the same shape and dtype.

    Blocks are done one after the other, so ``y`` may lie over ``x`` if the body has then read ``x`` for the last time.
    """
    size = math.prod(x.shape)
    block = min(size, BLOCK)
    space = Scratch()
    arrays = [space.array((block,), x.dtype) for _ in range(scratch)]
    blocks = [slice(a, b) for a, b in spans(size, block)]

    def whole(x: np.ndarray, y: np.ndarray, workspace: Any = None) -> None:
        body(x.reshape(-1), y.reshape(-1), *[array(workspace) for array in arrays])

    def in_blocks(x: np.ndarray, y: np.ndarray, workspace: Any = None) -> None:
        x, y, temporary = x.reshape(-1), y.reshape(-1), [array(workspace) for array in arrays]
        for block in blocks[:-1]:
            body(x[block], y[block], *temporary)
        last = blocks[-1]
        body(x[last], y[last], *[array[: last.stop - last.start] for array in temporary])

    return Into(whole if len(blocks) == 1 else in_blocks, space.nbytes)
