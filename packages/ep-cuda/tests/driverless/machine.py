"""Kernels run on the processor: PTX translated to C, compiled by the machine's compiler, called for every thread of a grid."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driverless import ptx

_FLAGS = (
    "-O1", "-w", "-shared", "-fPIC", "-march=native", "-ffp-contract=off", "-frounding-math", "-fno-strict-aliasing",
)  # fmt: skip
_FAULTS = {
    0: "reads",
    1: "writes",
    2: "takes the value of an absent lane",
    3: "waits for lanes that do not come",
    4: "traps",
}


class _Blocks(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint64), ("starts", ctypes.c_void_p), ("sizes", ctypes.c_void_p))


class _Fault(ctypes.Structure):
    _fields_ = (
        ("bad", ctypes.c_uint32), ("block", ctypes.c_uint32), ("thread", ctypes.c_uint32), ("kind", ctypes.c_uint32),
        ("address", ctypes.c_uint64), ("size", ctypes.c_uint64),
    )  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = (
        ("params", ctypes.c_void_p), ("blocks", ctypes.c_void_p), ("fault", ctypes.c_void_p), ("shared", ctypes.c_void_p),
        ("shared_size", ctypes.c_uint64), ("local_size", ctypes.c_uint64), ("low", ctypes.c_uint64), ("high", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
    )  # fmt: skip


_THREAD = 112
"""Bytes that are enough for a Thread of ptx.h."""


class Table(NamedTuple):
    """Blocks of memory that are taken, by address."""

    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, blocks: Mapping[int, int]) -> Table:
        """The table of addresses and bytes."""
        starts = sorted(blocks)
        return cls(np.array(starts, np.uint64), np.array([blocks[s] for s in starts], np.uint64))


class Entry:
    """A kernel that can be called."""

    def __init__(self, kernel: ptx.Kernel, library: ctypes.CDLL) -> None:
        self.name, self.params = kernel.name, kernel.params
        self._size = max((at + size for at, size in kernel.params), default=0)
        self._run: Any = getattr(library, f"{kernel.name}_run")
        self._step, self._shared, self._local = (
            ctypes.c_uint64.in_dll(library, f"{kernel.name}_{what}").value for what in ("step", "shared", "local")
        )

    def arguments(self, places: int) -> bytes:
        """The parameters, copied from where an array of addresses says they are."""
        made = bytearray(max(self._size, 1))
        pointers = (ctypes.c_void_p * len(self.params)).from_address(places) if self.params else ()
        for (at, size), pointer in zip(self.params, pointers, strict=True):
            made[at : at + size] = ctypes.string_at(pointer, size)
        return bytes(made)

    def call(
        self, grid: tuple[int, ...], block: tuple[int, ...], dynamic: int, given: bytes, table: Table, order: int
    ) -> str | None:
        """Run a grid; what it did wrong, in words."""
        shared, threads = self._shared + dynamic, block[0] * block[1] * block[2]
        held = [
            ctypes.create_string_buffer(max(n, 1) + 64)
            for n in (shared, threads * _THREAD, max(threads * (self._step + self._local), self._local))
        ]
        aligned = [-(-ctypes.addressof(x) // 64) * 64 for x in held]
        params, fault = ctypes.create_string_buffer(given, len(given)), _Fault()
        blocks = _Blocks(len(table.starts), table.starts.ctypes.data, table.sizes.ctypes.data)
        launch = _Launch(
            ctypes.addressof(params), ctypes.addressof(blocks), ctypes.addressof(fault), aligned[0], shared, self._local, 0, 0,
            (ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*block),
        )  # fmt: skip
        if self._step:
            self._run(ctypes.byref(launch), ctypes.c_void_p(aligned[1]), ctypes.c_void_p(aligned[2]), order)
        else:
            self._run(ctypes.byref(launch), None, ctypes.c_void_p(aligned[2]), order)
        if not fault.bad:
            return None
        where = f"{fault.size} bytes at {fault.address:#x}" if fault.kind < 2 else ""
        return f"{self.name}: thread {fault.thread} of block {fault.block} {_FAULTS[fault.kind]} {where}"


class Machine:
    """Compiles modules, and keeps what it compiled in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, image: bytes) -> dict[str, Entry]:
        """The kernels of a PTX image by name. ``ptx.Untranslated`` for instructions that are not known."""
        module = ptx.translated(image.rstrip(b"\0").decode())
        name = hashlib.blake2b(" ".join([*_FLAGS, module.text]).encode(), digest_size=16).hexdigest()
        path = self._folder / f"{name}.so"
        with self._lock:
            if not path.exists():
                source, made = path.with_suffix(".c"), path.with_suffix(f".{os.getpid()}")
                source.write_text(module.text)
                subprocess.run(["cc", *_FLAGS, str(source), "-o", str(made), "-lm"], check=True)
                made.replace(path)
        library = ctypes.CDLL(str(path))
        return {name: Entry(kernel, library) for name, kernel in module.kernels.items()}
