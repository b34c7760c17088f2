"""Constants of kernels that PoCL has compiled, brought into memory.

PoCL loads each kernel as a library, whose constants are read from disk when an instruction first wants them. Instructions for which a mask
rules out all elements do not: of a page that is not there yet they make sure, every time, that they need none of it, which takes hundreds
of cycles. A kernel that looks for NaN where there is none would be fifty times as slow as one that finds some.
"""

from __future__ import annotations

import mmap
import os
import re
from typing import Any

_PLATFORM = "Portable Computing Language"
_CONSTANTS = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) r--p .*/k\d+_\w+\.so$", re.MULTILINE)
"""The memory of a kernel's library that is only read, as Linux lists it; names are those that ``programs`` gives to kernels."""


def has_libraries(device: Any) -> bool:
    """Whether kernels of the device are libraries that lie in memory so."""
    return bool(device.platform.name == _PLATFORM) and os.path.exists("/proc/self/maps")


def bring_constants() -> None:
    """Read a byte of every page of constants. By way of the file of this process's memory, where what another thread unloads meanwhile is
    an error and no fault."""
    try:
        with open("/proc/self/maps", "rb") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for found in _CONSTANTS.finditer(maps.read()):
                first, end = (int(address, 16) for address in found.groups())
                for page in range(first, end, mmap.PAGESIZE):
                    os.pread(memory.fileno(), 1, page)
    except OSError:  # unloaded, or a process that may not read its own memory: slower, no more
        pass
