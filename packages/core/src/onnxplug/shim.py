"""``python -m onnxplug.shim PROGRAM [ARGUMENT ...]``: run a program written for onnxruntime with onnxplug in its place.

PROGRAM is a script's path, ``-m MODULE``, ``-c CODE``, or the name of an installed console script. The Python processes
that it starts are on the shim too, but for those that do not see its PYTHONPATH or sitecustomize: with ``-S``, ``-I`` or
``-E``, with a PYTHONPATH of their own, or in Python before 3.11. ``install()`` does the same for the imports of the running process alone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import runpy
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import onnxplug

NAME = "onnxruntime"
VERSION = "1.31.1"
"""The version whose interface onnxplug has; programs ask for it to know what they can use."""
_AT_START = os.path.join(os.path.dirname(os.path.abspath(onnxplug.__file__)), "_at_start")
"""What is in this folder runs at the start of Python processes that have it in PYTHONPATH."""
_USAGE = "usage: python -m onnxplug.shim (SCRIPT | -m MODULE | -c CODE | CONSOLE_SCRIPT) [ARGUMENT ...]"


class _Front(types.ModuleType):
    """The module ``onnxruntime``: onnxplug under another name and version."""

    def __init__(self) -> None:
        super().__init__(NAME, onnxplug.__doc__)
        self.__version__ = self.version = VERSION
        self.package_name = NAME
        self.__file__, self.__path__ = onnxplug.__file__, list(onnxplug.__path__)
        self.__all__ = onnxplug.__all__

    def get_version_string(self) -> str:
        """The version under which onnxplug shows itself here."""
        return VERSION

    def __getattr__(self, name: str) -> Any:
        return getattr(onnxplug, name)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(onnxplug)})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``onnxruntime`` and what is below it in onnxplug, and a distribution of that name for those who ask."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        ours = _ours(fullname)
        if ours is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=ours.origin)
        spec.submodule_search_locations = ours.submodule_search_locations
        return spec

    def get_code(self, fullname: str) -> types.CodeType | None:
        """What ``python -m`` runs."""
        ours = _ours(fullname)
        assert ours is not None and isinstance(ours.loader, importlib.abc.InspectLoader)
        return ours.loader.get_code(ours.name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        part = spec.name.removeprefix(NAME).removeprefix(".")
        if not part:
            return _Front()
        module = importlib.import_module(f"onnxplug.{part}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state  # the import system wrote the alias's over it

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        if context is not None and context.name == NAME:
            yield _Distribution()


def _ours(fullname: str) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.find_spec("onnxplug" + fullname.removeprefix(NAME))


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a distribution ``onnxruntime``."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return os.path.join(os.path.dirname(os.path.dirname(onnxplug.__file__)), path)


def install() -> None:
    """Let ``import onnxruntime`` give onnxplug from now on, for the whole process. RuntimeError when onnxruntime itself
    was imported already."""
    loaded = sys.modules.get(NAME)
    if loaded is not None and not isinstance(loaded, _Front) and loaded is not onnxplug:
        raise RuntimeError(f"{NAME} is imported already, from {loaded.__file__}")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def main(arguments: Sequence[str]) -> int:
    """Run a program; its exit code is passed on by SystemExit."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    install()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_AT_START, os.environ.get("PYTHONPATH"))))
    program, *rest = arguments
    if program in ("-m", "-c"):
        if not rest:
            print(_USAGE, file=sys.stderr)
            return 2
        return _module(rest[0], rest[1:]) if program == "-m" else _code(rest[0], rest[1:])
    if os.path.exists(program):
        sys.argv = [program, *rest]
        path = os.path.abspath(program)  # processes that it starts find it from any folder
        sys.path[0] = os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
        return 0
    return _script(program, rest)


def _module(name: str, arguments: list[str]) -> int:
    sys.argv = [name, *arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


def _code(code: str, arguments: list[str]) -> int:
    sys.argv = ["-c", *arguments]
    sys.path[0] = ""
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    return 0


def _script(name: str, arguments: list[str]) -> int:
    found = list(importlib.metadata.entry_points(group="console_scripts", name=name))
    if not found:
        print(f"{name}: no such file or console script\n{_USAGE}", file=sys.stderr)
        return 2
    sys.argv = [name, *arguments]
    result = found[0].load()()
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    # What is imported as onnxplug.shim is another module than __main__: the finder has to be its.
    sys.exit(importlib.import_module("onnxplug.shim").main(sys.argv[1:]))
