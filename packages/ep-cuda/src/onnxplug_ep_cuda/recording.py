"""CUDA graphs: the device work of a run, recorded once and replayed (option ``enable_cuda_graph``)."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from onnxplug.contract import Arena, EPFail
from onnxplug_ep_cuda.memory import Scratch
from onnxplug_ep_cuda.queue import Queue, device_failure


class Recordings:
    """The graphs of a session by id, each with the arena its temporaries live in and what else it reads."""

    def __init__(self, queue: Queue, scratch: Scratch) -> None:
        self._queue, self._scratch = queue, scratch
        self._graphs: dict[int, tuple[Any, Arena, list[Any]]] = {}
        self._left: Arena | None = None
        self._held: list[Any] = []

    @property
    def recording(self) -> bool:
        """Whether what is queued is recorded."""
        return self._queue.capturing

    def hold(self, thing: Any) -> None:
        """Keep what the work that is being recorded uses, as long as the recording."""
        if self.recording:
            self._held.append(thing)

    def sent(self, array: np.ndarray) -> Any:
        """A host array on the device, sent anew with each replay: CuPy refuses such copies while a stream is recorded."""
        made = cupy.empty(array.shape, array.dtype)
        if array.nbytes:
            block = cupy.cuda.alloc_pinned_memory(array.nbytes)
            np.copyto(np.frombuffer(block, array.dtype, array.size).reshape(array.shape), array)
            runtime.memcpyAsync(
                made.data.ptr, block.ptr, array.nbytes, runtime.memcpyHostToDevice, self._queue.compute.ptr
            )
            self.hold(block)
        return made

    def has(self, graph_id: int) -> bool:
        """Whether work is recorded under this id."""
        return graph_id in self._graphs

    def begin(self, graph_id: int) -> None:
        """Record what this thread queues from now on."""
        self.release(graph_id)
        self._queue.wait()
        self._queue.prepare()
        self._left = self._scratch.apart()
        self._queue.capturing = True
        try:
            # Relaxed: the plan of the run may allocate while it is recorded.
            self._queue.compute.begin_capture(runtime.streamCaptureModeRelaxed)
        except (RuntimeError, runtime.CUDARuntimeError) as error:  # the legacy default stream as the application's
            self._restore().close()
            raise EPFail(
                f"the session's stream cannot be recorded as a CUDA graph ({error}): set enable_cuda_graph=0, or give another "
                "user_compute_stream"
            ) from error

    def end(self, graph_id: int) -> None:
        """Stop recording. EPFail when something in the run cannot be recorded."""
        assert self._left is not None
        try:
            graph = self._queue.compute.end_capture()
        except runtime.CUDARuntimeError as error:
            self._restore().close()
            raise EPFail(
                f"the run cannot be recorded as a CUDA graph ({error}): a kernel reads results on the host. "
                "Set enable_cuda_graph=0, or run option gpu_graph_id=-1"
            ) from error
        held, self._held = self._held, []
        self._graphs[graph_id] = graph, self._restore(), held

    def replay(self, graph_id: int) -> None:
        """Queue the recorded work again."""
        try:
            self._graphs[graph_id][0].launch(self._queue.compute)
        except runtime.CUDARuntimeError as error:
            raise device_failure(error) from error

    def release(self, graph_id: int) -> None:
        """Forget a recording, if there is one, and give its memory back once no replay is under way."""
        found = self._graphs.pop(graph_id, None)
        if found is not None:
            self._queue.wait()
            found[1].close()

    def close(self) -> None:
        """Forget every recording."""
        for graph_id in list(self._graphs):
            self.release(graph_id)

    def _restore(self) -> Arena:
        assert self._left is not None
        used, self._left = self._scratch.back(self._left), None
        self._queue.capturing, self._held = False, []
        return used
