"""CUDA graphs: the device work of a run, recorded once and replayed (option ``enable_cuda_graph``)."""

from __future__ import annotations

from typing import Any

from cupy.cuda import get_cublas_handle, runtime

from onnxplug.contract import Arena, EPFail
from onnxplug_ep_cuda.memory import Scratch
from onnxplug_ep_cuda.queue import Queue


class Recordings:
    """The graphs of a session by id, each with the arena its temporaries live in."""

    def __init__(self, queue: Queue, scratch: Scratch) -> None:
        self._queue, self._scratch = queue, scratch
        self._graphs: dict[int, tuple[Any, Arena]] = {}
        self._left: Arena | None = None

    def has(self, graph_id: int) -> bool:
        """Whether work is recorded under this id."""
        return graph_id in self._graphs

    def begin(self, graph_id: int) -> None:
        """Record what this thread queues from now on."""
        self._drop(graph_id)
        self._queue.wait()
        get_cublas_handle()  # one for each thread, which cannot be made while a stream is recorded
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
        self._graphs[graph_id] = graph, self._restore()

    def replay(self, graph_id: int) -> None:
        """Queue the recorded work again."""
        self._graphs[graph_id][0].launch(self._queue.compute)

    def close(self) -> None:
        """Forget every recording."""
        for graph_id in list(self._graphs):
            self._drop(graph_id)

    def _restore(self) -> Arena:
        assert self._left is not None
        used, self._left = self._scratch.back(self._left), None
        self._queue.capturing = False
        return used

    def _drop(self, graph_id: int) -> None:
        found = self._graphs.pop(graph_id, None)
        if found is not None:
            self._queue.wait()  # a replay may be under way
            found[1].close()
