"""What onnxruntime's wheel has in Python alone, and onnxplug no copy of: where the wheel is installed, it runs on onnxplug."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Any

PARTS = ("quantization", "tools", "transformers")


class _Folder(list[str]):
    """The search path of a part. Whoever looks for a module below it is shown the way after the wheel's own ``__init__`` has run,
    which may add to ``sys.path`` what that module needs."""

    def __init__(self, folder: str, namespace: dict[str, Any]) -> None:
        super().__init__([folder])
        self._namespace, self._lock, self._begun = namespace, threading.RLock(), False

    def __iter__(self) -> Iterator[str]:
        self.run()
        return super().__iter__()

    def run(self) -> None:
        """The wheel's ``__init__``, once, with onnxplug where it says onnxruntime. ImportError where that means another."""
        with self._lock:
            if self._begun:
                return
            _stand_in(self._namespace["__name__"])
            self._begun = True
            file = self._namespace["__file__"] = os.path.join(self[0], "__init__.py")
            try:
                with open(file, "rb") as source:
                    exec(compile(source.read(), file, "exec"), self._namespace)
            except BaseException:
                self._begun = False
                raise


def adopt(namespace: dict[str, Any]) -> None:
    """Make the module with these globals the part of the wheel that has its name, which is executed when first asked for
    something. ModuleNotFoundError without the wheel."""
    name = namespace["__name__"]
    part = name.rpartition(".")[2]
    wheel = PathFinder.find_spec("onnxruntime")
    places = [] if wheel is None else list(wheel.submodule_search_locations or ())
    folder = next((f for place in places if os.path.isdir(f := os.path.join(place, part))), None)
    if folder is None:
        raise ModuleNotFoundError(
            f"{name} is Python code of onnxruntime's wheel, which is not installed: pip install onnxruntime, and "
            "it runs on onnxplug",
            name=name,
        )
    path = namespace["__path__"] = _Folder(folder, namespace)
    namespace["__package__"] = name
    if namespace.get("__spec__") is not None:
        namespace["__spec__"].submodule_search_locations = path  # a package, of which __package__ is the parent

    def __getattr__(attribute: str) -> Any:
        if (
            not attribute.startswith("__") or attribute == "__all__"
        ):  # which "import *" asks for before it takes the names
            path.run()
            if attribute in namespace:
                return namespace[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    def __dir__() -> list[str]:
        path.run()
        return sorted(namespace)

    del namespace["adopt"]
    namespace.update(__getattr__=__getattr__, __dir__=__dir__)


def _stand_in(name: str) -> None:
    from onnxplug import shim

    try:
        shim.install()
    except RuntimeError as error:
        raise ImportError(f"{name} would run on onnxruntime: {error}; import it, or onnxplug.shim, first") from None
