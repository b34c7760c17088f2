"""Which CUDA runtimes the dynamic linker finds."""

from __future__ import annotations

import ctypes
import sys
import warnings


def find_cudart_versions(build_env: bool = False, build_cuda_version: str | None = None) -> list[int] | None:
    """The versions (12040 is 12.4) of ``libcudart.so`` and of ``libcudart.so.<build_cuda_version>``, of those that can be loaded and
    asked. None, with a warning, elsewhere than on Linux. ``build_env`` changes nothing, as in onnxruntime."""
    if not sys.platform.startswith("linux"):
        warnings.warn("find_cudart_versions only works on Linux", stacklevel=2)
        return None
    names = dict.fromkeys(
        ("libcudart.so", f"libcudart.so.{build_cuda_version}" if build_cuda_version else "libcudart.so")
    )
    return list(dict.fromkeys(filter(None, map(_version, names))))


def _version(library: str) -> int | None:
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL(library).cudaRuntimeGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed else version.value
