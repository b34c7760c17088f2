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
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from driverless.machine import Entry, Machine, Table
from driverless.queues import LEGACY, NOT_READY, Queues

ARCHITECTURE = (9, 0)
_NO_MEMORY = 2  # cudaErrorMemoryAllocation
_MAPPED = 2  # cudaHostAllocMapped
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
    """What was asked for. ``broken``: rules of CUDA that a call broke; ``blocks``: memory that is taken, address and bytes; ``library``:
    what is in cuBLAS's place. With a ``machine`` kernels are run, and everything is done as late as may be; without one it is done at
    once, and kernels compute nothing."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine
        self.queues = Queues(eager=machine is None)
        self.broken = self.queues.broken
        self.calls: Counter[str] = Counter()
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.blocks: dict[int, int] = {}
        self.pinned: dict[int, int] = {}
        self.mapped: dict[int, int] = {}
        """What of these a kernel may reach."""
        self.library: Any = None
        self.total = 64 << 30
        """Bytes of the device's memory."""
        self.order = 0
        """1: of what runs at the same time the last comes first."""
        self.lock = threading.RLock()
        self._kept: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._entries: dict[int, Entry] = {}
        self._table: Table | None = None
        self.images: dict[int, bytes] = {}
        self._modules: dict[int, dict[str, Entry]] = {}
        self._next = 1000

    # ---- memory

    def malloc(self, nbytes: int) -> int:
        """cudaMalloc."""
        if nbytes > self.total - sum(self.blocks.values()):
            from cupy_backends.cuda.api import runtime

            raise runtime.CUDARuntimeError(_NO_MEMORY)
        address = self._taken(nbytes)
        self.blocks[address], self._table = nbytes, None
        return address

    def host_alloc(self, nbytes: int, flags: int) -> int:
        """cudaHostAlloc."""
        address = self._taken(nbytes)
        self.pinned[address] = nbytes
        if flags & _MAPPED:
            self.mapped[address], self._table = nbytes, None
        return address

    def _taken(self, nbytes: int) -> int:
        block = ctypes.create_string_buffer(nbytes + 512)
        address = -(-ctypes.addressof(block) // 512) * 512
        if self.machine is not None:
            ctypes.memset(address, 0xFF, nbytes)
        self._kept[address] = block
        return address

    def free(self, address: int) -> None:
        """cudaFree, which waits for the device."""
        if not address:
            return
        self.queues.drain_all()
        nbytes = self.blocks.pop(address, None)
        if self._kept.pop(address, None) is None or nbytes is None:
            self.broken.append(f"memory at {address} is given back that was not taken")
        self._table = None

    def free_host(self, address: int) -> None:
        """cudaFreeHost, which waits too."""
        self.queues.drain_all()
        if self._kept.pop(address, None) is None or self.pinned.pop(address, None) is None:
            self.broken.append(f"memory of the host at {address} is given back that was not taken")
        if self.mapped.pop(address, None) is not None:
            self._table = None

    def memcpy(self, to: int, source: int, nbytes: int, kind: int) -> None:
        """cudaMemcpy."""
        if self.queues.recording:
            self.broken.append("cudaMemcpy, which waits, while the stream is recorded")
        self._reached(to, source, nbytes, kind)
        self.queues.now(LEGACY, lambda: ctypes.memmove(to, source, nbytes))

    def memcpy_async(self, to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """cudaMemcpyAsync: what the host may page out is read at once, and written before the call returns."""
        self._reached(to, source, nbytes, kind)
        from_host, to_host = self._of(source) is None, self._of(to) is None
        if self.queues.is_recording(stream):
            self.queues.put(stream, lambda: ctypes.memmove(to, source, nbytes))
        elif to_host and not _inside(self.pinned, to):
            self.queues.now(stream, lambda: ctypes.memmove(to, source, nbytes))
        elif from_host and not _inside(self.pinned, source):
            held = ctypes.string_at(source, nbytes)
            self.queues.put(stream, lambda: ctypes.memmove(to, held, nbytes))
        else:
            self.queues.put(stream, lambda: ctypes.memmove(to, source, nbytes))

    def memset(self, to: int, value: int, nbytes: int, stream: int = LEGACY) -> None:
        """cudaMemset and cudaMemsetAsync."""
        self._reached(to, to, nbytes, 3)
        self.queues.put(stream, lambda: ctypes.memset(to, value, nbytes))

    def _of(self, address: int) -> int | None:
        """Where the block of the device begins that an address is in."""
        return _inside(self.blocks, address)

    def _reached(self, to: int, source: int, nbytes: int, kind: int) -> None:
        for address, is_device in ((to, kind in (1, 3)), (source, kind in (2, 3))):
            block = self._of(address)
            if is_device and block is None:
                self.broken.append(f"a copy to or from {address}, which is no memory of the device")
            elif block is not None and address + nbytes > block + self.blocks[block]:
                self.broken.append(f"a copy of {nbytes} bytes reaches beyond its block")

    # ---- modules and launches

    def load(self, image: bytes) -> int:
        """cuModuleLoadData."""
        self.images[handle := self.handle()] = bytes(image)
        if self.machine is not None:
            self._modules[handle] = self.machine.load(bytes(image))
        return handle

    def function(self, module: int, name: str) -> int:
        """cuModuleGetFunction."""
        if name.encode() not in self.images.get(module, name.encode()):
            self.broken.append(f"there is no kernel {name} in what was compiled")
        self._names[handle := self.handle()] = name
        if self.machine is not None:
            self._entries[handle] = self._modules[module][name]
        return handle

    def launch(self, function: int, *given: int) -> None:
        """cuLaunchKernel."""
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
        elif self.machine is not None:
            entry, stream, places = self._entries[function], given[7], given[8]
            arguments = entry.arguments(places)
            self.queues.put(stream, lambda: self._run(entry, grid, block, shared, arguments))

    def _run(self, entry: Entry, grid: tuple[int, ...], block: tuple[int, ...], shared: int, arguments: bytes) -> None:
        if self._table is None:
            self._table = Table.of(self.blocks | self.mapped)
        said = entry.call(grid, block, shared, arguments, self._table, self.order)
        if said is not None:
            self.broken.append(said)

    # ---- streams and recordings

    def handle(self, *_: Any) -> int:
        """Something new."""
        self._next += 16
        return self._next

    def stream(self, flags: int = 0, *_: Any) -> int:
        """cudaStreamCreateWithPriority."""
        handle = self.handle()
        self.queues.create(handle, blocking=not flags & 1)
        return handle

    def end(self, stream: int) -> int:
        """cudaStreamEndCapture."""
        self.queues.end(stream, handle := self.handle())
        return handle

    def instantiate(self, graph: int, *_: Any) -> int:
        """cudaGraphInstantiate."""
        self.queues.graphs[handle := self.handle()] = self.queues.graphs.get(graph, [])
        return handle

    def wait(self, *stream: int) -> None:
        """cudaStreamSynchronize, or of the whole device."""
        if stream:
            self.queues.drain(stream[0])
        else:
            self.queues.drain_all()


def _inside(blocks: dict[int, int], address: int) -> int | None:
    """The block that an address is in, by its beginning."""
    if address in blocks:
        return address
    return next((start for start, nbytes in blocks.items() if start <= address < start + nbytes), None)


def answers(driver: Driver) -> tuple[dict[str, Callable[..., Any]], dict[str, Callable[..., Any]]]:
    """Functions in the places of those of ``cupy_backends.cuda.api``'s modules runtime and driver."""

    queues = driver.queues

    def nothing(*_: Any) -> None:
        return None

    runtime = {
        "_ensure_context": nothing, "getDevice": lambda: 0, "setDevice": nothing, "getDeviceCount": lambda: 1,
        "getDeviceProperties": lambda n: dict(PROPERTIES), "deviceGetAttribute": lambda a, d: _LIMITS.get(a, 1),
        "driverGetVersion": lambda: 13000, "deviceSynchronize": driver.wait,
        "memGetInfo": lambda: (driver.total - sum(driver.blocks.values()), driver.total),
        "malloc": driver.malloc, "free": driver.free, "hostAlloc": driver.host_alloc, "freeHost": driver.free_host,
        "mallocAsync": lambda n, s: driver.malloc(n), "freeAsync": lambda p, s: driver.free(p),
        "memcpy": driver.memcpy, "memcpyAsync": driver.memcpy_async, "memset": driver.memset, "memsetAsync": driver.memset,
        "eventCreate": driver.handle, "eventCreateWithFlags": driver.handle, "eventDestroy": queues.forget,
        "eventQuery": queues.is_past, "eventRecord": queues.record, "eventSynchronize": queues.reach,
        "eventElapsedTime": lambda a, b: 1.0,
        "streamCreate": driver.stream, "streamCreateWithFlags": driver.stream, "streamCreateWithPriority": driver.stream,
        "streamDestroy": nothing, "streamSynchronize": driver.wait,
        "streamQuery": lambda s: 0 if queues.is_idle(s) else NOT_READY, "streamGetFlags": lambda s: 1,
        "streamGetPriority": lambda s: 0, "streamIsCapturing": lambda s: int(queues.is_recording(s)),
        "streamEndCapture": driver.end, "graphInstantiate": driver.instantiate, "graphDestroy": nothing, "graphExecDestroy": nothing,
        "graphLaunch": queues.replay, "pointerGetMemoryType": lambda p: 0, "graphUpload": nothing,
    }  # fmt: skip
    api = {
        "moduleLoadData": driver.load, "moduleUnload": nothing, "moduleGetFunction": driver.function,
        "funcGetAttribute": lambda a, f: 0, "funcSetAttribute": nothing, "launchKernel": driver.launch,
        "ctxGetCurrent": lambda: 1, "ctxSetCurrent": nothing, "ctxGetDevice": lambda: 0, "streamGetCtx": lambda s: 1,
        "occupancyMaxActiveBlocksPerMultiprocessor": lambda *_: 2, "occupancyMaxPotentialBlockSize": lambda *_: (132, 256),
    }  # fmt: skip
    return tuple({name: _one_at_a_time(driver.lock, f) for name, f in group.items()} for group in (runtime, api))  # type: ignore[return-value]


def _one_at_a_time(lock: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: Any) -> Any:
        with lock:
            return function(*given)

    return called


_C_TYPES = {
    "int": ctypes.c_int, "unsigned int": ctypes.c_uint, "size_t": ctypes.c_size_t, "intptr_t": ctypes.c_ssize_t,
    "uintmax_t": ctypes.c_size_t, "float": ctypes.c_float, "PyObject *": ctypes.py_object,
}  # fmt: skip
_KEPT: list[Any] = []


def replace(module: Any, functions: dict[str, Callable[..., Any]], driver: Driver) -> None:
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
            driver.calls[name] += 1
            try:
                return function(*given[:number])
            except Exception as error:  # which nobody could see
                driver.broken.append(f"{name}: {type(error).__name__}: {error}")
                return 0

        made = ctypes.PYFUNCTYPE(_C_TYPES[found[1]], *types, *further)(called)
        _KEPT.append(made)
        module.__pyx_capi__[name] = api.PyCapsule_New(ctypes.cast(made, ctypes.c_void_p), signature, None)


def install(machine: Machine | None = None) -> Driver:
    """Put the answers in place. Before CuPy is imported."""
    import sys

    assert "cupy" not in sys.modules, "CuPy is imported already"
    os.environ.setdefault("CUPY_ACCELERATORS", "")  # CUB comes compiled, with calls of its own
    driver = Driver(machine)
    runtime, api = answers(driver)
    runtime["streamBeginCapture"] = lambda stream, mode=2: driver.queues.begin(stream)
    runtime["streamWaitEvent"] = lambda stream, event, flags=0: driver.queues.wait(stream, event)
    # The package's __init__ would import all of CuPy: its folders are enough.
    replace(_alone("cupy_backends.cuda.api.runtime"), runtime, driver)
    replace(_alone("cupy_backends.cuda.api.driver"), api, driver)
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
