"""Copies between the simulated devices and the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract import HOST, DataTransfer, Device
from onnxplug_ep_reference.device import KIND
from onnxplug_ep_reference.memory import SimTensor, contents


class SimTransfer(DataTransfer):
    """The only way in and out of simulated memory. Copies are complete on return."""

    def can_copy(self, source: Device, destination: Device) -> bool:
        sides = (source, destination)
        return any(side.kind == KIND for side in sides) and all(side.kind == KIND or side == HOST for side in sides)

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        if source.dtype != destination.dtype or tuple(source.shape) != tuple(destination.shape):
            raise ValueError(
                f"cannot copy {source.dtype} {source.shape} into {destination.dtype} {destination.shape}: they differ"
            )
        np.copyto(_array(destination, writable=True), _array(source))


def _array(side: Any, *, writable: bool = False) -> np.ndarray:
    if isinstance(side, SimTensor):
        return contents(side, writable=writable)
    if isinstance(side, np.ndarray):
        return side
    raise TypeError(f"cannot copy a {type(side).__name__}: neither a simulated nor a NumPy tensor")
