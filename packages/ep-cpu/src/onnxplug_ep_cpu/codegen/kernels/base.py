"""What every kernel description has."""

from __future__ import annotations

from typing import Protocol

from onnxplug_ep_cpu.codegen.emit import Emitter


class Kernel(Protocol):
    """A kernel by what distinguishes its code; frozen, hashable, with a ``repr`` that says all (it keys the disk cache)."""

    def emit(self, f: Emitter) -> None:
        """Write the body."""
