"""Copies between the device and the host, all on the session's queue and therefore behind the kernels queued before."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl

from onnxplug.contract import HOST, DataTransfer, Device
from onnxplug_ep_opencl.memory import ClTensor
from onnxplug_ep_opencl.queue import Queue

STAGED = 1 << 16
"""Up to this many bytes a copy within a run goes through a staging copy, so that nobody waits for it."""


class ClTransfer(DataTransfer):
    """Where host and device share memory the device's bytes are mapped, else they are read and written through the driver's staging."""

    def __init__(self, queue: Queue, device: Device) -> None:
        self._queue, self._device = queue, device
        self._pending: deque[Any] = deque(maxlen=256)  # an event keeps its staging copy alive

    def can_copy(self, source: Device, destination: Device) -> bool:
        return {source, destination} in ({self._device, HOST}, {self._device})

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        if source.dtype != destination.dtype or tuple(source.shape) != tuple(destination.shape):
            raise ValueError(
                f"cannot copy {source.dtype} {source.shape} into {destination.dtype} {destination.shape}: they differ"
            )
        if source.size == 0:
            return
        into, out_of = isinstance(destination, ClTensor), isinstance(source, ClTensor)
        with self._queue.guard():
            if into and out_of:
                self._within(source, destination, stream)
            elif into:
                self._write(_bytes(source), destination, stream)
            elif out_of:
                self._read(source, destination)
            else:
                raise TypeError("cannot copy: neither side is in this device's memory")

    def settled(self) -> None:
        """The queue has run dry: staging copies are not needed any more."""
        self._pending.clear()

    def _within(self, source: ClTensor, destination: ClTensor, stream: Any) -> None:
        event = cl.enqueue_copy(
            self._queue.queue,
            destination.buffer(),
            source.buffer(),
            src_offset=source.offset,
            dst_offset=destination.offset,
            byte_count=source.nbytes,
        )
        if stream is None:
            event.wait()

    def _write(self, data: np.ndarray, tensor: ClTensor, stream: Any) -> None:
        queue = self._queue.queue
        if stream is not None and data.nbytes <= STAGED:
            staged = data.copy()
            self._pending.append(
                cl.enqueue_copy(queue, tensor.buffer(), staged, dst_offset=tensor.offset, is_blocking=False)
            )
        elif self._queue.machine.shares_memory:
            with self._mapped(tensor, cl.map_flags.WRITE_INVALIDATE_REGION) as mapped:
                np.copyto(mapped, data)
            if stream is None:
                queue.finish()
        else:
            cl.enqueue_copy(queue, tensor.buffer(), data, dst_offset=tensor.offset, is_blocking=True)

    def _read(self, tensor: ClTensor, destination: np.ndarray) -> None:
        data = destination.reshape(-1).view(np.uint8)
        if self._queue.machine.shares_memory:
            with self._mapped(tensor, cl.map_flags.READ) as mapped:
                np.copyto(data, mapped)
        else:
            cl.enqueue_copy(self._queue.queue, data, tensor.buffer(), src_offset=tensor.offset, is_blocking=True)

    def _mapped(self, tensor: ClTensor, flags: cl.map_flags) -> Any:
        """The tensor's bytes in the host's address space, when all that was queued before is done."""
        found: Any = cl.enqueue_map_buffer(
            self._queue.queue,
            tensor.buffer(),
            flags,
            tensor.offset,
            (tensor.nbytes,),
            np.dtype(np.uint8),
            is_blocking=True,
        )
        array, _ = found
        return _Mapping(array, self._queue.queue)


class _Mapping:
    def __init__(self, array: Any, queue: Any) -> None:
        self._array, self._queue = array, queue

    def __enter__(self) -> np.ndarray:
        array: np.ndarray = self._array
        return array

    def __exit__(self, *_: object) -> None:
        self._array.base.release(self._queue)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
