"""cuBLAS's product of matrices, called past CuPy's wrapper, which refuses every call while a stream is recorded.

cuBLAS itself can be recorded. The library is the one that CuPy has loaded, the handle CuPy's of this thread.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

_INT, _LONG, _PLACE = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_PLACE, _INT, _INT, _LONG)
"""Address, type, leading dimension, step from one matrix to the next."""
_TAKEN = (_PLACE, _INT, _INT, _INT, _INT, _INT, _PLACE, *_MATRIX, *_MATRIX, _PLACE, *_MATRIX, _INT, _INT, _INT)


def gemm_strided_batched_ex(*arguments: int) -> None:
    """``cublasGemmStridedBatchedEx`` on CuPy's current stream, with its arguments behind the handle; numbers are those of the C types,
    whose limits the caller keeps. CUBLASError where it refuses."""
    import cupy

    set_stream, multiply = _functions()
    handle = cupy.cuda.get_cublas_handle()
    _demand(set_stream(handle, cupy.cuda.get_current_stream().ptr))
    _demand(multiply(handle, *arguments))


def _demand(status: int) -> None:
    if status:
        from cupy_backends.cuda.libs import cublas

        raise cublas.CUBLASError(status)


@functools.cache
def _functions() -> tuple[Callable[..., int], Callable[..., int]]:
    from cupy_backends.cuda.libs import cublas

    path = cublas.__file__  # names are looked for in what a library was linked with, too
    if sys.platform == "win32":
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublas").abs_path
    library = ctypes.CDLL(path)
    library.cublasSetStream_v2.argtypes = [_PLACE, _PLACE]
    library.cublasGemmStridedBatchedEx.argtypes = list(_TAKEN)
    return library.cublasSetStream_v2, library.cublasGemmStridedBatchedEx
