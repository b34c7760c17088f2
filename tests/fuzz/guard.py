"""Memory of the OpenCL provider with pages around it that nobody may touch: a kernel that reads or writes beside a tensor ends the
process, and ``fuzz.hunt`` tells which seed it was. Devices that compute in the host's memory only (PoCL)."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

_PAGE = mmap.PAGESIZE
_SIDES = 4
"""Of so many blocks one begins behind a forbidden page, the others end before one."""


@contextmanager
def guarded() -> Iterator[None]:
    """Every tensor made or used for the first time meanwhile lies alone between forbidden pages, those of a plan's slab too."""
    import pyopencl as cl

    from onnxplug_ep_opencl import memory
    from onnxplug_ep_opencl.provider import OpenCLProvider

    parts: weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Any]] = weakref.WeakKeyDictionary()
    count = 0

    def make(block: Any, machine: Any, device: Any, nbytes: int, owner: Any) -> None:
        nonlocal count
        count += 1
        place = _between(max(nbytes, 1), at_start=count % _SIDES == 0)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        block.memory = cl.Buffer(machine.context, flags, hostbuf=place)
        block.device, block.nbytes, block.owner = device, nbytes, owner

    def view(_: Any, buffer: Any, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        whole = memory.view(buffer, offset, dtype, shape)
        own = parts.setdefault(buffer.handle, {})
        key = whole.offset, whole.nbytes  # a tensor that shows another's bytes, or takes its place, has them all
        if key not in own:
            own[key] = memory.Block(buffer.handle.owner._machine, whole.device, whole.nbytes, buffer.handle.owner)
        return memory.ClTensor(own[key], 0, dtype, shape)

    with mock.patch.object(memory.Block, "__init__", make), mock.patch.object(OpenCLProvider, "view", view):
        yield


def _between(nbytes: int, at_start: bool) -> np.ndarray:
    """Bytes with a forbidden page before and behind, against one of which they lie; mapped as long as the array is there."""
    pages = -(-nbytes // _PAGE)
    mapped = mmap.mmap(-1, (pages + 2) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(mapped, np.uint8)
    for page in (0, pages + 1):
        if _mprotect(array.ctypes.data + page * _PAGE, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = _PAGE if at_start else (pages + 1) * _PAGE - nbytes
    return array[begin : begin + nbytes]


_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
