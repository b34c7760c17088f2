"""What LLVM says about this processor, kept in the cache: a process whose kernels are all in the cache need not load LLVM, which
takes as much memory as a small model's session, and a good part of its time."""

from __future__ import annotations

import functools
import os

from onnxplug.contract.digest import blake2b
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.cache import object_cache
from onnxplug_ep_cpu.codegen.llvm import path_of_library, processor

_CPUINFO = "/proc/cpuinfo"
_TELLING = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")


@record(frozen=True, slots=True)
class Host:
    """LLVM's name and features ("+avx2,-avx512f,...") of the processor, and the versions of llvmlite and its LLVM."""

    cpu: str
    features: str
    versions: str


@functools.cache
def host() -> Host:
    """This machine's. ImportError or OSError where llvmlite cannot be imported."""
    cache, name = object_cache(), _name()
    kept = cache.get(name) if cache is not None and name is not None else None
    if kept is not None:
        return Host(*kept.decode().split("\n"))
    found = _asked()
    if cache is not None and name is not None:
        cache.put(name, "\n".join((found.cpu, found.features, found.versions)).encode())
    return found


def _asked() -> Host:
    import llvmlite

    cpu, features, version = processor()
    return Host(cpu, features, f"{llvmlite.__version__} {version}")


def _name() -> str | None:
    """A name for what decides the answers, the processor and the library's file; None where the system does not tell. ImportError
    where there is no llvmlite."""
    library = path_of_library()
    if library is None:
        return None
    try:
        stat, lines = os.stat(library), []
        with open(_CPUINFO) as file:
            for line in file:
                if not line.strip():  # the next processor
                    break
                if line.startswith(_TELLING):
                    lines.append(line)
    except OSError:
        return None
    text = f"{library} {stat.st_size} {stat.st_mtime_ns}\n{''.join(lines)}"
    return f"l{blake2b(text.encode(), digest_size=16).hexdigest()}"
