"""Run by every Python process that a program on ``onnxplug.shim`` starts: the shim puts this folder into PYTHONPATH.

``onnxruntime`` means onnxplug there too. The shim is imported when something asks for it: most processes never do.
Interpreters of other environments inherit PYTHONPATH as well, older ones among them: nothing here is newer than Python 2.7.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import importlib
import os
import sys
import threading


class _Shim:
    """Gives way to the shim's own finder as soon as ``onnxruntime`` is looked for."""

    def __init__(self):
        self._lock = threading.RLock()
        self._without = False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "onnxruntime" or not self._installed():
            return None
        from importlib.util import find_spec

        return find_spec(fullname)

    def find_distributions(self, context=None):
        if getattr(context, "name", None) != "onnxruntime" or not self._installed():
            return iter(())
        from importlib.metadata import distribution

        return iter((distribution("onnxruntime"),))

    def _installed(self):
        with self._lock:  # other threads that ask wait until the shim answers, lest they find onnxruntime itself
            if self._without:
                return False
            self._without = True  # what the shim's own imports ask is answered by others
            try:
                from onnxplug import shim

                shim.install()
            except (ImportError, RuntimeError):  # another environment's interpreter; onnxruntime is loaded already
                return False
            self._without = False
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            return True


def _another():
    """The sitecustomize that this one hides, if there is any."""
    folder = os.path.dirname(os.path.abspath(__file__))
    path = [each for each in sys.path if os.path.abspath(each) != folder]
    try:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec
    except ImportError:  # Python 2
        imp = importlib.import_module("imp")
        try:
            found = imp.find_module("sitecustomize", path)
        except ImportError:
            return
        imp.load_module("sitecustomize", *found)
        return
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if sys.version_info >= (3, 11):  # noqa: UP036
    sys.meta_path.insert(0, _Shim())
_another()
