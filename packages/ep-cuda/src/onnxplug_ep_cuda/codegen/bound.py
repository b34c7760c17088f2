"""Generated kernels on the device: compiled by NVRTC, launched with the addresses of their operands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_ep_cuda.codegen.passes import BLOCK
from onnxplug_ep_cuda.faults import Faults
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.nodes.attention import Problem, job
from onnxplug_kernel_text.nodes.indexing import bounds

OPTIONS = ("--std=c++17",)
_APART = "FP_CONTRACT OFF"
"""OpenCL's words in texts whose products and sums are rounded one by one: in CUDA it is an option of the compiler's."""


def options(text: str) -> tuple[str, ...]:
    """What NVRTC is told for a text, besides what CuPy tells it."""
    return (*OPTIONS, "--fmad=false") if _APART in text else OPTIONS


@functools.lru_cache(maxsize=512)
def module(text: str, device_id: int) -> Any:
    """A program's text compiled for a device; CuPy keeps the code on disk."""
    with cupy.cuda.Device(device_id):
        return cupy.RawModule(code=PRELUDE + text, options=options(text))


def attend(problem: Problem, scratch: int, faults: Faults | None = None) -> Into:
    """An attention by the generated kernel."""
    lowered = job(problem, scratch)
    return Into(BoundJob(lowered, faults), lowered.workspace)


def watch(faults: Faults, name: str, indices: Any, low: int, high: int, error: type[Exception]) -> None:
    """Have the device tell of indices of node ``name`` that are not in ``low`` to ``high`` - 1."""
    specs = [TensorSpec(indices.dtype, indices.shape)]
    call = Call("bounds", 1, {}, specs, [], functools.partial(faults.watch, name))
    BoundJob(bounds(call, call.fault(error=error), BLOCK, low, high), faults)(cupy.ascontiguousarray(indices))


def _nowhere(number: int) -> int:
    raise AssertionError("a kernel tells of errors where nobody reads them")


class BoundJob:
    """A job on the current device. Holds no state of a run. ``faults``: where kernels tell of errors."""

    def __init__(self, lowered: Job, faults: Faults | None = None) -> None:
        self._told: Callable[[int], int] = _nowhere if faults is None else faults.address
        device_id = cupy.cuda.Device().id
        self._launches = [
            (module(launch.text, device_id).get_function(launch.name), launch) for launch in lowered.launches
        ]

    def __call__(self, *operands: Any) -> None:
        for function, launch in self._launches:
            pointers = [
                np.uint64(operands[r.number].data.ptr + r.offset * r.size if r.number >= 0 else self._told(-r.number))
                for r in launch.tensors
            ]
            function((launch.grid,), (launch.block,), (*pointers, *launch.scalars))
