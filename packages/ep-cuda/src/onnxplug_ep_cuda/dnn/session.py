"""cuDNN in a session: its handle on the session's stream, its plans for the session's device, and their execution."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cudnn
import cupy
from cupy.cuda import runtime

from onnxplug.contract import Into
from onnxplug.contract.cache import user_cache
from onnxplug_ep_cuda.codegen.bound import BoundJob, attend
from onnxplug_ep_cuda.codegen.launch import Job
from onnxplug_ep_cuda.dnn.attention import BIAS, Attention, K, Q, V, Y
from onnxplug_ep_cuda.dnn.plans import NoPlan, Planner, Problem
from onnxplug_ep_cuda.options import CUDAOptions
from onnxplug_ep_cuda.queue import Queue, device_failure
from onnxplug_kernel_text.nodes import attention

log = logging.getLogger("onnxplug.cuda")
_ROUNDS = 3
"""Times that a plan is timed; the shortest counts."""
_KEPT = 64 << 20
"""Bytes of plans on disk."""


class DnnSession:
    """Plans by what they compute, each made once. Thread-safe: a handle serves one thread at a time."""

    def __init__(self, options: CUDAOptions, queue: Queue) -> None:
        self._queue, self._lock = queue, threading.RLock()
        self._plans: dict[Problem, Any] = {}
        with queue.inside():
            self._handle = cudnn.create_handle()
            cudnn.set_stream(handle=self._handle, stream=queue.compute.ptr)
            properties = runtime.getDeviceProperties(queue.device_id)
        device = f"{properties['name'].decode()} sm_{properties['major']}{properties['minor']}"
        self._convolutions = Planner(
            options.cudnn_conv_algo_search, options.use_tf32, options.cudnn_conv_use_max_workspace,
            {"handle": self._handle}, device, self._time, user_cache("cuda", ".plan", _KEPT),
        )  # fmt: skip
        self._attentions = replace(self._convolutions, search="HEURISTIC", max_workspace=True)

    def convolution(self, problem: Problem) -> Any:
        """The plan of a convolution. ``NoPlan`` where cuDNN has none."""
        return self._plan(self._convolutions, problem)

    def attend(self, problem: attention.Problem, scratch: int) -> Into:
        """An attention by cuDNN where that is asked for what it has and has a plan, else by the generated kernel."""
        asked = Attention.of(problem)
        if asked is None:
            return attend(problem, scratch, self._queue.faults)
        try:
            plan = self._plan(self._attentions, asked)
        except NoPlan as reason:
            log.info("cuDNN has no plan for an attention, which is a generated kernel: %s", reason)
            return attend(problem, scratch, self._queue.faults)
        before, workspace = BoundJob(Job(problem.before), self._queue.faults), plan.get_workspace_size()
        refs = {Q: problem.q.ref, K: problem.k.ref, V: problem.v.ref, Y: problem.y.ref}
        if problem.mask is not None:
            refs[BIAS] = problem.mask.ref

        def call(*operands: Any) -> None:
            before(*operands)
            addresses = {uid: operands[r.number].data.ptr + r.offset * r.size for uid, r in refs.items()}
            self.execute(plan, addresses, operands[scratch].data.ptr + problem.held if workspace else 0)

        return Into(call, problem.held + workspace)

    def _plan(self, planner: Planner, problem: Problem) -> Any:
        with self._lock, self._queue.inside():
            found = self._plans.get(problem)
            if found is None:
                if self._queue.capturing:  # nothing can be timed: waiting would end the recording
                    planner = replace(planner, search="HEURISTIC", time=None)
                found = self._plans[problem] = planner.plan(problem)
            return found

    def execute(self, plan: Any, addresses: Mapping[int, int], workspace: int) -> None:
        """Queue a plan: addresses of its tensors by identifier, and of its scratch memory."""
        with self._lock:
            plan.execute({uid: int(address) for uid, address in addresses.items()}, int(workspace), handle=self._handle)

    def close(self) -> None:
        """Give the handle back."""
        with self._queue.inside():
            self._plans.clear()
            cudnn.destroy_handle(self._handle)

    def _time(self, problem: Problem, graph: Any, index: int) -> float:
        """Seconds of one execution of a plan, over scratch tensors."""
        memory = {uid: cupy.zeros(elements, cupy.float32) for uid, elements in problem.sizes().items()}
        workspace = cupy.empty(max(graph.get_workspace_size_plan_at_index(index), 1), cupy.uint8)
        addresses = {uid: array.data.ptr for uid, array in memory.items()}
        times: list[float] = []
        try:
            for _ in range(1 + _ROUNDS):  # the first loads the code
                start, end = cupy.cuda.Event(), cupy.cuda.Event()
                start.record(self._queue.compute)
                graph.execute_plan_at_index(addresses, workspace.data.ptr, index, handle=self._handle)
                end.record(self._queue.compute)
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
        except runtime.CUDARuntimeError as error:  # the device is lost, not only this plan
            raise device_failure(error) from error
        return min(times[1:])
