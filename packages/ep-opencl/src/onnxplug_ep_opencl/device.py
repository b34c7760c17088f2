"""OpenCL platforms and devices: finding them, choosing one, saying why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from onnxplug.contract import Available, Device, DeviceInfo, Unavailable
from onnxplug_ep_opencl.pocl import name_processor

if TYPE_CHECKING:
    from onnxplug_ep_opencl.options import OpenCLOptions

KIND = "opencl"
_SIMULATOR = "Oclgrind"
_INSTALL = "install a vendor's OpenCL driver, or for the processor: pip install 'onnxplug-ep-opencl[pocl]'"


def check() -> Available | Unavailable:
    """Whether pyopencl is installed and any platform has a device."""
    if find_spec("pyopencl") is None:
        return Unavailable("the package pyopencl is not installed", "pip install pyopencl")
    try:
        found = listed()
    except Exception as error:  # a broken driver or loader, whatever it raises
        return Unavailable(f"OpenCL does not start: {error}", _INSTALL)
    if not found:
        return Unavailable("no OpenCL platform has a device", _INSTALL)
    return Available("; ".join(f"{number}: {describe(device)}" for number, device in enumerate(found)))


def devices() -> Sequence[DeviceInfo]:
    """Every device of every platform, in the order of ``device_id``."""
    if not isinstance(check(), Available):
        return ()
    return [
        DeviceInfo(
            _type(device),
            number,
            device.vendor.strip(),
            device.name.strip(),
            {"platform": device.platform.name, "version": device.version.strip(), "driver": device.driver_version},
        )
        for number, device in enumerate(listed())
    ]


def describe(device: Any) -> str:
    """A device as listings name it: ``PLATFORM / DEVICE (TYPE)``."""
    return f"{device.platform.name.strip()} / {device.name.strip()} ({_type(device)})"


def listed() -> list[Any]:
    """All devices as pyopencl objects: accelerators, then processors, simulators last; otherwise as the platforms list them."""
    import pyopencl as cl

    found: list[Any] = []
    try:
        platforms = cl.get_platforms()
    except cl.LogicError as error:
        if "PLATFORM_NOT_FOUND_KHR" in str(error):
            return []
        raise
    for platform in platforms:
        try:
            found += platform.get_devices()
        except cl.Error:  # a platform without a device: the loader has the driver, the machine has not the hardware
            continue
    for device in found:
        name_processor(device)
    return sorted(found, key=_rank)


def select(options: OpenCLOptions) -> tuple[Device, Any]:
    """The device that the options mean, as the contract and as pyopencl know it. RuntimeError says what there is instead."""
    everything = list(enumerate(listed()))
    wanted = [(n, d) for n, d in everything if _fits(d, options)]
    if not 0 <= options.device_id < len(wanted):
        among = "; ".join(f"{n}: {describe(d)}" for n, d in everything) or "none"
        chosen = ", ".join(
            f"{name}={value!r}"
            for name in ("device_id", "platform", "device")
            if (value := getattr(options, name)) != ""
        )
        raise RuntimeError(f"no OpenCL device has {chosen} ({len(wanted)} fit); devices: {among}")
    number, device = wanted[options.device_id]
    return Device(KIND, number), device


def is_processor(device: Any) -> bool:
    """Whether the device is a CPU, whose work-items do best alone, without local memory."""
    return _type(device) == "CPU"


def _fits(device: Any, options: OpenCLOptions) -> bool:
    if options.platform:
        import pyopencl as cl

        named = options.platform.lower() in f"{device.platform.name} {device.platform.version}".lower()
        numbers = [n for n, p in enumerate(cl.get_platforms()) if p == device.platform]
        if not (int(options.platform) in numbers if options.platform.isdecimal() else named):
            return False
    return options.device.lower() in device.name.lower()


def _type(device: Any) -> str:
    import pyopencl as cl

    if device.type & cl.device_type.GPU:
        return "GPU"
    return "NPU" if device.type & cl.device_type.ACCELERATOR else "CPU"


def _rank(device: Any) -> int:
    if device.platform.name.startswith(_SIMULATOR):
        return 3
    return {"GPU": 0, "NPU": 1, "CPU": 2}[_type(device)]
