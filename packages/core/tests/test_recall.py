"""Graphs that are kept for later processes: a session made of one is the session that the model makes, and no other one's."""

from __future__ import annotations

import json
import marshal
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from core_plugins import PLUGIN, write_distribution

from onnxplug.contract.types import (
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.graph.build import build_graph
from onnxplug.graph.schemas import Schemas
from onnxplug.graph.snapshot import freeze, thaw, type_data, type_of
from onnxplug.load import load_model
from onnxplug.load.origin import BytesOrigin
from onnxplug.session import recall

MODEL = """
<ir_version: 8, opset_import: ["" : 18], producer_name: "a test", metadata_props: ["key": "value"]>
agraph (float[n, 2] x, bool b) => (float[n, 2] y, int64 size)
<float[2] c = {1.0, 2.0}, float[1, 2] unread = {0.0, 0.0}> {
    negative = Neg(c)
    same = Identity(x)
    sum = Add(same, negative)
    y = If (b) <
        then_branch = g () => (float[n, 2] t) { t = Mul(sum, c) },
        else_branch = h () => (float[n, 2] e) <float[2] one = {1.0, 1.0}> { e = Sub(sum, one) }
    >
    size = Size(c)
}
"""
SESSION = """
import dataclasses, json, logging, os, sys, numpy
import onnxplug, onnxplug.session.recall as recall
recall._SETTLED = float(os.environ.get("SETTLED", "2e9"))
source, arguments = sys.argv[1], json.loads(sys.argv[2])
options = onnxplug.SessionOptions()
for name, value in arguments.get("options", {}).items():
    setattr(options, name, value)
options.graph_optimization_level = onnxplug.GraphOptimizationLevel(arguments.get("level", 99))
for name, value in arguments.get("sizes", {}).items():
    options.add_free_dimension_override_by_name(name, value)
for name, value in arguments.get("config", {}).items():
    options.add_session_config_entry(name, value)
model = open(source, "rb").read() if arguments.get("bytes", True) else source
session = onnxplug.InferenceSession(model, options, providers=arguments.get("providers", ["CPUExecutionProvider"]))
onnx_was_imported = "onnx" in sys.modules
feeds = {v.name: numpy.array([[1, 2]], numpy.float32) if "float" in v.type else numpy.array(True) for v in session.get_inputs()}
meta = session.get_modelmeta()
print(json.dumps({
    "onnx": onnx_was_imported, "results": [r.tolist() for r in session.run(None, feeds)],
    "explanation": dataclasses.asdict(session.explain()), "meta": [meta.producer_name, meta.graph_name, meta.custom_metadata_map],
    "edges": [[v.name, v.type, v.shape] for v in (*session.get_inputs(), *session.get_outputs())],
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path, MODEL)
    return tmp_path


def save(folder: Path, text: str) -> None:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")


def start(folder: Path, env: dict[str, str] | None = None, **arguments: Any) -> subprocess.Popen[str]:
    """A process that makes a session of the model and runs it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ONNXPLUG_CACHE")}
    environment |= {"ONNXPLUG_CACHE_DIR": str(folder / "cache"), **(env or {})}
    command = [sys.executable, "-c", SESSION, str(folder / "model.onnx"), json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it found; ``warnings`` are what it wrote to standard error, without the times."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return {**json.loads(out), "warnings": re.sub(r"^[\d-]+ [\d:.]+ ", "", err, flags=re.MULTILINE)}


def session(folder: Path, env: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    return told(start(folder, env, **arguments))


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "graphs").glob("*.graph"))


def test_a_later_session_is_the_first_one_without_onnx(folder: Path) -> None:
    first, second = session(folder), session(folder)
    assert first.pop("onnx") and not second.pop("onnx")
    assert first == second and len(kept(folder)) == 1
    assert first["results"] == [[[0.0, 0.0]], 2] and first["explanation"]["removed"]
    assert first["meta"] == ["a test", "agraph", {"key": "value"}]


def test_switched_off_nothing_is_kept(folder: Path) -> None:
    assert session(folder, {"ONNXPLUG_CACHE": "0"})["results"] == session(folder)["results"]
    assert session(folder, {"ONNXPLUG_CACHE": "0"})["onnx"]


def test_another_model_is_another_graph(folder: Path) -> None:
    settled = {"SETTLED": "0"}
    first = [session(folder, settled, bytes=whole) for whole in (True, False)]
    save(folder, MODEL.replace("{1.0, 2.0}", "{1.0, 3.0}"))  # as long as the other
    for whole in (True, False):
        assert session(folder, settled, bytes=whole)["results"] != first[whole]["results"]
    assert not session(folder, settled, bytes=False)["onnx"]


def test_a_file_written_just_now_is_not_known_by_its_times(folder: Path) -> None:
    settled = {"SETTLED": str(300 * 10**9)}  # however long the process takes
    assert session(folder, settled, bytes=False)["onnx"] and not kept(folder)


CHANGES: dict[str, dict[str, Any]] = {
    "level": {"level": 0},
    "disabled pass": {"config": {"optimization.disable_specified_optimizers": "ConstantFolding"}},
    "size": {"sizes": {"n": 1}},
    "threads": {"options": {"intra_op_num_threads": 1}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_options_are_another_graph(change: str, folder: Path) -> None:
    session(folder)
    with_change, again = session(folder, **CHANGES[change]), session(folder, **CHANGES[change])
    assert with_change.pop("onnx") and not again.pop("onnx") and with_change == again and len(kept(folder)) == 2


def test_options_of_logs_are_no_change(folder: Path) -> None:
    session(folder)
    assert not session(folder, options={"log_severity_level": 1, "logid": "another"})["onnx"]


def test_a_damaged_file_is_made_again(folder: Path) -> None:
    first = session(folder)
    (file,) = kept(folder)
    file.write_bytes(file.read_bytes()[:-3])
    second, third = session(folder), session(folder)
    assert "damaged" in second["warnings"] and second["onnx"] and not third["onnx"]
    assert first["results"] == second["results"] == third["results"]


def test_a_place_that_cannot_be_written_to_keeps_nothing(folder: Path) -> None:
    (folder / "cache").write_text("a file")
    assert session(folder) == session(folder)


def test_processes_at_once(folder: Path) -> None:
    found = [told(process) for process in [start(folder) for _ in range(4)]]
    alone = session(folder)
    assert all(each[key] == alone[key] for each in found for key in ("results", "warnings"))
    assert len(kept(folder)) == 1 and not alone["onnx"]


ACME = (
    PLUGIN
    + """
import os
import numpy as np
from onnxplug.contract import KernelDef, KernelRegistry, hookimpl

class Acme(ExecutionProvider):
    def get_capability(self, graph, kernels):
        print("asked about", [node.name for node in graph.nodes], file=open(os.environ["ASKED"], "a"))
        return []

    def get_kernel_registry(self):
        made = KernelRegistry()
        made.add(KernelDef("", "Neg", 13, lambda node: lambda x: np.full_like(x, FACTOR)))
        return made

@hookimpl
def onnxplug_provider():
    return spec(create=lambda options, context: Acme())
"""
)


def test_providers_are_asked_and_new_code_computes_constants_anew(folder: Path) -> None:
    site, name = folder / "site", "AcmeExecutionProvider"
    env = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]), "ASKED": str(folder / "asked")}

    def results(**more: Any) -> tuple[Any, bool, str]:
        (folder / "asked").write_text("")
        found = session(folder, env, providers=[name], **more)
        return found["results"][0], found["onnx"], (folder / "asked").read_text()

    def install(factor: str, version: str) -> None:
        site.mkdir()
        code = ACME.replace("FACTOR", factor)
        write_distribution(site, "acme", "acme_plugin", code, {name: "acme_plugin"}, version=version)

    install("5.0", "1.0")
    first, second = results(), results()
    assert first[0] == second[0] == [[6.0, 14.0]] and first[1] and not second[1]
    assert first[2] == second[2] != ""
    (site / "acme_plugin.py").write_text(ACME.replace("FACTOR", "-5.0"))
    assert results()[:2] == ([[-4.0, -6.0]], True)  # the version is the same
    os.rename(site / "acme-1.0.dist-info", site / "acme-2.0.dist-info")
    metadata = site / "acme-2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "2.0"))
    assert results()[1] and not results()[1]
    required = metadata.read_text() + "Requires-Dist: onnxplug-beside (>=1)\n"
    metadata.write_text(required)
    (site / "onnxplug_beside.py").write_text("FIVE = 5\n")
    assert results()[1] and not results()[1]
    (site / "onnxplug_beside.py").write_text("FIVE = 5.0\n")  # which nobody has imported
    assert results()[1] and not results()[1]


def test_sessions_made_at_once_look_at_the_code_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnxplug_looked_at.py").write_text("ONE = 1")
    monkeypatch.syspath_prepend(tmp_path)
    first = recall._code("onnxplug_looked_at", 1)
    (tmp_path / "onnxplug_looked_at.py").write_text("ONE = 1.0")
    assert recall._code("onnxplug_looked_at", 1) == first != recall._code("onnxplug_looked_at", 2)

    looked: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: looked.append(folder) or scan(folder))
    clock = iter((-8_000_000_000, -7_900_000_000, -6_000_000_000))
    monkeypatch.setattr(recall.time, "monotonic_ns", lambda: next(clock))
    counts = []
    for _ in range(3):
        recall._environment(())
        counts.append(len(looked))
    assert 0 < counts[0] == counts[1] < counts[2]


def save_apart(folder: Path, second: float) -> None:
    """The model with the constant c in a file of its own."""
    model = onnx.parser.parse_model(MODEL)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([0.0, second], np.float32), "c"))
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("whole", [True, False])
def test_graphs_with_external_data_are_kept_as_long_as_that_is_the_same(folder: Path, whole: bool, level: int) -> None:
    config = {"session.model_external_initializers_file_folder_path": str(folder)} if whole else {}
    how: dict[str, Any] = {"env": {"SETTLED": "0"}, "bytes": whole, "level": level, "config": config}
    save_apart(folder, 1.0)
    first, second = session(folder, **how), session(folder, **how)
    assert first.pop("onnx") and not second.pop("onnx") and first == second
    (folder / "weights").write_bytes(np.array([0.0, 3.0], np.float32).tobytes())
    third, fourth = session(folder, **how), session(folder, **how)
    assert third["onnx"] and third["results"] != first["results"]
    assert not fourth["onnx"] and fourth["results"] == third["results"]


def test_external_data_of_another_folder_are_other_data(folder: Path) -> None:
    found = []
    for number in range(2):
        (folder / str(number)).mkdir()
        save_apart(folder / str(number), 1.0 + number)
        os.rename(folder / str(number) / "model.onnx", folder / "model.onnx")
        config = {"session.model_external_initializers_file_folder_path": str(folder / str(number))}
        found.append(session(folder, {"SETTLED": "0"}, config=config))
    assert found[0]["results"] != found[1]["results"]


def test_external_data_written_just_now_are_not_known_by_their_times(folder: Path) -> None:
    save_apart(folder, 1.0)
    config = {"session.model_external_initializers_file_folder_path": str(folder)}
    assert session(folder, {"SETTLED": str(300 * 10**9)}, config=config)["onnx"] and not kept(folder)


def test_what_is_had_from_the_model_alone_is_not_kept(folder: Path) -> None:
    """An attribute that is a type."""
    save(folder, TYPE)
    assert session(folder)["results"] == [False]
    assert not kept(folder)


TYPE = """
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[1, 2] x, bool b) => (bool y) {
    o = If (b) <
        then_branch = g () => (optional(float[1, 2]) t) { t = Optional<type = float[1, 2]>() },
        else_branch = h () => (optional(float[1, 2]) e) { e = Optional(x) }
    >
    y = OptionalHasElement(o)
}
"""


def test_functions_of_the_model_are_kept(folder: Path) -> None:
    """One calls another, with an attribute, and stands in a branch."""
    save(folder, FUNCTIONS)
    first, second = session(folder), session(folder)
    assert first.pop("onnx") and second.pop("onnx")  # whose inlining takes it
    assert first == second and len(kept(folder)) == 1 and first["results"] == [[[6.0, 12.0]]]


FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
agraph (float[n, 2] x, bool b) => (float[n, 2] y) {
    y = If (b) <
        then_branch = g () => (float[n, 2] t) { t = local.Six(x) },
        else_branch = h () => (float[n, 2] e) { e = local.Times<by = 2.0>(x) }
    >
}
<domain: "local", opset_import: ["" : 18, "local" : 1]>
Six (a) => (b) { c = local.Times<by = 3.0>(a)  b = Add(c, c) }
<domain: "local", opset_import: ["" : 18]>
Times <by>(a) => (b) { c = Constant<value_float: float = @by>()  b = Mul(a, c) }
"""


def test_a_function_with_external_data_is_kept_as_long_as_that_is_the_same(folder: Path) -> None:
    model = onnx.parser.parse_model(OUTSIDE)
    weight = model.functions[0].node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t
    weight.CopyFrom(onnx.TensorProto(data_type=7, dims=[1], data_location=onnx.TensorProto.EXTERNAL))
    weight.external_data.add(key="location", value="weights")
    onnx.save(model, folder / "model.onnx")
    shapes = []
    for axis in (0, 0, 1):
        (folder / "weights").write_bytes(np.array([axis], np.int64).tobytes())
        found = session(folder, {"SETTLED": "0"}, bytes=False)
        shapes.append((found["edges"][-1][2], np.shape(found["results"][0])))
    assert shapes == [([1, "n", 2], (1, 1, 2))] * 2 + [(["n", 1, 2], (1, 1, 2))]


OUTSIDE = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
agraph (float[n, 2] x) => (float[] y) { y = local.Wide(x) }
<domain: "local", opset_import: ["" : 18]>
Wide (a) => (b) { axes = Constant()  b = Unsqueeze(a, axes) }
"""


def test_a_later_session_warns_of_the_model_as_the_first_did(folder: Path) -> None:
    save(folder, CONTRADICTION)
    warnings = [session(folder)["warnings"] for _ in range(2)]
    assert len(kept(folder)) == 1
    assert all(text.count("Error merging shape info for output. 'y'") == 1 for text in warnings)


CONTRADICTION = """
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[1, 2] x) => (float[1, 3] y) { y = Neg(x) }
"""


def test_an_optimized_model_is_saved_of_a_recalled_graph_too(folder: Path) -> None:
    saved = folder / "optimized.onnx"
    contents = []
    for _ in range(2):
        session(folder, options={"optimized_model_filepath": str(saved)})
        contents.append(onnx.load(saved).SerializeToString(deterministic=True))
        saved.unlink()
    assert contents[0] == contents[1] and len(kept(folder)) == 1


def assert_read_from_the_model(
    folder: Path, text: str, weight: np.ndarray, wanted: np.ndarray | None = None, rtol: float = 0
) -> None:
    """No copy of the initializer "w" of a model is kept, which is given as a file and as bytes; a second process has the same results."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, folder / "model.onnx")
    for whole in (True, False):
        first, second = (session(folder, {"SETTLED": "0"}, bytes=whole) for _ in range(2))
        assert first.pop("onnx") and not second.pop("onnx") and first == second
        if wanted is not None:
            np.testing.assert_allclose(first["results"][0], wanted, rtol=rtol)
    assert all(file.stat().st_size < weight.nbytes for file in kept(folder))


def test_weights_are_read_from_the_model(folder: Path) -> None:
    """Large ones are not kept a second time, whether they are as the model has them or scaled."""
    weight = np.random.default_rng(0).standard_normal((64, 32, 1, 1), np.float32)
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[n, 2] x) => (float[1, 64, 1, 2] y) <int64[4] shape = {1, 1, 1, 2}, int64[4] wide = {1, 32, 1, 2}, float[64] scale> {
        image = Reshape(x, shape)
        many = Expand(image, wide)
        convolved = Conv(many, w)
        y = BatchNormalization(convolved, scale, scale, scale, scale)
    }
    """.replace("float[64] scale", "float[64] scale = {" + ", ".join(["2.0"] * 64) + "}")
    assert_read_from_the_model(folder, text, weight)


def test_weights_that_are_transposed_are_read_from_the_model(folder: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((2, 9000), np.float32)
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[n, 2] x) => (float[n, 2] y) {
        turned = Transpose <perm = [1, 0]> (w)
        wide = MatMul(x, w)
        y = MatMul(wide, turned)
    }
    """
    assert_read_from_the_model(folder, text, weight, [[1, 2]] @ weight @ weight.T, 1e-3)


def test_weights_that_are_widened_are_read_from_the_model(folder: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((2, 18000)).astype(np.float16)
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[n, 2] x) => (float[n, 18000] y) {
        wide = Cast <to = 1> (w)
        y = MatMul(x, wide)
    }
    """
    assert_read_from_the_model(folder, text, weight, [[1, 2]] @ weight.astype(np.float32), 1e-5)


def test_outputs_that_are_sparse_stay_so() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> agraph () => (float[2] y) { y = Constant <value_floats = [1.0, 2.0]> () }"""
    data, schemas = onnx.parser.parse_model(text).SerializeToString(), Schemas()
    graph = build_graph(load_model(data), schemas)
    graph.sparse_outputs = ("y",)
    frozen = marshal.loads(marshal.dumps(freeze(graph, BytesOrigin(data))))
    assert thaw(frozen, schemas, ".", BytesOrigin(data)).sparse_outputs == ("y",)


TYPES: list[ValueType | None] = [
    None,
    TensorType("float", (1, "n", None)),
    TensorType("string"),
    SparseTensorType("double", (2,)),
    SequenceType(TensorType("int64", ())),
    OptionalType(SequenceType(TensorType("bool"))),
    SequenceType(MapType("string", TensorType("float", ()))),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_types_are_what_they_were(type_: ValueType | None) -> None:
    assert type_of(type_data(type_)) == type_
