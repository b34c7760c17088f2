"""Functions of the process: which providers there are, the version, the seed of random operators, and calls kept for
compatibility.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import Fail
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.session.options import SessionOptions
from onnxplug.session.settings import as_int, as_text

if TYPE_CHECKING:
    from onnxplug.session.device import OrtArenaCfg, OrtMemoryInfo
    from onnxplug.session.ortvalue import OrtValue

_seed: int | None = None
_global_threads: int | None = None


def get_available_providers() -> list[str]:
    """Providers that can be used on this machine, in default priority. Imports the front door of each to ask it."""
    from onnxplug.plugins.registry import available_providers

    return available_providers()


def get_all_providers() -> list[str]:
    """All provider names this version knows, installed or not, in default priority."""
    from onnxplug.plugins.registry import all_providers

    return all_providers()


def get_device() -> str:
    """``GPU`` when a provider that can be used here drives one, else ``CPU``."""
    from onnxplug.session.ep_devices import get_ep_devices

    return "GPU" if any(device.device.type.name == "GPU" for device in get_ep_devices()) else "CPU"


def get_version_string() -> str:
    """The version, as in ``onnxplug.__version__``."""
    import onnxplug

    return onnxplug.__version__


def get_build_info() -> str:
    """One line about what runs here, with the words that programs look for in onnxruntime's."""
    import numpy as np

    from onnxplug.contract.provider import CONTRACT_VERSION

    contract = ".".join(map(str, CONTRACT_VERSION))
    parts = (
        f"onnxplug {get_version_string()}, contract {contract}, Python {sys.version.split()[0]}, NumPy {np.__version__}"
    )
    return f"ORT Build Info: {parts}"


def print_debug_info() -> None:
    """Print ``get_build_info()`` and the state of every provider."""
    from onnxplug.plugins.registry import records

    print(get_build_info())
    for record in records(load=True):
        print(record)


def set_seed(seed: int) -> None:
    """Seed random operators that have no ``seed`` attribute, in sessions created from now on."""
    global _seed
    if not hasattr(seed, "__index__") or not -(2**63) <= int(seed) < 2**63:
        raise TypeError(f"set_seed(): incompatible function arguments: expected an int of 64 bits, got {seed!r}")
    _seed = int(seed)


def get_default_session_options() -> SessionOptions:
    """Fresh options, as a session without any has them."""
    return SessionOptions()


def has_collective_ops() -> bool:
    """Always False."""
    return False


def enable_telemetry_events() -> None:
    """Nothing: no telemetry is collected."""


def disable_telemetry_events() -> None:
    """Nothing: no telemetry is collected."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Nothing: each provider finds its own libraries when a session names it."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Give sessions with ``use_per_session_threads`` off one number of threads: ``intra_op_num_threads``, 0 for one each
    core. From then on every session must have it off. Fail for a second call. ``inter_op_num_threads`` has no effect:
    nodes of one run are executed one after the other.
    """
    global _global_threads
    sizes = as_int(intra_op_num_threads), as_int(inter_op_num_threads)
    if _global_threads is not None:
        raise Fail("Global thread pools have already been created, cannot replace them")
    _global_threads = sizes[0]


def requested_threads(options: SessionOptions) -> int:
    """``intra_op_num_threads`` for a session with these options: its own or the process's. RuntimeError where the
    options do not go with what ``set_global_thread_pool_sizes`` has set.
    """
    if options.use_per_session_threads:
        if _global_threads is not None:
            raise RuntimeError("use_per_session_threads must be false when using a global thread pool")
        return options.intra_op_num_threads
    if _global_threads is None:
        raise RuntimeError(
            "When the session is not configured to use per session threadpools, set_global_thread_pool_sizes must be "
            "called before it is created"
        )
    return _global_threads


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Accepted for compatibility: sessions do not take memory from the process."""
    from onnxplug.session.device import OrtArenaCfg, OrtMemoryInfo

    if not isinstance(mem_info, OrtMemoryInfo) or not isinstance(arena_cfg, OrtArenaCfg | None):
        raise TypeError("incompatible function arguments: expected (OrtMemoryInfo, OrtArenaCfg | None)")
    if mem_info._device.kind != "cpu":
        raise RuntimeError(
            "Error when creating and registering allocator: Only CPU devices are supported. Please call "
            "CreateAndRegisterAllocatorV2() for other device."
        )


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None
) -> None:
    """As ``create_and_register_allocator``, for a provider by name; RuntimeError for one that cannot be used here."""
    from onnxplug.session.device import OrtArenaCfg, OrtMemoryInfo

    if as_text(provider_type) not in get_available_providers():
        raise RuntimeError(
            "Error when creating and registering allocator in create_and_register_allocator_v2: "
            f"{provider_type} is not implemented in CreateAndRegisterAllocatorV2()"
        )
    if not isinstance(mem_info, OrtMemoryInfo) or not isinstance(arena_cfg, OrtArenaCfg | None):
        raise TypeError("incompatible function arguments: expected (str, OrtMemoryInfo, dict, OrtArenaCfg | None)")


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy each source over the destination at the same place, whatever devices they are on."""
    if len(src) != len(dst) or not len(src):
        raise RuntimeError(f"Invalid arguments provided to CopyTensors. ({len(src)} sources, {len(dst)} destinations)")
    for source, destination in zip(src, dst, strict=True):
        destination._get_c_value().update_inplace(source._get_c_value())


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """NotImplemented: providers are Python packages here (``register_provider`` offers one from this process). Fail where
    there is no file.
    """
    import os

    path = os.fspath(library_path)
    as_text(registration_name)
    if os.path.exists(path):
        raise OrtNotImplemented(
            f"Cannot load library {path}: providers are Python packages here, not libraries for onnxruntime's C interface; "
            "see register_provider"
        )
    reason = f"{path}: cannot open shared object file: No such file or directory"
    raise Fail(f"Failed to load library {path} with error: {reason}")


def unregister_execution_provider_library(registration_name: str) -> None:
    """Always fails, as nothing can be registered this way."""
    raise Fail(f"Execution provider library: {as_text(registration_name)} was not registered.")
