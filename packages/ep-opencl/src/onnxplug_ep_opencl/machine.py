"""One OpenCL device of this process: its context, what it can do, and the programs built for it.

Contexts and programs are shared by all sessions on the device; queues belong to a session.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections import OrderedDict
from typing import Any

import pyopencl as cl

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.device import describe, is_processor
from onnxplug_kernel_text.opencl import PRELUDE

KEPT = 64
"""Programs kept for sessions and shapes to come; PoCL holds megabytes for each. Kernels in use keep theirs beyond that."""

_TRIAL = "__kernel void trial(__global int *x) { x[0] = 0; }"


class Machine:
    """Shared by all sessions of the process on ``device``."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.context = cl.Context([device])
        self.is_processor = is_processor(device)
        self.has_double = "cl_khr_fp64" in device.extensions or device.double_fp_config != 0
        self.shares_memory = bool(device.host_unified_memory)
        self.largest_group = int(device.max_work_group_size)
        self.units = int(device.max_compute_units)
        self.memory = int(device.global_mem_size)
        self.local_memory = int(device.local_mem_size)
        self.vector = 4 * int(device.native_vector_width_float)
        self._programs: OrderedDict[tuple[str, tuple[str, ...], str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def program(self, source: str, options: tuple[str, ...], cache_dir: str) -> Any:
        """The program of a text behind the prelude, built once for as long as it is kept."""
        key = source, options, cache_dir
        with self._lock:
            program = self._programs.pop(key, None)
            if program is None:
                program = self._build(*key)
            self._programs[key] = program
            while len(self._programs) > KEPT:
                self._programs.popitem(last=False)
        return program

    def try_compiler(self, options: tuple[str, ...], cache_dir: str) -> None:
        """EPFail where the compiler builds nothing. A driver may list a device that it has no code for, and whoever makes a session is
        to hear that before its first run."""
        try:
            self.program(_TRIAL, options, cache_dir)
        except EPFail as error:
            lines = [line.strip() for line in error.text.splitlines() if line.strip()]
            errors = [line for line in lines if "error:" in line]  # compilers and pyopencl append how they were called
            raise EPFail(
                f"{describe(self.device)} lists itself, but builds no program: {(errors or lines)[-1]}. Install a driver that knows this "
                "device, or choose another of those that `onnxplug doctor` lists with the option device_id"
            ) from error

    def _build(self, source: str, options: tuple[str, ...], cache_dir: str) -> Any:
        quiet = ["-w", *options]  # PoCL counts warnings on the terminal; kernel text asks integers for NaN, too
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                return cl.Program(self.context, PRELUDE + source).build(quiet, cache_dir=cache_dir or None)
            except cl.Error as error:
                raise EPFail(f"{self.device.name.strip()} does not compile kernels: {error}") from error

    @property
    def identity(self) -> str:
        """The device and its driver, as opposed to others and to later versions."""
        device = self.device
        said = (device.platform.name, device.platform.version, device.vendor, device.name, device.version)
        return "\n".join((*said, device.driver_version, str(self.units)))

    def options(self, fast_math: bool) -> tuple[str, ...]:
        """Compiler options: correctly rounded quotients and roots where the device has them."""
        exact = self.device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        rounding = ("-cl-fp32-correctly-rounded-divide-sqrt",) if exact else ()
        return (*rounding, "-cl-fast-relaxed-math") if fast_math else rounding


_PROCESS = os.getpid()
_LOCK = threading.Lock()


def machine(device: Any) -> Machine:
    """The one machine of a device in this process. EPFail in a process that was forked from one that had loaded this module: OpenCL
    drivers keep threads, which a fork does not copy."""
    if os.getpid() != _PROCESS:
        raise EPFail(
            f"OpenCL was in use in process {_PROCESS}, from which this one was forked, and does not work here. Start processes with "
            "multiprocessing's 'spawn' or 'forkserver'."
        )
    with _LOCK:
        return _machine(device)


@functools.cache
def _machine(device: Any) -> Machine:
    return Machine(device)
