"""A session leaves the onnx package half imported; whoever uses it afterwards finds it whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx.parser
import pytest

SESSION = """
import sys, onnxplug
onnxplug.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']).run(None, {'x': [1.0, -1.0]})
deferred = type(sys.modules['onnx']).__name__ == '_Deferred'
"""
USES = {
    "an attribute": "import onnx; assert onnx.helper.make_node('Relu', ['x'], ['y']).op_type == 'Relu'",
    "a name of the package's own": "from onnx import load; assert callable(load)",
    "a submodule": "import onnx.helper as h, onnx; assert h is onnx.helper is sys.modules['onnx.helper']; assert h.__spec__.origin",
    "a submodule that the package does not import": "import onnx.reference; assert onnx.reference.ReferenceEvaluator",
    "from a submodule": "from onnx.checker import check_model; import onnx; check_model(onnx.load(sys.argv[1]))",
    "the version": "import onnx; assert onnx.__version__[0].isdigit()",
    "nothing that there is": "import onnx; assert not hasattr(onnx, 'no_such_name')",
    "the classes": "import onnx; assert onnx.load(sys.argv[1]).__class__ is onnx.ModelProto is onnx.onnx_ml_pb2.ModelProto",
    "threads": (
        "import concurrent.futures as f, importlib\n"
        "names = ['onnx.helper', 'onnx.compose', 'onnx.numpy_helper', 'onnx.reference', 'onnx.parser'] * 4\n"
        "with f.ThreadPoolExecutor(8) as pool: found = list(pool.map(importlib.import_module, names))\n"
        "assert all(m is sys.modules[n] and m.__doc__ != 0 for m, n in zip(found, names))"
    ),
}
AFTER = """
import onnx, types
assert type(onnx) is types.ModuleType
assert not any('onnxplug' in type(finder).__module__ for finder in sys.meta_path)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = onnx.parser.parse_graph("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    imports = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("use", USES)
def test_onnx_is_whole_for_who_uses_it_after_a_session(use: str, model: Path) -> None:
    _run(SESSION + "assert deferred\n" + USES[use] + AFTER, model)


def test_onnx_that_was_imported_before_is_left_as_it_is(model: Path) -> None:
    _run("import onnx, types\n" + SESSION + "assert not deferred and type(onnx) is types.ModuleType", model)


IMPATIENT = """
import sys, threading
from onnxplug import _onnx
_onnx._PATIENCE = 0.1
sys.path.insert(0, sys.argv[1])
sys.inside, sys.other = threading.Event(), threading.Event()

def both(first, second):
    threads = [threading.Thread(target=each, daemon=True) for each in (first, second)]
    threads[0].start()
    assert sys.inside.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "the threads wait for each other"
    import onnx
    assert onnx.late == 1 and onnx.helper.made == 1 and onnx.shape_inference.made == 1

def submodule(name):
    sys.other.set()
    __import__(name)
"""
WAITS = "import sys\nsys.inside.set()\nassert sys.other.wait(60)\n"
ASKS = "import onnx, sys\nsys.other.set()\nhasattr(onnx, 'late')\nmade = 1\n"
"""A submodule that asks the package for what only its ``__init__`` makes."""


def test_threads_that_import_a_submodule_and_complete_the_package_do_not_wait_for_each_other_for_ever(
    tmp_path: Path,
) -> None:
    init = WAITS + "from onnx import helper, shape_inference\nlate = 1\n"
    _package(tmp_path, {"__init__": init, "helper": ASKS, "shape_inference": "made = 1\n"})
    _run(IMPATIENT + "_onnx.defer()\nimport onnx\nboth(lambda: onnx.late, lambda: submodule('onnx.helper'))", tmp_path)


def test_threads_that_import_a_part_and_defer_the_package_do_not_wait_for_each_other_for_ever(tmp_path: Path) -> None:
    init = "from onnx import helper\nlate = 1\n"
    _package(tmp_path, {"__init__": init, "defs": WAITS, "shape_inference": ASKS, "helper": "made = 1\n"})
    _run(IMPATIENT + "both(_onnx.defer, lambda: __import__('onnx.shape_inference'))", tmp_path)


def _package(folder: Path, modules: dict[str, str]) -> None:
    """A package that looks like onnx to who defers it."""
    (folder / "onnx").mkdir()
    for name in ("onnx_ml_pb2", "onnx_cpp2py_export", "defs", "shape_inference", *modules):
        (folder / "onnx" / f"{name}.py").write_text(modules.get(name, ""))


def _run(script: str, model: Path) -> None:
    env = {**os.environ, "ONNXPLUG_CACHE": "0"}  # a graph from the cache would be made without onnx
    done = subprocess.run([sys.executable, "-c", script, str(model)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
