"""Run by every Python process that a program on ``onnxplug.shim`` starts: the shim puts this folder into PYTHONPATH.

``onnxruntime`` means onnxplug there too. The shim is imported when something asks for it: most processes never do.
Interpreters of other environments inherit PYTHONPATH as well, older ones among them: nothing here is newer than Python 2.7.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import importlib
import os
import sys


class _Shim:
    """Gives way to the shim's own finder when ``onnxruntime`` is imported or its distribution asked for. Finding imports nothing: the
    interpreter's import lock is held meanwhile."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "onnxruntime":
            return None
        ours = importlib.util.find_spec("onnxplug")
        if ours is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=ours.origin)  # type: ignore[arg-type]
        spec.submodule_search_locations = ours.submodule_search_locations
        return spec

    def create_module(self, spec):
        self._give_way()
        found = importlib.util.find_spec(spec.name)
        assert found is not None and found.loader is not None
        spec.loader = found.loader
        return spec.loader.create_module(spec)

    def exec_module(self, module):
        raise ImportError("the shim's own loader makes " + module.__name__)

    def find_distributions(self, context=None):
        if getattr(context, "name", None) != "onnxruntime":
            return iter(())
        try:
            self._give_way()
        except (ImportError, RuntimeError):  # another environment's interpreter; onnxruntime is loaded already
            return iter(())
        from importlib.metadata import distribution

        return iter((distribution("onnxruntime"),))

    def _give_way(self):
        from onnxplug import shim

        shim.install()
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]


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
    import importlib.machinery
    import importlib.util

    sys.meta_path.insert(0, _Shim())
_another()
