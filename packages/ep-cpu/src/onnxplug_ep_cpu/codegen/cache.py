"""Object files, and what was measured or asked of LLVM, on disk for later processes."""

from __future__ import annotations

import functools

from onnxplug.contract.cache import DiskCache, user_cache

LIMIT = 256 << 20
"""Bytes of the folder."""
SUFFIX = ".o"


@functools.cache
def object_cache() -> DiskCache | None:
    """The process's one cache; None when there is none."""
    return user_cache("cpu", SUFFIX, LIMIT)
