"""The installed onnxruntime: where it is, what it offers, and its native module.

Only the native module is used, not the Python code around it, and it is loaded without a trace in ``sys.modules``. So it serves a process
in which ``onnxruntime`` means onnxplug (``onnxplug.shim``); and one that imports onnxruntime itself, before or after, has the same module:
after, by a finder, since Python would make it anew without the modules inside it.
"""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from onnxplug.contract import EPFail, Unavailable

CPU = "CPUExecutionProvider"
_NATIVE = "onnxruntime.capi.onnxruntime_pybind11_state"
_OLDEST = (1, 20)
"""The first version whose bindings take element types that NumPy does not have."""
_loading = threading.RLock()


@dataclass(frozen=True)
class Wheel:
    """An installed onnxruntime: the name of its distribution, its version, and the file of its native module."""

    distribution: str
    version: str
    native: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


def wheel() -> Wheel | None:
    """The onnxruntime that is installed; nothing is imported for it."""
    found = PathFinder.find_spec("onnxruntime")
    for place in (found and found.submodule_search_locations) or ():
        capi = os.path.join(place, "capi")
        files = (os.path.join(capi, _NATIVE.rpartition(".")[2] + suffix) for suffix in EXTENSION_SUFFIXES)
        native = next(filter(os.path.isfile, files), None)
        if native is not None:
            told = _told(os.path.join(capi, "build_and_package_info.py"))
            return Wheel(told.get("package_name", "onnxruntime"), told.get("__version__", "0"), native)
    return None


def unfit(found: Wheel) -> Unavailable | None:
    """Why this onnxruntime cannot be used, if it cannot."""
    numbers = re.match(r"(\d+)\.(\d+)", found.version)
    if numbers is not None and tuple(map(int, numbers.groups())) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return Unavailable(f"{found} is older than {oldest}", f"pip install --upgrade '{found.distribution}>={oldest}'")
    return None


def native() -> Any:
    """onnxruntime's native module. ImportError where it does not load."""
    with _loading:
        return _native()


def offered(found: Wheel) -> Sequence[str]:
    """Names of the providers that this build has. What it says is kept on disk: the library takes long to load."""
    from onnxplug.contract.cache import user_cache

    status = os.stat(found.native)
    key = re.sub(r"\W+", "-", f"{found}-{status.st_size}-{status.st_mtime_ns}")
    kept = user_cache("onnxruntime", ".json", 1 << 16)
    blob = None if kept is None else kept.get(key)
    if blob is None:
        blob = json.dumps(native().get_available_providers()).encode()
        if kept is not None:
            kept.put(key, blob)
    names: list[str] = json.loads(blob)
    return names


@functools.cache
def operators() -> Mapping[tuple[str, str], frozenset[int]]:
    """The operators that onnxruntime takes, (domain, operator) -> since-versions. Those of a version of ONNX that is not released yet are
    not among them, though it has schemas and kernels."""
    schemas = native().get_all_operator_schema()
    released = next(v for v in sorted({s.since_version for s in schemas if not s.domain}, reverse=True) if _is_taken(v))
    found: dict[tuple[str, str], set[int]] = {}
    for schema in schemas:
        if schema.domain or schema.since_version <= released:
            found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return {key: frozenset(versions) for key, versions in found.items()}


def _is_taken(version: int) -> bool:
    """Whether onnxruntime takes models of this version of ONNX's operators."""
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "version", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    settings = native().SessionOptions()
    settings.log_severity_level = 4
    try:
        native().InferenceSession(settings, model.SerializeToString(), False, False)
    except Exception:
        return False
    return True


@functools.cache
def kernels() -> Sequence[Any]:
    """The kernels of onnxruntime's CPU provider. EPFail in builds that end the process when they are asked."""
    module = native()
    if hasattr(module, "get_registered_ep_kernel_defs"):
        return list(module.get_registered_ep_kernel_defs(CPU))
    if others := set(module.get_available_providers()) - {CPU, "AzureExecutionProvider"}:
        raise EPFail(
            f"onnxruntime {module.get_version_string()} cannot be asked for its kernels where it has {', '.join(others)}"
        )
    return [kernel for kernel in module.get_all_opkernel_def() if kernel.provider == CPU]


def plugin_devices(path: str, name: str) -> Sequence[Any]:
    """The devices of what a plugin library brings, registered as ``name`` if nobody has registered it yet. RuntimeError where it cannot
    be."""
    module, path = native(), os.path.abspath(path)
    with _loading:
        if path not in _registered and not _of(module, path):
            try:
                module.register_execution_provider_library(name, path)
            except Exception as error:
                raise RuntimeError(f"onnxruntime does not take {path}: {error}") from error
            _registered.add(path)
        return _of(module, path)


_registered: set[str] = set()


def _of(module: Any, path: str) -> Sequence[Any]:
    return [device for device in module.get_ep_devices() if device.ep_metadata.get("library_path") == path]


@functools.cache
def _native() -> Any:
    found = wheel()
    if found is None:
        raise ImportError("onnxruntime is not installed", name="onnxruntime")
    loaded = sys.modules.get(_NATIVE)
    if loaded is not None and getattr(loaded, "__file__", None) == found.native:
        return loaded
    before = {name: module for name, module in sys.modules.items() if name.startswith(_NATIVE)}
    for name in before:
        del sys.modules[name]
    try:
        preload = os.path.join(os.path.dirname(found.native), "_ld_preload.py")
        if os.path.isfile(preload):
            runpy.run_path(preload)  # loads libraries that the module needs, in builds that have such
        # The module lets itself be made once in a process, under its own name, whoever asks for it.
        spec = spec_from_file_location(_NATIVE, found.native, loader=ExtensionFileLoader(_NATIVE, found.native))
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        inner = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(_NATIVE)}
        sys.modules.update(before)
    inner.pop(_NATIVE, None)
    sys.meta_path.insert(0, _Made(module, inner, found.native))
    return module


class _Made(ExtensionFileLoader, MetaPathFinder):
    """Gives who imports onnxruntime's native module from its file the one that is there, with the modules inside it."""

    def __init__(self, module: ModuleType, inner: Mapping[str, ModuleType], path: str) -> None:
        super().__init__(_NATIVE, path)
        self._module, self._inner = module, inner

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        ours = fullname == _NATIVE and os.path.dirname(self.path) in (path or ())
        return spec_from_file_location(fullname, self.path, loader=self) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        sys.modules.update(self._inner)


def _told(path: str) -> Mapping[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(re.findall(r"^(\w+) *= *['\"]([^'\"]*)", file.read(), re.MULTILINE))
    except OSError:
        return {}
