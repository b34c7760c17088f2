"""Whether a provider can be used here, and what is missing where it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder

from onnxplug.contract import Available, DeviceInfo, Unavailable
from onnxplug_ep_onnxruntime import library
from onnxplug_ep_onnxruntime.catalogue import OWN, Bridged

_SYSTEMS = {"win32": "Windows", "darwin": "macOS", "linux": "Linux", "android": "Android"}


def check(bridged: Bridged) -> Available | Unavailable:
    """Whether the installed onnxruntime, or a plugin library beside it, has the provider, on a machine that can have its hardware. The
    library is loaded only where neither files nor an earlier answer tell."""
    if bridged.system and not sys.platform.startswith(bridged.system):
        return Unavailable(f"it exists on {_SYSTEMS[bridged.system]} only")
    if sys.platform == "linux" and bridged.files and not any(map(os.path.exists, bridged.files)):
        return Unavailable(f"no {bridged.vendor} device is here ({' or '.join(bridged.files)})")
    found = library.wheel()
    if found is None:
        return Unavailable("onnxruntime is not installed", _fix(bridged, found))
    if (reason := library.unfit(found)) is not None:
        return reason
    if bridged.name == OWN:
        return Available(str(found))
    try:
        if (path := plugin_library(bridged)) is not None:
            if not library.plugin_devices(path, bridged.ep):
                return Unavailable(f"{bridged.plugin} finds no device it can use")
            return Available(f"{bridged.plugin} in {found}")
        names = library.offered(found)
    except (ImportError, RuntimeError, OSError) as error:
        return Unavailable(f"{found} does not load: {error}", _fix(bridged, found))
    if bridged.ep not in names:
        return Unavailable(f"it is not in {found}", _fix(bridged, found))
    return Available(str(found))


def devices(bridged: Bridged) -> Sequence[DeviceInfo]:
    """The one device that onnxruntime is known to reach."""
    if not isinstance(check(bridged), Available):
        return ()
    return [DeviceInfo(bridged.device, 0, bridged.vendor, "by onnxruntime")]


def plugin_library(bridged: Bridged) -> str | None:
    """The provider's plugin library, where a package that brings one is installed. OSError where the package has it not."""
    if not bridged.plugin or PathFinder.find_spec(bridged.plugin) is None:
        return None
    from importlib import import_module

    try:
        return str(import_module(bridged.plugin).get_library_path())
    except Exception as error:  # whatever a package says that misses its library
        raise OSError(f"{bridged.plugin} has no library: {error}") from error


def _fix(bridged: Bridged, found: library.Wheel | None) -> str:
    """What brings the provider: a plugin needs an onnxruntime beside it, another build takes its place."""
    alone = bridged.fix.startswith("pip install") and not bridged.plugin
    if found is None and not alone:
        return (
            f"pip install onnxruntime; {bridged.fix}"
            if bridged.plugin
            else bridged.fix.removeprefix("pip uninstall onnxruntime; ")
        )
    return (
        bridged.fix
        if found is None
        else bridged.fix.replace("uninstall onnxruntime;", f"uninstall {found.distribution};")
    )
