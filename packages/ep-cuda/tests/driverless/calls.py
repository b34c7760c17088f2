"""CuPy's own code on a machine without a driver: what it asks of the driver is looked at and answered, and computes nothing.

No stand-in of CuPy: its arrays, dispatch of types, code generators and NVRTC's compiler are the installed ones. Only the functions at the
lower end, which call CUDA, are others (Cython modules take them from each other's table ``__pyx_capi__`` when they are imported, so that
``install`` must come first). Device memory is memory of the host filled with zeros, copies are made, kernels are compiled and their
launches checked; results of kernels mean nothing.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

ARCHITECTURE = (9, 0)
_INVALID = "the launch is refused by every device"
_LIMITS = {
    1: 1024,
    2: 1024,
    3: 1024,
    4: 64,
    5: 2**31 - 1,
    6: 65535,
    7: 65535,
    8: 48 << 10,
    10: 32,
    16: 132,
    39: 2048,
    75: 9,
    76: 0,
}
"""cudaDeviceAttr -> value."""
PROPERTIES = {
    "name": b"nothing", "major": 9, "minor": 0, "totalGlobalMem": 64 << 30, "multiProcessorCount": 132, "warpSize": 32,
    "maxThreadsPerBlock": 1024, "sharedMemPerBlock": 48 << 10, "maxThreadsPerMultiProcessor": 2048, "regsPerBlock": 65536,
}  # fmt: skip


class Driver:
    """What was asked for. ``broken``: rules of CUDA that a call broke; ``blocks``: memory that is taken, address and bytes;
    ``library``: what is in cuBLAS's place."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.calls: Counter[str] = Counter()
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.capturing: int | None = None
        self.captured: set[int] = set()
        self.blocks: dict[int, int] = {}
        self.library: Any = None
        self._kept: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self.images: dict[int, bytes] = {}
        self._next = 1000

    # ---- memory

    def malloc(self, nbytes: int) -> int:
        block = ctypes.create_string_buffer(nbytes + 512)
        address = -(-ctypes.addressof(block) // 512) * 512
        self._kept[address], self.blocks[address] = block, nbytes
        return address

    def free(self, address: int) -> None:
        self.blocks.pop(address, None)
        if address and self._kept.pop(address, None) is None:
            self.broken.append(f"memory at {address} is given back that was not taken")

    def memcpy(self, to: int, source: int, nbytes: int, kind: int) -> None:
        self._outside_capture("cudaMemcpy, which waits,")
        ctypes.memmove(to, source, nbytes)

    def memcpy_async(self, to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def memset(self, to: int, value: int, nbytes: int, *stream: int) -> None:
        ctypes.memset(to, value, nbytes)

    # ---- modules and launches

    def load(self, image: bytes) -> int:
        self.images[handle := self.handle()] = bytes(image)
        return handle

    def function(self, module: int, name: str) -> int:
        if name.encode() not in self.images.get(module, name.encode()):
            self.broken.append(f"there is no kernel {name} in what was compiled")
        self._names[handle := self.handle()] = name
        return handle

    def launch(self, function: int, *given: int) -> None:
        grid, block, shared = given[:3], given[3:6], given[6]
        name = self._names.get(function, "?")
        self.launches.append((name, grid, block, shared))
        x, y, z = grid
        threads = block[0] * block[1] * block[2]
        if not (
            0 < x < 2**31
            and 0 < y < 65536
            and 0 < z < 65536
            and 0 < threads <= 1024
            and block[2] <= 64
            and 0 <= shared <= 227 << 10
        ):
            self.broken.append(f"{name}: {_INVALID}: grid {grid}, block {block}, {shared} bytes of shared memory")

    # ---- streams and recordings

    def handle(self, *_: Any) -> int:
        self._next += 16
        return self._next

    def begin(self, stream: int, mode: int) -> None:
        if self.capturing is not None:
            self.broken.append("a recording is begun inside another")
        self.capturing = stream

    def end(self, stream: int) -> int:
        if self.capturing != stream:
            self.broken.append("a recording is ended that was not begun")
        self.capturing = None
        return self.handle()

    def wait(self, *stream: int) -> None:
        """cudaStreamSynchronize, or of the whole device."""
        if not stream or stream[0] in (0, self.capturing):
            self._outside_capture("a wait")

    def record(self, event: int, stream: int) -> None:
        """cudaEventRecord."""
        if stream == self.capturing:
            self.captured.add(event)
        else:
            self.captured.discard(event)

    def query(self, event: int) -> int:
        """cudaEventQuery, and the like: an event of a recording is none of the device's, and who asks for it ends the recording."""
        if event in self.captured:
            self.broken.append("an event that was recorded into a CUDA graph is asked for")
        return 907 if event in self.captured else 0

    def _outside_capture(self, what: str) -> None:
        if self.capturing is not None:
            self.broken.append(f"{what} while the stream is recorded")


def answers(driver: Driver) -> tuple[dict[str, Callable[..., Any]], dict[str, Callable[..., Any]]]:
    """Functions in the places of those of ``cupy_backends.cuda.api``'s modules runtime and driver."""

    def nothing(*_: Any) -> None:
        return None

    runtime = {
        "_ensure_context": nothing, "getDevice": lambda: 0, "setDevice": nothing, "getDeviceCount": lambda: 1,
        "getDeviceProperties": lambda n: dict(PROPERTIES), "deviceGetAttribute": lambda a, d: _LIMITS.get(a, 1),
        "driverGetVersion": lambda: 13000, "deviceSynchronize": driver.wait, "memGetInfo": lambda: (1 << 30, 1 << 36),
        "malloc": driver.malloc, "free": driver.free, "hostAlloc": lambda n, flags: driver.malloc(n), "freeHost": driver.free,
        "mallocAsync": lambda n, s: driver.malloc(n), "freeAsync": lambda p, s: driver.free(p),
        "memcpy": driver.memcpy, "memcpyAsync": driver.memcpy_async, "memset": driver.memset, "memsetAsync": driver.memset,
        "eventCreate": driver.handle, "eventCreateWithFlags": driver.handle, "eventDestroy": driver.captured.discard,
        "eventQuery": driver.query,
        "eventRecord": driver.record, "eventSynchronize": driver.query, "eventElapsedTime": lambda a, b: 1.0,
        "streamCreate": driver.handle, "streamCreateWithFlags": driver.handle, "streamCreateWithPriority": driver.handle,
        "streamDestroy": nothing, "streamSynchronize": driver.wait, "streamQuery": nothing, "streamGetFlags": lambda s: 1,
        "streamGetPriority": lambda s: 0, "streamIsCapturing": lambda s: int(driver.capturing == s),
        "streamEndCapture": driver.end, "graphInstantiate": driver.handle, "graphDestroy": nothing, "graphExecDestroy": nothing,
        "graphLaunch": nothing, "pointerGetMemoryType": lambda p: 0, "graphUpload": nothing,
    }  # fmt: skip
    api = {
        "moduleLoadData": driver.load, "moduleUnload": nothing, "moduleGetFunction": driver.function,
        "funcGetAttribute": lambda a, f: 0, "funcSetAttribute": nothing, "launchKernel": driver.launch,
        "ctxGetCurrent": lambda: 1, "ctxSetCurrent": nothing, "ctxGetDevice": lambda: 0, "streamGetCtx": lambda s: 1,
        "occupancyMaxActiveBlocksPerMultiprocessor": lambda *_: 2, "occupancyMaxPotentialBlockSize": lambda *_: (132, 256),
    }  # fmt: skip
    return runtime, api


_C_TYPES = {
    "int": ctypes.c_int, "unsigned int": ctypes.c_uint, "size_t": ctypes.c_size_t, "intptr_t": ctypes.c_ssize_t,
    "uintmax_t": ctypes.c_size_t, "float": ctypes.c_float, "PyObject *": ctypes.py_object,
}  # fmt: skip
_KEPT: list[Any] = []


def replace(module: Any, functions: dict[str, Callable[..., Any]], calls: Counter[str]) -> None:
    """These functions in a Cython module's place, for Python and for the Cython modules that are imported after this."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_void_p, [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    for name, function in functions.items():
        setattr(module, name, function)
        old = module.__pyx_capi__.get(name)
        if old is None:
            continue
        signature = api.PyCapsule_GetName(old)
        text = ctypes.string_at(signature).decode()
        found = re.fullmatch(r"(PyObject \*|[\w ]+?) ?\((.*)\)", text)
        assert found, text
        words = [w.strip() for w in found[2].split(",")]
        taken = [w for w in words if w not in ("void", "int __pyx_skip_dispatch") and not w.startswith("struct")]
        types = [_C_TYPES["int" if w == "CUdevice" else w] for w in taken]
        further = [ctypes.c_int] if "int __pyx_skip_dispatch" in words else []
        further += [ctypes.c_void_p for w in words if w.startswith("struct")]

        def called(
            *given: Any, function: Any = function, name: str = name, number: int = len(types), optional: Any = None
        ) -> Any:
            calls[name] += 1
            return function(*given[:number])

        made = ctypes.PYFUNCTYPE(_C_TYPES[found[1]], *types, *further)(called)
        _KEPT.append(made)
        module.__pyx_capi__[name] = api.PyCapsule_New(ctypes.cast(made, ctypes.c_void_p), signature, None)


def install() -> Driver:
    """Put the answers in place. Before CuPy is imported."""
    import sys

    assert "cupy" not in sys.modules, "CuPy is imported already"
    os.environ.setdefault("CUPY_ACCELERATORS", "")  # CUB comes compiled, with calls of its own
    driver = Driver()
    runtime, api = answers(driver)
    runtime["streamBeginCapture"] = lambda stream, mode=2: driver.begin(stream, mode)
    runtime["streamWaitEvent"] = lambda *_: None
    # The package's __init__ would import all of CuPy: its folders are enough.
    replace(_alone("cupy_backends.cuda.api.runtime"), runtime, driver.calls)
    replace(_alone("cupy_backends.cuda.api.driver"), api, driver.calls)
    sorts = importlib.import_module("cupy.cuda.thrust")  # compiled too
    for name in ("sort", "argsort", "lexsort"):
        setattr(sorts, name, functools.partial(_sorted, name))
    return driver


def uncompiled(driver: Driver) -> None:
    """Compile nothing from here on, neither CuPy's kernels nor ours: what is left are types, names and arguments, in little time."""
    from cupy.cuda import compiler, function

    def made(*_: Any, name_expressions: Any = None, **__: Any) -> Any:
        module = function.Module()
        module.load(b"nothing")
        driver.images.clear()  # every kernel is in what is not there
        if name_expressions:
            module._set_mapping({name: name for name in name_expressions})
        return module

    compiler._compile_module_with_cache = made


def _sorted(name: str, dtype: Any, *_: Any) -> None:
    """Thrust's function: it knows these types."""
    if dtype.kind not in "biufc" or dtype.itemsize > 16:
        raise NotImplementedError(f"Sorting arrays with dtype '{dtype}' is not supported")


def _alone(name: str) -> Any:
    return importlib.import_module(name)
