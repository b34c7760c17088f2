"""Run by every Python process that a program on ``onnxplug.shim`` starts: the shim puts this folder into PYTHONPATH.

``onnxruntime`` means onnxplug there too. The shim is imported when something asks for it: most processes never do.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec


class _Shim:
    """Gives way to the shim's own finder as soon as ``onnxruntime`` is looked for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return find_spec(fullname) if fullname == "onnxruntime" and self._installed() else None

    def find_distributions(self, context: object = None) -> object:
        if getattr(context, "name", None) != "onnxruntime" or not self._installed():
            return iter(())
        from importlib.metadata import distribution

        return iter((distribution("onnxruntime"),))

    def _installed(self) -> bool:
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        try:
            from onnxplug import shim
        except ModuleNotFoundError:  # an interpreter of another environment, which inherited PYTHONPATH
            return False
        shim.install()
        return True


def _another() -> None:
    """The sitecustomize that this one hides, if there is any."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [each for each in sys.path if os.path.abspath(each) != folder])
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Shim())
_another()
