"""What makes onnxruntime's programs run: the shim, the backend interface, examples, DLPack, what is native-only."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import unittest
from contextlib import nullcontext
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from core_graphs import model, same
from core_providers import CPU

import onnxplug
from onnxplug import shim
from onnxplug._wheel import adopt
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented

X = np.array([[1, -2]], np.float32)
PLAIN = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["": 21]> g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }'
).SerializeToString()
PROGRAM = """
import sys
import importlib.metadata, importlib.util
import onnxruntime as ort
from onnxruntime import InferenceSession, datasets
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
import onnxruntime.capi.onnxruntime_inference_collection as collection
import onnxplug

assert ort.InferenceSession is onnxplug.InferenceSession is collection.InferenceSession
assert C.Fail is Fail is onnxplug.contract.errors.Fail
assert onnxplug.capi.__spec__.name == onnxplug.capi.__name__ == "onnxplug.capi"
assert importlib.util.find_spec("onnxruntime") is not None and importlib.metadata.version("onnxruntime") == ort.__version__
assert importlib.util.find_spec("onnxruntime.training") is None  # programs look for it so
import numpy as np
(y,) = ort.InferenceSession(datasets.get_example("mul_1.onnx")).run(["Y"], {"X": np.ones((3, 2), np.float32)})
print(__name__, sys.argv[1:], ort.__version__, y.ravel().tolist())
sys.exit(5)
"""


def shimmed(*arguments: str, **options: Any) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "onnxplug.shim", *arguments], capture_output=True, text=True, **options
    )
    return done.returncode, done.stdout, done.stderr


TOLD = f"__main__ ['a', '-b'] {shim.VERSION} [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]\n"


def test_a_script_a_module_and_code_run_on_the_shim(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert shimmed(str(tmp_path / "program.py"), "a", "-b") == (5, TOLD, "")
    assert shimmed("-m", "program", "a", "-b", cwd=tmp_path) == (5, TOLD, "")
    assert shimmed("-c", PROGRAM, "a", "-b") == (5, TOLD, "")


QUANTIZING = """
from onnxruntime.quantization.quant_utils import QuantType as same
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.transformers.fusion_utils import NumpyHelper  # in a folder that the part's __init__ adds to sys.path
import numpy as np, onnx, onnxruntime, onnxplug

assert same is QuantType and onnxruntime.InferenceSession is onnxplug.InferenceSession
rng = np.random.default_rng(0)
x = rng.standard_normal((8, 16)).astype(np.float32)
proto = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 17]> g (float[N, 16] x) => (float[N, 8] y) { y = MatMul (x, w) }')
proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((16, 8)).astype(np.float32), "w"))
onnx.save(proto, "m.onnx")


class Reader(CalibrationDataReader):
    given = iter([{"x": x}])

    def get_next(self):
        return next(self.given, None)


quantize_dynamic("m.onnx", "dynamic.onnx", weight_type=QuantType.QInt8)
quantize_static("m.onnx", "static.onnx", Reader(), quant_format=QuantFormat.QDQ)
(wanted,) = onnxruntime.InferenceSession("m.onnx").run(None, {"x": x})
for name, op_type in ("dynamic", "MatMulInteger"), ("static", "DequantizeLinear"):
    assert op_type in {node.op_type for node in onnx.load(name + ".onnx").graph.node}
    (y,) = onnxruntime.InferenceSession(name + ".onnx").run(None, {"x": x})
    assert 0 < np.abs(y - wanted).max() < 0.05 * np.abs(wanted).max()
"""
FEW_BITS = """
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
import numpy as np, onnx, onnxruntime

rng = np.random.default_rng(0)
x = rng.standard_normal((8, 96)).astype(np.float32)
text = '<ir_version: 9, opset_import: ["": 21]> g (float[N, 96] x) => (float[N, 24] y) { y = MatMul (x, w) }'


def fresh():
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((96, 24)).astype(np.float32), "w"))
    return proto


for make in (
    lambda m: MatMulNBitsQuantizer(m, bits=4, block_size=32, is_symmetric=False),
    lambda m: MatMulNBitsQuantizer(m, bits=8, block_size=16, is_symmetric=True),
    lambda m: MatMulNBitsQuantizer(m, bits=4, block_size=32, is_symmetric=True, quant_format=QuantFormat.QDQ),
    lambda m: MatMulBnb4Quantizer(m, 1, 64),
):
    proto = fresh()
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    made = make(proto)
    made.process()
    made = made.model.model if hasattr(made.model, "model") else made.model
    assert {node.op_type for node in made.graph.node} - {"MatMul"}
    if "MatMulBnb4" not in {node.op_type for node in made.graph.node}:
        (y,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
        assert 0 < np.abs(y - wanted).max() < 0.2 * np.abs(wanted).max()
"""


def test_python_code_of_an_installed_onnxruntime_runs_on_onnxplug(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    code, out, err = shimmed(
        "-c", QUANTIZING, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "error::ImportWarning"}
    )
    assert (code, out) == (0, ""), err


def test_quantizers_that_need_the_extension_module(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx_ir")
    code, out, err = shimmed("-c", FEW_BITS, cwd=tmp_path)
    assert (code, out) == (0, ""), err


STARRED = """
from onnxruntime.quantization import *
from onnxruntime.transformers import *
import onnxruntime.quantization

print(QuantType.QInt8.name, {"CalibrationDataReader", "quantize_static"} <= set(dir(onnxruntime.quantization)), "adopt" in globals())
"""


def test_names_of_parts_of_an_installed_onnxruntime_are_imported_by_a_star() -> None:
    pytest.importorskip("onnxruntime")
    code, out, err = shimmed("-c", STARRED)
    assert (code, out) == (0, "QInt8 True False\n"), err


FIXED = """
import os, subprocess, sys
import importlib.util
import onnxplug

spec = importlib.util.find_spec("onnxruntime")
assert [os.path.dirname(spec.origin)] == list(spec.submodule_search_locations) == list(onnxplug.__path__)
fix = [sys.executable, "-m", "onnxruntime.tools.make_dynamic_shape_fixed", "--dim_param", "N", "--dim_value", "3"]
subprocess.run([*fix, sys.argv[1], sys.argv[2]], check=True)
import onnxruntime

assert onnxruntime.InferenceSession(sys.argv[2]).get_inputs()[0].shape == [3, 2]
assert list(onnxruntime.__path__) == list(onnxplug.__path__)
"""


def test_tools_of_an_installed_onnxruntime_run_as_programs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    plain, fixed = tmp_path / "plain.onnx", tmp_path / "fixed.onnx"
    plain.write_bytes(PLAIN)
    tool = "onnxruntime.tools.make_dynamic_shape_fixed"
    assert shimmed("-m", tool, "--dim_param", "N", "--dim_value", "2", str(plain), str(fixed)) == (0, "", "")
    assert [arg.shape for arg in onnxplug.InferenceSession(fixed).get_inputs()] == [[2, 2]]
    assert shimmed("-c", FIXED, str(plain), str(fixed)) == (0, "", "")
    code, _, err = shimmed("-m", "onnxruntime.capi")
    assert code == 1 and "is a package and cannot be directly executed" in err


def test_python_code_of_onnxruntime_needs_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    with pytest.raises(
        ModuleNotFoundError, match="onnxruntime's wheel, which is not installed: pip install onnxruntime"
    ):
        adopt({"__name__": "onnxplug.quantization"})


def test_python_code_of_onnxruntime_does_not_run_beside_it() -> None:
    ort = pytest.importorskip("onnxruntime")
    part = importlib.import_module("onnxplug.quantization")
    assert not hasattr(part, "__wrapped__")
    with pytest.raises(ImportError, match=f"onnxplug.quantization would run on {ort.__name__}: .*imported already"):
        _ = part.QuantType


STARTING = '''
import multiprocessing, os, subprocess, sys

TELL = """
import importlib.metadata
told = importlib.metadata.version("onnxruntime")
import onnxruntime as ort
print(told, ort.get_version_string(), ort.InferenceSession.__module__)
"""

AT_ONCE = """
import importlib, importlib.metadata, threading
told = []
ask = threading.Thread(target=lambda: told.append(importlib.metadata.version("onnxruntime")))
take = threading.Thread(target=lambda: told.append(importlib.import_module("onnxruntime").__version__))
ask.start(), take.start(), ask.join(), take.join()
print(*told)
"""


def module(_):
    import onnxruntime

    return onnxruntime.InferenceSession.__module__


if __name__ == "__main__":
    os.chdir("/")
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(*pool.map(module, [0]), flush=True)
    subprocess.run([sys.executable, "-c", TELL], check=True)
    subprocess.run([sys.executable, "-c", AT_ONCE], check=True)
    subprocess.run([sys.executable, "-c", "import hidden"], check=True)
    subprocess.run([sys.executable, "-S", "-c", "import sys; print('site' in sys.modules)"], check=True)
'''


def test_processes_that_a_program_starts_are_on_the_shim(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STARTING)
    (tmp_path / "sitecustomize.py").write_text("import sys, types; sys.modules['hidden'] = types.ModuleType('hidden')")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    code, out, err = shimmed("program.py", cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert code == 0, err
    ours = onnxplug.InferenceSession.__module__
    methods = multiprocessing.get_all_start_methods()
    assert out.splitlines() == [
        *[ours] * len(methods),
        f"{shim.VERSION} {shim.VERSION} {ours}",
        f"{shim.VERSION} {shim.VERSION}",
        "False",
    ]


def test_what_processes_start_with_is_no_newer_than_the_interpreters_that_inherit_it() -> None:
    tree = ast.parse(Path(shim._AT_START, "sitecustomize.py").read_text(encoding="ascii"), feature_version=(3, 4))
    taken = (each for each in ast.walk(tree) if isinstance(each, ast.arg | ast.FunctionDef | ast.AnnAssign))
    told = [ast.unparse(each) for each in taken if getattr(each, "annotation", getattr(each, "returns", None))]
    assert not told and not any(isinstance(each, ast.JoinedStr) for each in ast.walk(tree))


def test_usage_of_the_shim() -> None:
    assert shimmed("no-such-program")[0] == 2 and "no such file or console script" in shimmed("no-such-program")[2]
    assert shimmed()[0] == 2 and shimmed("-m")[0] == 2
    assert shimmed("--help")[:2] == (0, shim._USAGE + "\n")
    code, out, _ = shimmed("pip", "--version")
    assert code == 0 and out.startswith("pip ")


def test_the_shim_does_not_replace_an_onnxruntime_that_is_there() -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(RuntimeError, match="imported already"):
        shim.install()


def test_the_shims_version_is_that_of_the_surface() -> None:
    try:
        installed = importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("onnxruntime is not installed")
    assert shim.VERSION.split(".")[:2] == installed.split(".")[:2] or not installed.startswith("1.31")


# ---- backend and datasets


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def backend(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(f"{request.param}.backend")


def test_models_are_prepared_from_whatever_holds_them(backend: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(PLAIN)
    engine = sys.modules[backend.__name__.partition(".")[0]]
    session = engine.InferenceSession(PLAIN, providers=[CPU])
    for given in (PLAIN, str(tmp_path / "m.onnx"), onnx.load_from_string(PLAIN), session, backend.prepare(PLAIN)):
        rep = backend.prepare(given, "CPU", intra_op_num_threads=1, unknown=3)
        same(rep.run([X]), [-X])
        same(rep.run(X, logid="mine"), [-X])
    number = model("g (float x) => (float y) { y = Neg(x) }")
    for given in (np.float32(3), [np.float32(3)]):  # onnxruntime takes NumPy's scalars from 1.32 on
        same(onnxplug.backend.prepare(number).run(given), [np.array(-3, np.float32)])
    same(backend.run(PLAIN, [X], "CPU"), [-X])
    assert backend.is_compatible(None) and backend.supports_device("CPU") and not backend.supports_device("QPU")


def test_what_a_backend_refuses(backend: Any) -> None:
    with pytest.raises(
        RuntimeError, match="SessionOptions attribute 'enable_profiling' is not permitted via the backend"
    ):
        backend.prepare(PLAIN, enable_profiling=True)
    with pytest.raises(RuntimeError, match="RunOptions attribute 'terminate' is not permitted via the backend API"):
        backend.prepare(PLAIN).run([X], terminate=True)
    with pytest.raises(RuntimeError, match="Incompatible device expected 'QPU', got"):
        backend.prepare(PLAIN, "QPU")
    two = model("g (float[1] x, float[1] z) => (float[1] y) { y = Add(x, z) }")
    with pytest.raises(RuntimeError, match="Model expect 2 inputs"):
        backend.prepare(two).run(X)
    future = onnx.load_from_string(PLAIN)
    future.opset_import.add(domain="ai.onnx.ml", version=99)
    with pytest.raises(unittest.SkipTest, match="only released onnx opsets are supported"):
        backend.prepare(future)
    with pytest.raises(NotImplementedError, match="It is much more efficient to run a whole model"):
        backend.backend.OnnxRuntimeBackend.run_node(None, None)


def test_providers_of_the_backend_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [p for p in onnxplug.get_available_providers() if p != CPU]
    monkeypatch.setenv("ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS", ",".join(others))
    assert onnxplug.backend.prepare(PLAIN)._session.get_providers() == [CPU]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("logreg_iris.onnx", {"float_input": (3, 2)}, ["label", "probabilities"]),
        ("mul_1.onnx", {"X": (3, 2)}, ["Y"]),
        ("sigmoid.onnx", {"x": (3, 4, 5)}, ["y"]),
    ],
)
def test_examples_are_those_of_onnxruntime(name: str, inputs: dict[str, tuple[int, ...]], outputs: list[str]) -> None:
    feed = {n: np.random.default_rng(0).random(s, np.float32) for n, s in inputs.items()}
    mine = onnxplug.InferenceSession(onnxplug.datasets.get_example(name))
    assert {a.name: tuple(a.shape) for a in mine.get_inputs()} == inputs
    assert [a.name for a in mine.get_outputs()] == outputs
    results = mine.run(None, feed)
    with pytest.raises(FileNotFoundError, match=r"Unable to find example 'x.onnx'"):
        onnxplug.datasets.get_example("x.onnx")
    theirs = pytest.importorskip("onnxruntime.datasets")
    session = pytest.importorskip("onnxruntime").InferenceSession(theirs.get_example(name))
    assert [str(a) for a in mine.get_outputs()] == [str(a) for a in session.get_outputs()]
    want = session.run(None, feed)
    np.testing.assert_allclose(results[0], want[0], rtol=1e-6)
    if len(want) > 1:
        assert [list(row) for row in results[1]] == [list(row) for row in want[1]]
    published = onnxplug.InferenceSession(theirs.get_example(name)).run(None, feed)
    np.testing.assert_allclose(published[0], want[0], rtol=1e-6)
    for row, wanted in zip(published[1:], want[1:], strict=True):
        assert [r.keys() for r in row] == [w.keys() for w in wanted]
        np.testing.assert_allclose([[*r.values()] for r in row], [[*w.values()] for w in wanted], rtol=1e-5)


# ---- DLPack


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_does_not_exchange(name: str) -> None:
    array = np.arange(3).astype(getattr(ml_dtypes, name))
    value = onnxplug.OrtValue._wrap(array)
    twin = onnxplug.OrtValue.from_dlpack(value.__dlpack__())
    assert twin.data_type() == value.data_type() and twin.data_ptr() == array.ctypes.data
    same([twin.numpy()], [array])
    with pytest.raises(RuntimeError, match="cannot be exchanged by DLPack"):
        onnxplug.OrtValue._wrap(np.zeros(2, ml_dtypes.int4)).__dlpack__()


def test_what_is_imported_can_be_written_to() -> None:
    array = np.zeros(3, np.float32)
    capsule = array.__dlpack__()
    assert not onnxplug.capi.onnxruntime_pybind11_state.is_dlpack_uint8_tensor(capsule)
    value = onnxplug.OrtValue.from_dlpack(capsule)
    del capsule
    value.update_inplace(np.arange(3, dtype=np.float32))
    same([array], [np.arange(3, dtype=np.float32)])
    assert onnxplug.capi.onnxruntime_pybind11_state.is_dlpack_uint8_tensor(np.zeros(1, np.uint8).__dlpack__())


def test_read_only_memory_is_exported_as_a_copy() -> None:
    array = np.arange(3, dtype=np.float32)
    array.flags.writeable = False
    value = onnxplug.OrtValue._wrap(array)
    shown = np.from_dlpack(value)
    same([shown], [array])
    assert shown.ctypes.data != array.ctypes.data


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.float16):
        tensor = torch.zeros(3, dtype=dtype)
        value = onnxplug.OrtValue.from_dlpack(tensor)
        assert value.data_ptr() == tensor.data_ptr() and list(value.shape()) == [3]
        back = torch.from_dlpack(value)
        back[1] = 1
        assert back.dtype == dtype and tensor[1] == 1
    same(onnxplug.InferenceSession(PLAIN).run(None, {"x": onnxplug.OrtValue.from_dlpack(torch.from_numpy(X))}), [-X])


# ---- what is written for onnxruntime's C interface


def test_native_only_things_say_so(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"\x7fELF")
    with pytest.raises(OrtNotImplemented, match="custom operators come from provider packages here"):
        onnxplug.SessionOptions().register_custom_ops_library(str(library))
    with pytest.raises(OrtNotImplemented, match="providers are Python packages here"):
        onnxplug.register_execution_provider_library("x", str(library))


MARKED = b"\x1c\0\0\0ORTM"


@pytest.mark.parametrize(
    ("name", "contents", "form", "error"),
    [
        ("m.ort", MARKED, "", "NotImplemented"),
        ("m.ORT", MARKED, "", "NotImplemented"),
        ("m.ort", PLAIN, "", "NotImplemented"),
        ("m.onnx", MARKED, "ORT", "NotImplemented"),
        ("", MARKED, "", "NotImplemented"),
        ("", MARKED, "ORT", "NotImplemented"),
        ("m.onnx", PLAIN, "ORT", "Fail"),
        ("", PLAIN, "ORT", "Fail"),
        ("m.onnx", MARKED, "", "InvalidProtobuf"),
        ("", MARKED, "ONNX", "InvalidProtobuf"),
        ("missing.ort", b"", "", "NoSuchFile"),
        ("m.ort", PLAIN, "ONNX", ""),
    ],
)
def test_onnxruntimes_own_format_is_not_read(tmp_path: Path, name: str, contents: bytes, form: str, error: str) -> None:
    path, options = tmp_path / name, onnxplug.SessionOptions()
    if name and contents:
        path.write_bytes(contents)
    if form:
        options.add_session_config_entry("session.load_model_format", form)
    source = str(path) if name else contents
    if not error:
        assert onnxplug.InferenceSession(source, options).run(None, {"x": X})
        return
    with pytest.raises(STATUS_ERRORS) as caught:
        onnxplug.InferenceSession(source, options)
    assert type(caught.value).__name__ == error


@pytest.mark.parametrize(
    ("name", "form", "is_written"),
    [
        ("m.ort", "", False),
        ("m.ORT", "", False),
        ("m.onnx", "ORT", False),
        ("m.ort", "ONNX", True),
        ("m.onnx", "", True),
    ],
)
def test_onnxruntimes_own_format_is_not_written(tmp_path: Path, name: str, form: str, is_written: bool) -> None:
    options, path = onnxplug.SessionOptions(), tmp_path / name
    options.optimized_model_filepath = str(path)
    if form:
        options.add_session_config_entry("session.save_model_format", form)
    with nullcontext() if is_written else pytest.raises(OrtNotImplemented, match=r"\.ort files are onnxruntime's own"):
        onnxplug.InferenceSession(PLAIN, options)
    assert path.exists() == is_written
