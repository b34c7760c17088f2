"""PoCL 3.0 on a processor that is newer than its compiler.

AMD's Zen 5 PoCL calls ``generic``, a name that its own compiler refuses: nothing can be built. Zen 4 it takes for ``znver3``, which has
narrower vectors. No setting of PoCL's changes the name. Decision 0029 says why it is changed where PoCL keeps it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

_RELEASE = "OpenCL 3.0 PoCL 3.0-rc2"
"""How the build begins to describe itself that PyPI has; only its device descriptions are known here."""
_TRIPLE = b"x86_64-unknown-linux-gnu"
_PLACE = 79
"""Words of a device's description before those that point to the triple and the processor's name."""
_LEVEL_3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
_LEVEL_4 = _LEVEL_3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_LEVELS = {
    b"cascadelake": _LEVEL_4 | {"avx512_vnni"},
    b"x86-64-v4": _LEVEL_4,
    b"x86-64-v3": _LEVEL_3,
}
"""Names that the compiler knows, and what Linux calls those of their features that kernels are compiled to, the widest first. PoCL takes
its builtins for the widest vectors that the processor has, and kernels for narrower ones hand over such vectors otherwise: the process
ends."""
_MISTAKEN = {b"generic": (b"cascadelake", b"x86-64-v4", b"x86-64-v3"), b"znver3": (b"cascadelake", b"x86-64-v4")}
"""What PoCL calls processors that it does not know, and the names that each may have instead."""
_NAMES = {name: ctypes.create_string_buffer(name) for name in _LEVELS}
"""The names, where PoCL refers to one of them from then on."""


def name_processor(device: Any) -> None:
    """Give the processor a name that PoCL's compiler knows and that has its vectors, if PoCL has none; other devices stay as they are."""
    calls = device.version.rpartition(f"{_TRIPLE.decode()}-")[2].encode()
    if calls not in _MISTAKEN or not device.platform.version.startswith(_RELEASE):
        return
    words = (ctypes.c_size_t * (_PLACE + 2)).from_address(device.int_ptr)
    if ctypes.string_at(words[_PLACE]) == _TRIPLE and ctypes.string_at(words[_PLACE + 1]) == calls:
        features = _features()
        name = next((name for name in _MISTAKEN[calls] if features >= _LEVELS[name]), None)
        if name is not None:
            words[_PLACE + 1] = ctypes.addressof(_NAMES[name])


def _features() -> frozenset[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())
