"""Copies between the device and the host, all on the session's queue and therefore behind the kernels queued before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from onnxplug.contract import HOST, DataTransfer, Device
from onnxplug.contract.staging import Staging
from onnxplug_ep_opencl.memory import ClTensor
from onnxplug_ep_opencl.queue import Queue


class ClTransfer(DataTransfer):
    """Where host and device share memory the device's bytes are mapped, else copies go through page-locked memory. What a run sends to the
    device goes so on every device: mapping waits for the kernels queued before."""

    def __init__(self, queue: Queue, device: Device) -> None:
        self._queue, self._device = queue, device
        self._staging = Staging(self._block, _is_done, refused=cl.Error)

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
        waits, maps = stream is None, self._queue.machine.shares_memory
        taken = None if waits and maps else self._staging.take(data.nbytes)
        if taken is not None:
            size, block = taken
            staged = block[: data.nbytes]
            np.copyto(staged, data)
            self._staging.give(size, block, self._send(staged, tensor, waits))
        elif maps:
            with self._mapped(tensor, cl.map_flags.WRITE_INVALIDATE_REGION) as mapped:
                np.copyto(mapped, data)
            if waits:
                self._queue.queue.finish()
        else:
            self._send(data, tensor, waits=True)

    def _send(self, data: np.ndarray, tensor: ClTensor, waits: bool) -> Any:
        """The event of the copy."""
        queue, to = self._queue.queue, tensor.buffer()
        return cl.enqueue_copy(queue, to, data, dst_offset=tensor.offset, is_blocking=waits)

    def _read(self, tensor: ClTensor, destination: np.ndarray) -> None:
        data = destination.reshape(-1).view(np.uint8)
        if self._queue.machine.shares_memory:
            with self._mapped(tensor, cl.map_flags.READ) as mapped:
                np.copyto(data, mapped)
        elif (taken := self._staging.take(data.nbytes)) is not None:
            size, block = taken
            staged = block[: data.nbytes]
            event = self._fetch(tensor, staged)
            np.copyto(data, staged)
            self._staging.give(size, block, event)
        else:
            self._fetch(tensor, data)

    def _fetch(self, tensor: ClTensor, data: np.ndarray) -> Any:
        """The event of the copy, which is done."""
        queue, source = self._queue.queue, tensor.buffer()
        return cl.enqueue_copy(queue, data, source, src_offset=tensor.offset, is_blocking=True)

    def _block(self, nbytes: int) -> Any:
        """Page-locked bytes: those of a buffer in the host's memory, mapped for as long as the array is there. By a queue of its own, so
        that mapping waits for nothing."""
        context = self._queue.machine.context
        memory = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, nbytes)
        return _map(cl.CommandQueue(context), memory, cl.map_flags.READ | cl.map_flags.WRITE, 0, nbytes)

    def _mapped(self, tensor: ClTensor, flags: cl.map_flags) -> Any:
        """The tensor's bytes in the host's address space, when all that was queued before is done."""
        queue = self._queue.queue
        return _Mapping(_map(queue, tensor.buffer(), flags, tensor.offset, tensor.nbytes), queue)


class _Mapping:
    def __init__(self, array: Any, queue: Any) -> None:
        self._array, self._queue = array, queue

    def __enter__(self) -> np.ndarray:
        array: np.ndarray = self._array
        return array

    def __exit__(self, *_: object) -> None:
        self._array.base.release(self._queue)


def _map(queue: Any, memory: Any, flags: Any, offset: int, nbytes: int) -> Any:
    """Bytes of a buffer in the host's address space, until the array's base is released or goes."""
    made: Any = cl.enqueue_map_buffer(queue, memory, flags, offset, (nbytes,), np.dtype(np.uint8), is_blocking=True)
    return made[0]


def _is_done(event: Any) -> bool:
    return bool(event.command_execution_status == cl.command_execution_status.COMPLETE)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
