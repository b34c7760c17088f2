"""The streams of a session: one on which everything runs, the application's where it gave one, and one for copies beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import cupy
from cupy.cuda import runtime

from onnxplug.contract import EPFail
from onnxplug_ep_cuda.blas import Blas
from onnxplug_ep_cuda.faults import Faults
from onnxplug_ep_cuda.memory import Scratch


class _UserStream:
    """The application's stream by its address, in the form CuPy takes (the CUDA stream protocol)."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


class Queue:
    """See the module's text. While a thread is ``inside``, CuPy works on the session's device and stream and takes memory from its
    scratch arena, products are by its handle of cuBLAS, and kernels tell of errors where the thread looks for them."""

    def __init__(self, device_id: int, user_stream: int | None, *, copy_beside: bool) -> None:
        self.device_id = device_id
        self.scratch: Scratch | None = None
        self.blas: Blas | None = None
        self.faults: Faults | None = None
        self.capturing = False
        with cupy.cuda.Device(device_id):
            # Not the default stream's servant: what the application does there neither waits nor breaks a recording.
            self.compute: Any = (
                cupy.cuda.Stream(non_blocking=True)
                if user_stream is None
                else cupy.cuda.Stream.from_external(_UserStream(user_stream))
            )
            self.side: Any = cupy.cuda.Stream(non_blocking=True)
        self.copy_beside = copy_beside
        self._local = threading.local()

    def enter(self) -> None:
        """Make device, stream and memory this thread's, until ``leave``."""
        with ExitStack() as stack:
            stack.enter_context(cupy.cuda.Device(self.device_id))
            stack.enter_context(self.compute)
            if self.scratch is not None:
                stack.enter_context(cupy.cuda.using_allocator(self.scratch))
            if self.blas is not None:
                stack.enter_context(self.blas)
            if self.faults is not None:
                stack.enter_context(self.faults)
            self._stacks().append(stack.pop_all())

    def leave(self) -> None:
        """Restore what was there before ``enter``."""
        self._stacks().pop().close()

    @property
    def entered(self) -> bool:
        """Whether this thread is between ``enter`` and ``leave``."""
        return bool(self._stacks())

    @property
    def runs(self) -> bool:
        """Whether this thread is so, and what it queues is not recorded."""
        return self.entered and not self.capturing

    @contextmanager
    def inside(self) -> Iterator[None]:
        """``enter`` and ``leave`` around a block, where the thread has not entered already: then errors that its kernels meet are raised
        behind it."""
        if self.entered:
            yield
            return
        self.enter()
        try:
            yield
            if self.faults is not None and self.faults.asked:
                self.wait()
                self.faults.check()
        except BaseException:
            self.forget()
            raise
        finally:
            self.leave()

    def forget(self) -> None:
        """What kernels of a run that failed tell is not the next one's."""
        if self.faults is not None and self.faults.asked:
            with suppress(EPFail):  # it says less than what failed
                self.wait()
            self.faults.forget()

    def prepare(self) -> None:
        """Make what cannot be made while a stream is recorded."""
        if self.blas is not None:
            with self.inside():
                self.blas.prepare()

    def follow(self) -> None:
        """Have what is queued from now on wait for what the device's default stream was asked for: other libraries write with it."""
        self.compute.wait_event(cupy.cuda.Stream.null.record(cupy.cuda.Event(disable_timing=True)))

    def blocking_lane(self) -> Any:
        """The stream for a copy that is waited for: in order with all work, but for a recording, which nothing may wait for."""
        return self.side if self.capturing else self.compute

    def wait(self) -> None:
        """Until everything queued is done. EPFail with the device's words when some of it failed."""
        try:
            self.compute.synchronize()
            self.side.synchronize()
        except runtime.CUDARuntimeError as error:
            raise device_failure(error) from error

    def on_device(self) -> AbstractContextManager[Any]:
        """Make the device this thread's."""
        return cupy.cuda.Device(self.device_id)  # type: ignore[no-any-return]

    def settle(self) -> None:
        """Until the device has done what anybody asked of it; while the session's stream is recorded, which nothing may wait for, what its
        default stream was asked for."""
        try:
            with self.on_device():
                if self.capturing:
                    cupy.cuda.Stream.null.synchronize()
                else:
                    runtime.deviceSynchronize()
        except runtime.CUDARuntimeError as error:
            raise device_failure(error) from error

    def _stacks(self) -> list[ExitStack]:
        found: list[ExitStack] | None = getattr(self._local, "stacks", None)
        if found is None:
            found = self._local.stacks = []
        return found


def device_failure(error: Exception) -> EPFail:
    """An error of the CUDA runtime as one that another provider may answer."""
    failure: EPFail = EPFail(
        f"CUDA reports {error}. An error of a kernel shows up late: CUDA_LAUNCH_BLOCKING=1 names the call; after a memory fault "
        f"the process must be started anew"
    )
    return failure
