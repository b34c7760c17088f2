"""Whether this machine has what the provider needs, and which GPUs: asked of the management library (NVML), not of CUDA.

CUDA once initialised is of no use to the children of a fork; NVML leaves no trace. Where a driver comes without it (Jetson), or it does
not work (in some containers), CUDA's own count is asked for.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec

from onnxplug.contract import Available, Device, DeviceInfo, Unavailable

KIND = "cuda"
_WINDOWS = sys.platform == "win32"
DRIVER = "nvcuda.dll" if _WINDOWS else "libcuda.so.1"
NVML = "nvml.dll" if _WINDOWS else "libnvidia-ml.so.1"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CUPYS = {"cupy-cuda12x": 12, "cupy-cuda13x": 13}
"""Distributions of CuPy, with the major version of CUDA they are made for."""

Loader = Callable[[str], ctypes.CDLL]


def check(load: Loader = ctypes.CDLL) -> Available | Unavailable:
    """Whether CuPy, the driver and a device are there; if not, which of them is missing and how to get it."""
    if find_spec("cupy") is None:
        return Unavailable(
            "CuPy is not installed",
            "pip install 'onnxplug-ep-cuda[cuda12]' (or [cuda13] for a driver of CUDA 13)",
        )
    try:
        driver = load(DRIVER)
    except OSError as error:
        return Unavailable(
            f"the CUDA driver's library {DRIVER} cannot be loaded ({error})",
            "install NVIDIA's driver (nvidia-smi shows it); in a container, start it with the GPU: docker run --gpus all",
        )
    if (unfit := unfit_cupy(installed_cupys(), driver_major(driver))) is not None:
        return unfit
    if hidden():
        return Unavailable(
            f"{_VISIBLE}={os.environ[_VISIBLE]!r} hides every GPU from CUDA", f"unset {_VISIBLE}, or name a GPU in it"
        )
    try:
        names = gpu_names(load)
    except OSError as error:
        return Unavailable(
            f"the CUDA driver does not start: {error}", "see what nvidia-smi says; a reboot follows an upgraded driver"
        )
    if not names:
        return Unavailable("the CUDA driver finds no GPU", "see what nvidia-smi -L lists")
    return Available(", ".join(names))


def devices() -> Sequence[DeviceInfo]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, under CUDA's numbers."""
    if hidden():
        return ()
    try:
        names = gpu_names(ctypes.CDLL)
    except OSError:
        return ()
    return [DeviceInfo("GPU", index, "NVIDIA", name) for index, name in enumerate(names)]


def device(index: int, count: int) -> Device:
    """The device of option ``device_id``. RuntimeError, in onnxruntime's words, where there is none."""
    if not 0 <= index < count:
        raise RuntimeError(
            f"Invalid device ID: {index}, must be between 0 (inclusive) and {count} (exclusive). Option device_id counts the GPUs that "
            f"{_VISIBLE} leaves."
        )
    return Device(KIND, index)


def installed_cupys() -> list[str]:
    """The distributions of CuPy on this machine."""
    found = []
    for name in _CUPYS:
        with suppress(metadata.PackageNotFoundError):
            metadata.version(name)
            found.append(name)
    return found


def driver_major(driver: ctypes.CDLL) -> int:
    """The newest major version of CUDA that a driver serves; 0 where it does not tell."""
    version = ctypes.c_int()
    try:
        return 0 if driver.cuDriverGetVersion(ctypes.byref(version)) else version.value // 1000
    except AttributeError:
        return 0


def unfit_cupy(installed: Sequence[str], driver: int) -> Unavailable | None:
    """Why the CuPy that is installed cannot work with a driver of that major version, None where it can."""
    if len(installed) > 1:
        return Unavailable(
            f"{' and '.join(installed)} are installed together and overwrite each other's files",
            f"pip uninstall {' '.join(installed)}, then install one: pip install 'onnxplug-ep-cuda[cuda12]' (or [cuda13])",
        )
    wanted = max((_CUPYS[name] for name in installed), default=0)
    if 0 < driver < wanted:
        return Unavailable(
            f"{installed[0]} needs a driver of CUDA {wanted}, this one is of CUDA {driver}",
            f"upgrade NVIDIA's driver, or pip uninstall {installed[0]} and pip install 'onnxplug-ep-cuda[cuda{driver}]'",
        )
    return None


def missing_cudnn() -> str | None:
    """What cuDNN lacks on this machine, with what to do about it; None where it is there."""
    if find_spec("cudnn") is None:
        return "cuDNN's frontend is not installed: pip install 'onnxplug-ep-cuda[cudnn]' (or [cudnn13] for CUDA 13)"
    try:
        import cudnn  # looks for the library at once

        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError) as error:
        return f"cuDNN's library cannot be loaded ({error}): pip install 'onnxplug-ep-cuda[cudnn]' (or [cudnn13] for CUDA 13)"
    return None


def hidden() -> bool:
    """Whether the environment leaves CUDA no device: the list of visible ones is empty, or begins with -1."""
    listed = os.environ.get(_VISIBLE)
    return listed is not None and listed.split(",")[0].strip() in ("", "-1")


def gpu_names(load: Loader) -> list[str]:
    """Names of the GPUs CUDA would count. OSError when the driver does not work."""
    try:
        library = load(NVML)
        _demand(library.nvmlInit_v2(), "nvmlInit")
        try:
            names = _names(library)
        finally:
            library.nvmlShutdown()
    except OSError:
        return [f"GPU {index}" for index in range(_count_of_cuda(load))]
    return visible(names, os.environ.get(_VISIBLE))


def visible(names: Sequence[str], listed: str | None) -> list[str]:
    """What a value of ``CUDA_VISIBLE_DEVICES`` leaves of a machine's GPUs: up to the first number that is none. GPUs listed by UUID
    are kept as they are counted."""
    if listed is None:
        return list(names)
    left: list[str] = []
    for item in map(str.strip, listed.split(",")):
        if item.startswith(("GPU-", "MIG-")):
            left.append(item)
        elif item.isdigit() and int(item) < len(names):
            left.append(names[int(item)])
        else:
            break
    return left


def _names(library: ctypes.CDLL) -> list[str]:
    count = ctypes.c_uint()
    _demand(library.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
    names = []
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        _demand(library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), "nvmlDeviceGetHandleByIndex")
        _demand(library.nvmlDeviceGetName(handle, text, len(text)), "nvmlDeviceGetName")
        names.append(text.value.decode())
    return names


def _count_of_cuda(load: Loader) -> int:
    library, count = load(DRIVER), ctypes.c_int()
    _demand(library.cuInit(0), "cuInit")
    _demand(library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return count.value


def _demand(status: int, call: str) -> None:
    if status:
        raise OSError(f"{call} returned {status}")
