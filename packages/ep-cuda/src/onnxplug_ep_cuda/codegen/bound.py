"""Generated kernels on the device: compiled by NVRTC, launched with the addresses of their operands."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cuda.codegen.launch import Job
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.nodes.attention import Problem, job

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


def attend(problem: Problem, scratch: int) -> Into:
    """An attention by the generated kernel."""
    lowered = job(problem, scratch)
    return Into(BoundJob(lowered), lowered.workspace)


class BoundJob:
    """A job on the current device. Holds no state of a run."""

    def __init__(self, lowered: Job) -> None:
        device_id = cupy.cuda.Device().id
        self._launches = [
            (module(launch.text, device_id).get_function(launch.name), launch) for launch in lowered.launches
        ]

    def __call__(self, *operands: Any) -> None:
        for function, launch in self._launches:
            pointers = [np.uint64(operands[r.number].data.ptr + r.offset * r.size) for r in launch.tensors]
            function((launch.grid,), (launch.block,), (*pointers, *launch.scalars))
