"""What code is generated for: instruction set, vector width, registers, caches."""

from __future__ import annotations

import functools
import platform

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.host import host

_NO_BRANCH = "-idivq-to-divl"
NAMES = ("avx512", "avx2", "neon", "generic")


@record(frozen=True, slots=True)
class Target:
    """``lanes`` float32 values make a vector; ``registers`` vectors fit the register file (without fused
    multiply-add two of them hold products); cache sizes in bytes per core."""

    name: str
    cpu: str
    features: str
    lanes: int
    registers: int
    l1: int
    l2: int

    @property
    def masks(self) -> bool:
        """Whether some lanes of a vector are loaded and stored by one instruction."""
        return self.name in ("avx512", "avx2")

    @property
    def is_x86(self) -> bool:
        return platform.machine().lower() in ("x86_64", "amd64")


@functools.cache
def host_target(name: str = "") -> Target:
    """The widest target of this machine, or the one named (a narrower one, for tests and comparisons).

    Raises ValueError for a name this machine cannot run.
    """
    widest = _widest(frozenset(host().features.split(",")))
    name = name or widest
    if name not in NAMES:
        raise ValueError(f"unknown code generation target '{name}', one of {', '.join(NAMES)} was expected")
    if NAMES.index(name) < NAMES.index(widest) or (name == "neon") != (widest == "neon" or name == "neon"):
        raise ValueError(f"this processor has no {name}; its widest target is {widest}")
    lanes, registers = {"avx512": (16, 32), "avx2": (8, 16), "neon": (4, 32), "generic": (4, 14)}[name]
    l1, l2 = _cache(1, 32 << 10), _cache(2, 512 << 10)
    if name == widest:
        return Target(name, host().cpu, _tuned(host().features), lanes, registers, l1, l2)
    if name == "avx2":
        return Target(name, "haswell", "+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt", lanes, registers, l1, l2)
    return Target(name, "", "", lanes, registers, l1, l2)


def _widest(features: frozenset[str]) -> str:
    if features >= {"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"}:
        return "avx512"
    if features >= {"+avx2", "+fma", "+f16c"}:
        return "avx2"
    return "neon" if platform.machine().lower() in ("arm64", "aarch64") else "generic"


def _tuned(features: str) -> str:
    """With no branch to a division of 32 bits before each of 64, which LLVM writes for all processors of x86 and which a tenth of the
    compile time goes to. Those with VPCLMULQDQ (Ice Lake, Alder Lake, Zen 3 and later) divide 64 bits in some 15 cycles, older ones in up
    to 90 (Agner Fog, "Instruction tables")."""
    return f"{features},{_NO_BRANCH}" if "+vpclmulqdq" in features.split(",") else features


def _cache(level: int, default: int) -> int:
    """Bytes of the data cache of a level, from Linux's sysfs."""
    for index in range(5):
        try:
            if int(_told(index, "level")) == level and "Instruction" not in _told(index, "type"):
                return int(_told(index, "size").rstrip("K")) << 10
        except (OSError, ValueError):
            return default
    return default


def _told(index: int, name: str) -> str:
    with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{name}") as file:
        return file.read().strip()
