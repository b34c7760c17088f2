"""The simulated devices: always there when onnx is. Two of them, so that copies between devices can be exercised."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from onnxplug.contract import Available, Device, DeviceInfo, Unavailable

KIND = "sim"
DEVICE_COUNT = 2


def check() -> Available | Unavailable:
    """Whether onnx is installed; its reference implementation is part of it."""
    if find_spec("onnx") is None:
        return Unavailable("the package onnx is not installed", "pip install onnx")
    return Available(f"{DEVICE_COUNT} simulated devices")


def devices() -> Sequence[DeviceInfo]:
    """The simulated devices, computed on the CPU."""
    return [DeviceInfo("CPU", index, "onnxplug", f"simulated memory {index}") for index in range(DEVICE_COUNT)]


def device(index: int) -> Device:
    """The device of option ``device_id``. RuntimeError where there is none."""
    if not 0 <= index < DEVICE_COUNT:
        raise RuntimeError(f"device_id {index}: there are {DEVICE_COUNT} simulated devices, 0 to {DEVICE_COUNT - 1}")
    return Device(KIND, index)
