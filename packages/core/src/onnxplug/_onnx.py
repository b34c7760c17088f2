"""The onnx package without what a session does not need of it.

``import onnx`` runs the package's ``__init__``, which imports every helper of it and takes longer than most models' sessions do
(onnx 1.23: some 60 modules; text formats, e-mail parsers through ``importlib.metadata``, subprocesses). A session needs the
protobuf classes, the operators' schemas and their inference functions, three modules. So the first session of a program that
has not imported onnx defers the package: it is in ``sys.modules`` with those modules and classes, and its ``__init__`` runs when
anything else of it is asked for, by whomever. This is what ``importlib.util.LazyLoader`` does, but for the modules named here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

_NAME = "onnx"
_PARTS = ("onnx_ml_pb2", "onnx_cpp2py_export", "defs", "shape_inference")
_lock = threading.RLock()
"""Held while parts are imported or the package's ``__init__`` runs, which waits for the import locks of the package's modules."""
_inside: set[int] = set()
"""Threads that import parts, or run the package's ``__init__``: they see the package as it is."""
_PATIENCE = 2.0
"""Seconds that a thread which may hold such an import lock waits for ``_lock``: each may be waiting for the other. Then it goes on with
the package as it is, as CPython lets one go on of two threads that wait for each other's imports."""


class _Deferred(types.ModuleType):
    """The package before its ``__init__`` has run; then it becomes a plain module."""

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() not in _inside and _complete(self, _PATIENCE if _is_importing() else -1):
            return getattr(self, name)
        raise AttributeError(f"partially initialized module '{self.__name__}' has no attribute '{name}'")


class _Submodules:
    """Finder of the package's other submodules: its ``__init__`` runs before they are imported, and may have imported them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_NAME}.") or threading.get_ident() in _inside:
            return None
        _complete(sys.modules[_NAME], _PATIENCE)  # this thread holds the submodule's import lock
        found = sys.modules.get(fullname)
        if found is None:
            return None
        loader: Any = _Imported(found)
        # importlib goes by the spec of a module that has come meanwhile, and would load its own once more
        found.__spec__ = ModuleSpec(fullname, loader)
        return found.__spec__


class _Imported:
    """Loader of a module that is there already."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


_submodules = _Submodules()


def defer() -> None:
    """Make ``from onnx import ModelProto, defs, shape_inference`` cheap, if onnx has not been imported."""
    if _NAME in sys.modules:
        return
    with _lock:
        spec = None if _NAME in sys.modules else importlib.util.find_spec(_NAME)
        if spec is None or spec.submodule_search_locations is None:
            return  # whoever imports it is told
        package: Any = importlib.util.module_from_spec(spec)
        package.__class__ = _Deferred
        sys.modules[_NAME] = package
        _inside.add(threading.get_ident())
        try:
            for part in _PARTS:
                found = importlib.import_module(f"{_NAME}.{part}")
                if part == "onnx_ml_pb2":
                    vars(package).update((n, v) for n, v in vars(found).items() if n[0].isupper() and n != "DESCRIPTOR")
            sys.meta_path.insert(0, _submodules)
        except Exception:  # another layout of the package: it is imported as ever
            del sys.modules[_NAME]
        finally:
            _inside.discard(threading.get_ident())


def _complete(package: types.ModuleType, patience: float) -> bool:
    """Run the package's ``__init__``, once; False where another thread still does after so many seconds (-1: however long)."""
    if not _lock.acquire(timeout=patience):
        return False
    try:
        if type(package) is _Deferred:
            _run(package)
    finally:
        _lock.release()
    return True


def _run(package: types.ModuleType) -> None:
    _inside.add(threading.get_ident())
    try:
        assert package.__spec__ is not None and package.__spec__.loader is not None
        package.__spec__.loader.exec_module(package)
    except BaseException:
        sys.modules.pop(_NAME, None)
        raise
    finally:
        _inside.discard(threading.get_ident())
        sys.meta_path.remove(_submodules)
        package.__class__ = types.ModuleType


def _is_importing() -> bool:
    """Whether this thread runs the body of one of the package's modules, whose import lock it then holds."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and str(frame.f_globals.get("__name__")).startswith(f"{_NAME}."):
            return True
        frame = frame.f_back
    return False
