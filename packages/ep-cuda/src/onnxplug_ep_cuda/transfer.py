"""Copies between GPUs and the host, ordered on the session's streams."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from onnxplug.contract import HOST, DataTransfer, Device
from onnxplug.contract.staging import Staging
from onnxplug_ep_cuda.device import KIND
from onnxplug_ep_cuda.queue import Queue, device_failure


class CUDATransfer(DataTransfer):
    """Whole dense tensors. A copy without a stream is complete on return and comes after all work of the session; but what a run sends to
    the device, where only work behind it on the session's stream reads it, is only taken from the host by then."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._staging = Staging(
            cupy.cuda.alloc_pinned_memory, lambda event: bool(event.done), refused=runtime.CUDARuntimeError
        )

    def can_copy(self, source: Device, destination: Device) -> bool:
        return copies(source, destination)

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        if source.dtype != destination.dtype or tuple(source.shape) != tuple(destination.shape):
            raise ValueError(
                f"cannot copy {source.dtype} {source.shape} into {destination.dtype} {destination.shape}: they differ"
            )
        if source.nbytes == 0:
            return
        try:
            with cupy.cuda.Device(self._queue.device_id):
                if isinstance(source, np.ndarray) and (stream is not None or self._queue.runs):
                    self._send(source, destination, stream)
                elif stream is None:
                    lane = self._queue.blocking_lane()
                    self._enqueue(source, destination, lane)
                    lane.synchronize()
                else:
                    self._enqueue(source, destination, stream)
        except runtime.CUDARuntimeError as error:
            raise device_failure(error) from error

    def _send(self, source: np.ndarray, destination: Any, given: Any) -> None:
        """To the device, in order on a stream, by default the session's: through page-locked memory, so that nobody waits, beside the
        computation where that is asked for."""
        stream = self._queue.compute if given is None else given
        lane = self._queue.side if self._queue.copy_beside else stream
        if lane is not stream:  # earlier work may still read what lay there
            lane.wait_event(stream.record())
        taken = self._staging.take(source.nbytes)
        if taken is None:
            self._enqueue(source, destination, lane)
            if given is None:  # nobody keeps the source
                lane.synchronize()
        else:
            size, block = taken
            np.copyto(np.frombuffer(block, np.uint8, source.nbytes), source.reshape(-1).view(np.uint8))
            runtime.memcpyAsync(destination.data.ptr, block.ptr, source.nbytes, runtime.memcpyHostToDevice, lane.ptr)
            self._staging.give(size, block, lane.record(cupy.cuda.Event(disable_timing=True)))
        if lane is not stream:
            stream.wait_event(lane.record())

    @staticmethod
    def _enqueue(source: Any, destination: Any, lane: Any) -> None:
        runtime.memcpyAsync(_address(destination), _address(source), source.nbytes, runtime.memcpyDefault, lane.ptr)


def copies(source: Device, destination: Device) -> bool:
    """Whether a copy has a GPU's own memory on one side and that, or the host's, on the other."""
    sides = (source, destination)
    return any(side.kind == KIND for side in sides) and all(side.kind == KIND or side == HOST for side in sides)


def _address(tensor: Any) -> int:
    return int(tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data.ptr)
