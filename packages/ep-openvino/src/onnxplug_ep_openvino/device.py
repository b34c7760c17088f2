"""OpenVINO's devices: finding them, saying why there is none."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any

from onnxplug.contract import Available, DeviceInfo, EPFail, Unavailable

_TELEMETRY = "openvino_telemetry"
_LEAST = (2026, 4)
_INSTALL = "pip install 'openvino>=2026.4'"


def check() -> Available | Unavailable:
    """Whether OpenVINO is installed, whose package has a plugin for the processor. It is not loaded."""
    try:
        found = installed("openvino")
    except PackageNotFoundError:
        return Unavailable("the package openvino is not installed", _INSTALL)
    if tuple(int(part) for part in found.split(".")[:2]) < _LEAST:
        return Unavailable(f"OpenVINO {found} is older than what was tried", _INSTALL)
    return Available(f"OpenVINO {found}")


def devices() -> Sequence[DeviceInfo]:
    """Every device in OpenVINO's order, with the name that option ``device_type`` takes."""
    if not isinstance(check(), Available):
        return ()
    return [
        DeviceInfo(
            _kind(name),
            number,
            "Intel",
            str(core().get_property(name, "FULL_DEVICE_NAME")),
            {"device_type": name},
            {"device_type": name},
        )
        for number, name in enumerate(core().available_devices)
    ]


def core() -> Any:
    """OpenVINO's entry, one for the process: each loads plugins of its own. EPFail in a fork of a process that had it."""
    after_fork()
    return _core()


def after_fork() -> None:
    """EPFail where OpenVINO would wait for threads that a fork did not take along."""
    if _forks:
        raise EPFail(
            "a process that used OpenVINO was forked, which its threads do not survive: start processes by spawn"
        )


@functools.cache
def _core() -> Any:
    return library().Core()


def library() -> Any:
    """The package, without its telemetry, which counts imports in a file of the user's and may send what it counts."""
    if "openvino" not in sys.modules and _TELEMETRY not in sys.modules:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
        try:
            import openvino
        finally:
            del sys.modules[_TELEMETRY]
    import openvino

    return openvino


def version() -> str:
    """OpenVINO's version, ``2026.4.1``."""
    return installed("openvino")


def _kind(name: str) -> str:
    kind = name.partition(".")[0]
    return kind if kind in ("GPU", "NPU") else "CPU"


def _forked() -> None:
    if _core.cache_info().currsize:
        _forks.append(os.getpid())


_forks: list[int] = []
"""Not empty in a fork of a process that had OpenVINO's threads."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
