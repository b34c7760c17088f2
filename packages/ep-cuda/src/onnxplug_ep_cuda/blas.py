"""cuBLAS's product of matrices, by a handle of the session's own.

CuPy's handles are a thread's, and go with it. A recorded product works in scratch memory of its handle, so that a replay would write to
memory that another owns once the thread that recorded it has ended; the end of any thread would wait for the whole device, which a
recording of another does not survive. CuPy's wrapper refuses every call while a stream is recorded, too, which cuBLAS does not: the
library is the one that CuPy has loaded.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxplug_ep_cuda.memory import Source

_INT, _LONG, _PLACE = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_PLACE, _INT, _INT, _LONG)
"""Address, type, leading dimension, step from one matrix to the next."""
_TAKEN = (_PLACE, _INT, _INT, _INT, _INT, _INT, _PLACE, *_MATRIX, *_MATRIX, _PLACE, *_MATRIX, _INT, _INT, _INT)
_HOPPER = 9
_WORKSPACE, _LARGER_WORKSPACE = 4 << 20, 32 << 20
"""Bytes of scratch memory that cuBLAS's manual recommends: up to Ada, and from Hopper on."""


def workspace_size(major: int) -> int:
    """Bytes of scratch memory for a device of that compute capability."""
    return _LARGER_WORKSPACE if major >= _HOPPER else _WORKSPACE


class _Current(threading.local):
    def __init__(self) -> None:
        self.stack: list[Blas] = []


_current = _Current()


def gemm_strided_batched_ex(*arguments: int) -> None:
    """``multiply`` of the session that this thread works for."""
    _current.stack[-1].multiply(*arguments)


class Blas:
    """A handle on the session's stream with scratch memory that lives as long. Both are made with the first product, or by ``prepare``,
    on the device that is current. Thread-safe: a handle serves one thread at a time. Inside ``with`` it is this thread's."""

    def __init__(self, stream: int, source: Source, workspace: int) -> None:
        """``stream``: address of the session's; ``workspace``: bytes of scratch memory, which count as the library's, not the
        session's."""
        self._stream, self._source, self._size = stream, source, workspace
        self._lock = threading.Lock()
        self._handle = self._memory = 0

    def __enter__(self) -> Blas:
        _current.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.stack.pop()

    def prepare(self) -> None:
        """Make the handle, which cannot be done while a stream is recorded. MemoryError where there is none for it."""
        with self._lock:
            self._made()

    def multiply(self, *arguments: int) -> None:
        """``cublasGemmStridedBatchedEx`` with its arguments behind the handle; numbers are those of the C types, whose limits the caller
        keeps. CUBLASError where it refuses, MemoryError as above."""
        with self._lock:
            _demand(_library().multiply(self._handle or self._made(), *arguments))

    def close(self) -> None:
        """Give handle and memory back, once nothing queued uses them."""
        with self._lock:
            handle, self._handle = self._handle, 0
            memory, self._memory = self._memory, 0
        try:
            if handle:
                from cupy_backends.cuda.libs import cublas

                cublas.destroy(handle)
        finally:
            if memory:
                self._source.free(memory)

    def _made(self) -> int:
        if not self._handle:
            from cupy_backends.cuda.libs import cublas

            self._memory = self._memory or self._source.malloc(self._size)
            handle: int = cublas.create()
            try:
                _demand(_library().set_stream(handle, self._stream))  # it forgets the scratch memory
                _demand(_library().set_workspace(handle, self._memory, self._size))
            except cublas.CUBLASError:
                cublas.destroy(handle)
                raise
            self._handle = handle
        return self._handle


class _Library(NamedTuple):
    set_stream: Callable[..., int]
    set_workspace: Callable[..., int]
    multiply: Callable[..., int]


def _demand(status: int) -> None:
    if status:
        from cupy_backends.cuda.libs import cublas

        raise cublas.CUBLASError(status)


@functools.cache
def _library() -> _Library:
    from cupy_backends.cuda.libs import cublas

    path = cublas.__file__  # names are looked for in what a library was linked with, too
    if sys.platform == "win32":
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublas").abs_path
    library = ctypes.CDLL(path)
    library.cublasSetStream_v2.argtypes = [_PLACE, _PLACE]
    library.cublasSetWorkspace_v2.argtypes = [_PLACE, _PLACE, ctypes.c_size_t]
    library.cublasGemmStridedBatchedEx.argtypes = list(_TAKEN)
    return _Library(library.cublasSetStream_v2, library.cublasSetWorkspace_v2, library.cublasGemmStridedBatchedEx)
