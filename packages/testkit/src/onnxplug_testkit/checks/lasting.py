"""What of the process stays as somebody set it, whatever becomes of who did: a first session that changes it changes it for all."""

from __future__ import annotations

import os
import sys
from typing import Any

_noted: dict[str, Any] = {}


def lasting() -> dict[str, Any]:
    """Name -> how it is now, so far as the operating system tells."""
    found: dict[str, Any] = {"the hooks of imports": ([*map(id, sys.meta_path)], [*map(id, sys.path_hooks)])}
    if hasattr(os, "sched_getaffinity"):
        found["which processors it runs on"] = os.sched_getaffinity(0)
    if hasattr(os, "getpriority"):
        found["its priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    if hasattr(sys, "getdlopenflags"):
        found["how libraries are loaded"] = sys.getdlopenflags()
    found |= _limits() | _threads_of_libraries()
    return found


def note() -> None:
    """Note how it all is, before a line of the provider's is run."""
    _noted.clear()
    _noted.update(lasting())


def changed() -> list[str]:
    """What is not as it was noted, import hooks apart, which others install too."""
    return [name for name, value in lasting().items() if "imports" not in name and _noted.get(name, value) != value]


def _limits() -> dict[str, Any]:
    try:
        import resource
    except ImportError:  # Windows
        return {}
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {"limits of resources": {name: resource.getrlimit(getattr(resource, name)) for name in names}}


def _threads_of_libraries() -> dict[str, Any]:
    """Of libraries such as NumPy's BLAS, where threadpoolctl is installed."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return {}
    return {f"the threads of {each['prefix']} ({each['filepath']})": each["num_threads"] for each in threadpool_info()}
