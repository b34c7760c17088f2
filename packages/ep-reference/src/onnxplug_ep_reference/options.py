"""The provider's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnxplug.contract import option


@dataclass(frozen=True)
class ReferenceOptions:
    """Options of ReferenceExecutionProvider."""

    device_id: int = option(0, "index of the simulated device")
    memory: str = option(
        "simulated", "where tensors live: a memory NumPy cannot see, or the host", choices=("simulated", "host")
    )
    mem_limit: int | None = option(None, "bytes the simulated memory holds; empty: no limit")
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = option(
        "kNextPowerOfTwo", "how the arena grows", choices=("kNextPowerOfTwo", "kSameAsRequested")
    )
    float64: bool = option(False, "compute float tensors in double and round the results to their declared types")
