"""Weights laid out anew by generated code when a region is bound, a batch at a time, so that few exist twice at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.pool import Pool
from onnxplug_ep_cpu.codegen.program import Program
from onnxplug_ep_cpu.codegen.target import Target

BATCH = 16 << 20
"""Bytes of constants that wait to be packed together: enough to share out among threads."""


class Packer:
    """Collects calls that pack constants (``program``), and runs them. ``pool`` is asked for threads then, since the driver may not
    be compiled yet."""

    def __init__(self, target: Target, threads: int, pool: Callable[[], Pool]) -> None:
        self.program = Program(begin=compiler(target).begin)
        self._target, self._threads, self.pool = target, threads, pool
        self._values: list[ValueView] = []
        self._waiting = 0

    def packs(self, value: ValueView, nbytes: int) -> None:
        """The calls added last pack all of ``value``, ``nbytes`` large: once they have run it may be let go."""
        self._values.append(value)
        self._waiting += nbytes
        if self._waiting >= BATCH:
            self.finish()

    def finish(self) -> None:
        """Run the calls that wait."""
        if self.program.calls:
            image = self.program.finish(compiler(self._target), 0, 0, self._threads)
            workspace = aligned_zeros((image.workspace,), np.uint8)
            run = self.pool().run
            for record in image.records:
                run(record, image.bases(id(workspace)), image.shared)
        for value in self._values:
            value.release()
        self.program.calls.clear()
        self._values.clear()
        self._waiting = 0


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros that start on a cache line."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    block = np.zeros(nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    made: np.ndarray = block[start : start + nbytes].view(dtype).reshape(shape)
    return made


def aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy, that starts on a cache line."""
    if array.ctypes.data % 64 == 0 and array.flags.c_contiguous:
        return array
    made = aligned_zeros(array.shape, array.dtype)
    made[...] = array
    return made
