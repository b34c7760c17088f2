"""Tensors over memory that the caller has and names by its address."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.session.arrays import element_dtype, shape_tuple
from onnxplug.session.device import OrtDevice
from onnxplug.session.ortvalue import OrtValue


def at_address(
    device: OrtDevice, element_type: Any, shape: Sequence[int], address: int, failed: str, owner: Any = None
) -> OrtValue:
    """A tensor of ``shape`` over the memory at ``address``, which the caller keeps, or ``owner`` does. RuntimeError that begins with
    ``failed`` for memory of a device that nobody here has, and for a null address; TypeError for what is no address."""
    dtype, dims = (
        element_dtype(element_type, "Only binding non-string Tensors is currently supported"),
        shape_tuple(shape),
    )
    if not hasattr(address, "__index__"):
        raise TypeError(f"incompatible function arguments: expected an address, got {address!r}")
    nbytes = dtype.itemsize * math.prod(dims)
    if not address and nbytes:
        raise RuntimeError(f"{failed} the address is null")
    if device.kind != "cpu":
        return OrtValue._at(device, dtype, dims, int(address), failed, owner)
    if nbytes == 0:
        return OrtValue._wrap(np.empty(dims, dtype))
    block = (ctypes.c_ubyte * nbytes).from_address(int(address))
    return OrtValue._wrap(np.ndarray(dims, dtype, memoryview(block)), owner=owner)
