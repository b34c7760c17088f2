"""The one device of this provider: the processor the interpreter runs on."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Sequence

from onnxplug.contract import Available, DeviceInfo

# What processors and operating systems call a maker, and the name it goes by.
_VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "Apple": "Apple",
    "0x41": "ARM",
    "0x48": "Huawei",
    "0x4e": "NVIDIA",
    "0x51": "Qualcomm",
    "0xc0": "Ampere",
}


def check() -> Available:
    """NumPy runs wherever Python does."""
    return Available(f"{cores()} cores, {vendor() or platform.machine()}")


def devices() -> Sequence[DeviceInfo]:
    """One CPU."""
    return [DeviceInfo("CPU", 0, vendor(), platform.machine())]


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def vendor() -> str:
    """The processor's maker, or an empty string when the system does not say."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple"
    text = _cpuinfo() or platform.processor()
    return next((name for mark, name in _VENDORS.items() if mark in text), "")


def _cpuinfo() -> str:
    """The line of Linux's /proc/cpuinfo that names the maker: ``vendor_id`` on x86, ``CPU implementer`` on ARM."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line for line in lines if line.startswith(("vendor_id", "CPU implementer"))), "")
    except OSError:
        return ""
