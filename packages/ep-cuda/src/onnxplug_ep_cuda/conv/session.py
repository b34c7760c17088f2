"""cuDNN in a session: its handle on the session's stream, its plans for the session's device, and their execution."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import cudnn
import cupy
from cupy.cuda import runtime

from onnxplug_ep_cuda.conv.graph import BIAS, RESIDUAL, W, X, Y
from onnxplug_ep_cuda.conv.plans import Planner
from onnxplug_ep_cuda.conv.problem import Convolution
from onnxplug_ep_cuda.conv.store import plan_store
from onnxplug_ep_cuda.options import CUDAOptions
from onnxplug_ep_cuda.queue import Queue

_ROUNDS = 3
"""Times that a plan is timed; the shortest counts."""


class ConvolutionSession:
    """Plans by what they compute, each made once. Thread-safe: a handle serves one thread at a time."""

    def __init__(self, options: CUDAOptions, queue: Queue) -> None:
        self._queue, self._lock = queue, threading.RLock()
        self._plans: dict[Convolution, Any] = {}
        with queue.inside():
            self._handle = cudnn.create_handle()
            cudnn.set_stream(handle=self._handle, stream=queue.compute.ptr)
            properties = runtime.getDeviceProperties(queue.device_id)
        device = f"{properties['name'].decode()} sm_{properties['major']}{properties['minor']}"
        self._planner = Planner(
            options.cudnn_conv_algo_search, options.use_tf32, options.cudnn_conv_use_max_workspace,
            {"handle": self._handle}, device, self._time, plan_store(),
        )  # fmt: skip

    def plan(self, conv: Convolution) -> Any:
        """The plan of a convolution. ``NoPlan`` where cuDNN has none."""
        with self._lock, self._queue.inside():
            found = self._plans.get(conv)
            if found is None:
                found = self._plans[conv] = self._planner.plan(conv)
            return found

    def execute(self, plan: Any, addresses: Mapping[int, int], workspace: int) -> None:
        """Queue a plan: addresses of its tensors by identifier, and of its scratch memory."""
        with self._lock:
            plan.execute(dict(addresses), workspace, handle=self._handle)

    def close(self) -> None:
        """Give the handle back."""
        self._plans.clear()
        cudnn.destroy_handle(self._handle)

    def _time(self, conv: Convolution, graph: Any, index: int) -> float:
        """Seconds of one execution of a plan, over scratch tensors."""
        shapes = {X: conv.x, W: conv.w, BIAS: (conv.y[1],), RESIDUAL: conv.y, Y: conv.y}
        memory = {uid: cupy.zeros(shape, cupy.float32) for uid, shape in shapes.items()}
        workspace = cupy.empty(max(graph.get_workspace_size_plan_at_index(index), 1), cupy.uint8)
        addresses = {uid: array.data.ptr for uid, array in memory.items()}
        times: list[float] = []
        for _ in range(1 + _ROUNDS):  # the first loads the code
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(self._queue.compute)
            graph.execute_plan_at_index(addresses, workspace.data.ptr, index, handle=self._handle)
            end.record(self._queue.compute)
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
        return min(times[1:])
