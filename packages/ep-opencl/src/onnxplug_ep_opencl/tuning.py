"""Tiles found by measuring: every candidate computes the product on zeros, and the times are kept on disk for the next process."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug.contract import DataTransfer
from onnxplug.contract.cache import DiskCache
from onnxplug_ep_opencl.kernels.call import Call, Owned
from onnxplug_ep_opencl.kernels.product import Product, multiply
from onnxplug_ep_opencl.kernels.tiles import AnyTile, Work, candidates
from onnxplug_ep_opencl.launch import BoundJob, Job, Ref
from onnxplug_ep_opencl.memory import ClAllocator
from onnxplug_ep_opencl.queue import Queue
from onnxplug_kernel_text.opencl import PRELUDE
from onnxplug_kernel_text.tile import Tile

log = logging.getLogger("onnxplug.opencl")

LIMIT = 1 << 20
"""Bytes of times on disk: thousands of products."""
ROUNDS, PATIENCE = 9, 100_000_000
"""Runs of a candidate, and the nanoseconds after which two must do."""

_known: dict[str, dict[str, int]] = {}
_lock = threading.Lock()

Make = Callable[[Call], Product | None]


class MeasuringTuner:
    """Measures on one session's queue; what it finds serves all sessions of the process."""

    def __init__(self, queue: Queue, allocator: ClAllocator, transfer: DataTransfer, kept: DiskCache | None) -> None:
        self._queue, self._allocator, self._transfer, self._kept = queue, allocator, transfer, kept

    def best(self, call: Call, work: Work, make: Make) -> AnyTile:
        """The fastest tile for ``work``, among those for which the weights are packed already if they are packed at all."""
        options = candidates(call.target, work)
        if min(work.batch, work.rows, work.columns, work.depth) == 0 or len(options) == 1:
            return options[0]
        with _lock:
            key = self._key(call, work, options, make)
            times = _known.get(key) or self._remembered(key, options)
            if times is None:
                try:
                    times = {repr(option): self._measured(call, option, make) for option in options}
                except MemoryError as error:
                    log.warning("the tile of a product is not measured, there is too little memory: %s", error)
                    return self._fitting(call, work, options)[0]
                log.info("measured %s: %s", work, times)
                if self._kept is not None:
                    self._kept.put(key, json.dumps(times).encode())
            _known[key] = times
        return min(self._fitting(call, work, options), key=lambda option: times[repr(option)])

    def _fitting(self, call: Call, work: Work, options: list[AnyTile]) -> list[AnyTile]:
        """Tiles that read what is packed already: weights are kept once, whatever shapes come."""
        widths = call.owned.widths

        def fits(tile: AnyTile) -> bool:
            return isinstance(tile, Tile) and (tile.rows if work.left == "packed" else tile.columns) in widths

        return [option for option in options if not widths or fits(option)]

    def _key(self, call: Call, work: Work, options: list[AnyTile], make: Make) -> str:
        """Of the device, its driver, how and from what text kernels are made, and the shape class."""
        texts = [launch.source for tile in options for launch in self._job(_Described(), call, tile, make).launches]
        said = [self._queue.identity, PRELUDE, *texts, work.shape_class]
        return hashlib.blake2b("\0".join(said).encode(), digest_size=16).hexdigest()

    def _remembered(self, key: str, options: list[AnyTile]) -> dict[str, int] | None:
        blob = None if self._kept is None else self._kept.get(key)
        if blob is None:
            return None
        try:
            times = json.loads(blob)
            found = {repr(option): times[repr(option)] for option in options}
        except (ValueError, KeyError, TypeError):
            found = {}
        if not found or not all(type(n) is int for n in found.values()):
            log.warning("what is kept as measured times %s is something else: they are measured again", key)
            return None
        return found

    def _job(self, owned: Owned, call: Call, tile: AnyTile, make: Make) -> Job:
        product = make(replace(call, owned=owned, tile=tile))
        assert product is not None
        return multiply(call.target, "measured", product, call.scratch(1))

    def _measured(self, call: Call, tile: AnyTile, make: Make) -> int:
        owned = Owned(self._allocator, self._transfer, {})
        job = self._job(owned, call, tile, make)
        bound = BoundJob(self._queue, job, owned.tensors)
        specs = [None if n in call.packed else spec for n, spec in enumerate(call.inputs)]
        operands = [None if s is None else self._zeros(s.dtype, s.shape) for s in (*specs, *call.outputs)]
        operands.append(self._zeros(np.dtype(np.uint8), (job.workspace,)))
        took: list[int] = []
        while len(took) <= ROUNDS and (len(took) < 3 or sum(took) < PATIENCE):
            began = time.perf_counter_ns()
            bound(*operands)
            self._queue.finish()
            took.append(time.perf_counter_ns() - began)
        return min(took[1:])

    def _zeros(self, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        tensor = self._allocator.tensor(dtype, shape)
        self._transfer.copy(np.zeros(shape, dtype), tensor)
        return tensor


class _Described(Owned):
    """Stands for tensors that are not made, where only the text of kernels is wanted."""

    def __init__(self) -> None:
        self.tensors = []

    def ref(self, key: tuple[str, Any], make: Callable[[], np.ndarray]) -> Ref:
        return Ref(-1, 1)

    def table(self, array: np.ndarray) -> Ref:
        return Ref(-1, 1)
