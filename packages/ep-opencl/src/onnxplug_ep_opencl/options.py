"""The provider's options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from onnxplug.contract import option


@dataclass(frozen=True)
class OpenCLOptions:
    """Options of OpenCLExecutionProvider."""

    device_id: int = option(
        0,
        "index of the device in the order of `onnxplug doctor`, or among those that platform and device leave",
        least=0,
    )
    platform: str = option("", "only devices of this platform: its index, or part of its name in any case; empty: all")
    device: str = option("", "only devices with this in their name, in any case; empty: all")
    device_mem_limit: int | None = option(
        None,
        "bytes of device memory a session may take; what has weights beyond is left to the next provider; empty: no limit",
        least=1,
    )
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = option(
        "kNextPowerOfTwo", "how the arena grows", choices=("kNextPowerOfTwo", "kSameAsRequested")
    )
    kernel_shape: str = option(
        "auto",
        "who computes a tile of a product or a line of a reduction, softmax or normalisation: one work-item (register), "
        "a group of them with local memory (local), or by the device's type (auto)",
        choices=("auto", "register", "local"),
    )
    tuning: bool = option(
        False,
        "measure the tiles of products when a shape is first seen, and keep the times on disk for later processes",
    )
    fast_math: bool = option(False, "let the compiler reorder floating-point arithmetic and assume finite numbers")
    profiling: bool = option(
        False,
        "wait for the device behind each step and time its kernels there, for a profile that shows each step's and each kernel's own time",
    )
    cache_dir: str = option("", "folder of compiled programs; empty: pyopencl's own in the user's cache folder")

    def cache_folder(self) -> str:
        """``cache_dir``, which is there from now on. RuntimeError where that cannot be."""
        if self.cache_dir:
            try:
                os.makedirs(self.cache_dir, exist_ok=True)
            except (OSError, ValueError) as error:
                raise RuntimeError(f'provider option "cache_dir": {self.cache_dir!r} is no folder: {error}') from error
            if not os.access(self.cache_dir, os.W_OK | os.X_OK):
                raise RuntimeError(f'provider option "cache_dir": {self.cache_dir!r} cannot be written to')
        return self.cache_dir
