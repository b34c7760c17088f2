"""Models that hold what providers compiled: made by ModelCompiler or by a session, loaded by another session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model, same
from core_providers import CPU, offered
from onnx import helper

import onnxplug
from onnxplug.contract import Claim, CompiledRegion, ExecutionProvider, Region
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.session.compiler import ModelCompiler, OrtExternalInitializerInfo
from onnxplug.session.context_data import OrtEpContextData, OrtEpContextDataBuffer

ACME = "AcmeExecutionProvider"
RULES = {"Neg": np.negative, "Add": np.add, "Mul": np.multiply}
SOURCE = model(
    "g (float[N, 2] x, bool c) => (float[N, 2] y, float[N, 2] z) <float[2] w = {1, 2}> "
    "{ [n0] a = Neg(x) [n1] b = Mul(a, w) [n2] r = Relu(b) [n3] y = Add(r, w) "
    "z = If(c)<then_branch = t () => (float[N, 2] p) { [t0] p = Mul(b, w) }, "
    "else_branch = e () => (float[N, 2] q) { [e0] q = Relu(x) }> }"
)
FEED = {"x": np.array([[1, -2], [-3, 4]], np.float32), "c": np.array(True)}


class Compiled(CompiledRegion):
    """A list of (operator, operand names, result name), its weights, and the names of what goes in and out."""

    def __init__(self, recipe: dict[str, Any], exports: bool) -> None:
        self.recipe, self.exports = recipe, exports

    def __call__(self, context: Any, *inputs: Any) -> Sequence[Any]:
        values = {n: np.array(v, np.float32) for n, v in self.recipe["weights"].items()}
        values.update(zip(self.recipe["inputs"], inputs, strict=True))
        for op, operands, result in self.recipe["steps"]:
            values[result] = RULES[op](*(values[n] for n in operands))
        return [values[n] for n in self.recipe["outputs"]]

    def export(self) -> bytes | None:
        return json.dumps(self.recipe).encode() if self.exports else None


class Acme(ExecutionProvider):
    """Compiles chains of the operators it has rules for."""

    exports = True
    compilations = 0

    def get_capability(self, graph: Any, kernels: Any) -> Any:
        run: list[Any] = []
        for node in graph.nodes:
            if node.op_type in RULES:
                run.append(node)
            elif run:
                yield Claim(run, "acme")
                run = []
        if run:
            yield Claim(run, "acme")

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        type(self).compilations += len(regions)
        return [Compiled(self._recipe(region), self.exports) for region in regions]

    def load_region(self, blob: bytes) -> CompiledRegion:
        return Compiled(json.loads(blob), True)

    def _recipe(self, region: Region) -> dict[str, Any]:
        nodes = region.graph.nodes
        weights = {v.name: v.constant.tolist() for n in nodes for v in n.inputs if v.constant is not None}
        steps = [(n.op_type, [v.name for v in n.inputs], n.outputs[0].name) for n in nodes]
        names = {"inputs": [v.name for v in region.inputs], "outputs": [v.name for v in region.outputs]}
        return {"weights": weights, "steps": steps, **names}


@pytest.fixture(autouse=True)
def acme() -> Iterator[None]:
    Acme.compilations, Acme.exports = 0, True
    with offered(**{ACME: Acme}):
        yield


def options(**entries: str) -> Any:
    made = onnxplug.SessionOptions()
    made.add_provider(ACME, {})
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


def session(source: Any, given: Any = None, providers: Sequence[str] = (ACME, CPU)) -> Any:
    named = None if given is not None and given.has_providers() else list(providers)
    return onnxplug.InferenceSession(source, given, named, enable_fallback=0)


def contexts(source: Any) -> list[Any]:
    """The EPContext nodes of a model, nested graphs included, with their attributes as dictionaries."""
    proto = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source, load_external_data=False)
    found: list[Any] = []

    def look(graph: Any) -> None:
        for node in graph.node:
            if node.op_type == "EPContext":
                found.append({a.name: helper.get_attribute_value(a) for a in node.attribute} | {"name": node.name})
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    look(attribute.g)

    look(proto.graph)
    return found


def wanted() -> list[np.ndarray]:
    return list(session(SOURCE, providers=[CPU]).run(None, FEED))


def test_compiled_to_bytes_and_loaded_again() -> None:
    data = ModelCompiler(options(), SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    assert Acme.compilations == 3
    nodes = contexts(data)
    assert len(nodes) == 3 and {n["source"] for n in nodes} == {ACME.encode()}
    assert all(n["embed_mode"] == 1 and json.loads(n["ep_cache_context"])["steps"] for n in nodes)
    proto = onnx.load_from_string(data)
    assert not proto.graph.initializer and {o.domain: o.version for o in proto.opset_import}["com.microsoft"] == 1
    onnx.checker.check_model(proto)
    made = session(data)
    assert Acme.compilations == 3, "nothing is compiled again"
    same(made.run(None, FEED), wanted())
    same(made.run(None, {**FEED, "c": np.array(False)})[1:], [np.maximum(FEED["x"], 0)])
    owners = list(made.placement().values())
    assert owners.count(ACME) == 3 and set(owners) == {ACME, CPU}
    assert [str(a) for a in made.get_outputs()] == [str(a) for a in session(SOURCE).get_outputs()]


def test_compiled_to_files(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(SOURCE)
    ModelCompiler(options(), tmp_path / "m.onnx").compile_to_file()
    made = tmp_path / "m_ctx.onnx"
    files = {n["ep_cache_context"].decode() for n in contexts(made)}
    assert {p.name for p in tmp_path.glob("*.bin")} == files and all(f.startswith(f"m_ctx_{ACME}_") for f in files)
    same(session(str(made)).run(None, FEED), wanted())
    for file in files:
        (tmp_path / file).unlink()
    with pytest.raises(Fail, match="cannot be read"):
        session(str(made))


def test_data_may_not_lie_outside_of_the_models_folder(tmp_path: Path) -> None:
    node = helper.make_node(
        "EPContext", ["x"], ["y"], domain="com.microsoft", source=ACME, embed_mode=0, ep_cache_context="../secret"
    )
    proto = onnx.load_from_string(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    proto.graph.node[0].CopyFrom(node)
    (tmp_path / "deep").mkdir()
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "deep" / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(Fail, match=r"'\.\./secret' escapes the model directory"):
        session(str(tmp_path / "deep" / "m.onnx"))


def test_functions_keep_and_supply_the_data() -> None:
    kept: dict[str, bytes] = {}

    def write(name: str, data: OrtEpContextData) -> None:
        kept[name] = data.read(0, 3) + data.read(3)
        assert data.size == len(kept[name])

    compiler = ModelCompiler(options(), SOURCE)
    with pytest.raises(InvalidArgument, match="embed_compiled_data_into_model"):
        compiler.compile_to_bytes()
    compiler.set_ep_context_data_write_func(write)
    parts: list[bytes] = []
    compiler.compile_to_stream(parts.append)
    assert len(kept) == 3

    def read(name: str, buffer: OrtEpContextDataBuffer) -> None:
        buffer.allocate(len(kept[name]))
        buffer.write(kept[name][:5])
        buffer.write(memoryview(kept[name])[5:], 5)

    given = onnxplug.SessionOptions()
    given.set_ep_context_data_read_func(read, 1 << 20)
    same(session(parts[0], given).run(None, FEED), wanted())
    given.set_ep_context_data_read_func(read, 3)
    with pytest.raises(Fail, match="more than the 3 that were allowed"):
        session(parts[0], given)
    given.set_ep_context_data_read_func(lambda name, buffer: None, 3)
    with pytest.raises(Fail, match="allocated nothing"):
        session(parts[0], given)


def test_files_lie_where_they_are_told_to(tmp_path: Path) -> None:
    compiler = ModelCompiler(options(), SOURCE)
    for wrong in (("", "m"), (f"{tmp_path}/", "")):
        with pytest.raises(InvalidArgument, match=r"output_dir or model_name is empty\."):
            compiler.set_ep_context_binary_information(*wrong)
    with pytest.raises(InvalidArgument, match=r"output_dir is not a valid directory\."):
        compiler.set_ep_context_binary_information("folder", "m")
    compiler.set_ep_context_binary_information(f"{tmp_path}/", "mine.onnx")
    (tmp_path / "model.onnx").write_bytes(compiler.compile_to_bytes())
    files = sorted(each.name for each in tmp_path.iterdir() if each.suffix == ".bin")
    assert len(files) == 3 and all(name.startswith("mine_") for name in files)
    same(session(str(tmp_path / "model.onnx")).run(None, FEED), wanted())


def test_bounds_of_the_data() -> None:
    data, buffer = OrtEpContextData(b"abc"), OrtEpContextDataBuffer(4)
    for offset, length in ((4, None), (-1, None), (0, 4), (1, -1)):
        with pytest.raises(IndexError):
            data.read(offset, length)
    with pytest.raises(RuntimeError, match="allocate"):
        buffer.write(b"a")
    with pytest.raises(RuntimeError, match="more than"):
        buffer.allocate(5)
    buffer.allocate(2)
    assert (buffer.size, buffer.max_size, buffer.is_allocated) == (2, 4, True)
    with pytest.raises(RuntimeError, match="already"):
        buffer.allocate(2)
    for part, offset in ((b"abc", 0), (b"a", 2), (b"a", -1)):
        with pytest.raises(IndexError):
            buffer.write(part, offset)


def test_a_session_writes_its_context_model(tmp_path: Path) -> None:
    path = tmp_path / "c.onnx"
    entries = {"ep__context_enable": "1", "ep__context_file_path": str(path), "ep__context_embed_mode": "1"}
    made = session(SOURCE, options(**entries, ep__context_node_name_prefix="mine_"))
    same(made.run(None, FEED), wanted())
    assert all(n["name"].startswith("mine_acme_") for n in contexts(path))
    same(session(str(path)).run(None, FEED), wanted())
    made.set_providers([ACME, CPU])  # makes the session anew, not the file
    same(pickle.loads(pickle.dumps(made)).run(None, FEED), wanted())
    with pytest.raises(Fail, match="exist already"):
        session(SOURCE, options(**entries))
    with pytest.raises(InvalidArgument, match=r"ep\.context_file_path"):
        session(SOURCE, options(ep__context_enable="1"))
    assert set(made.placement().values()) == {ACME, CPU} and "EPContext" not in str(made.explain())


def test_a_model_without_compiled_regions_stays_as_it_is(tmp_path: Path) -> None:
    plain = onnxplug.SessionOptions()
    data = ModelCompiler(plain, SOURCE).compile_to_bytes()
    assert not contexts(data)
    same(session(data, providers=[CPU]).run(None, FEED), wanted())
    strict = ModelCompiler(plain, SOURCE, flags=onnxplug.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED)
    with pytest.raises(Fail, match=r"Unable to compile any nodes\. Check that the session EPs support compilation"):
        strict.compile_to_bytes()
    Acme.exports = False
    assert not contexts(ModelCompiler(options(), SOURCE).compile_to_bytes())
    path = str(tmp_path / "c.onnx")
    session(SOURCE, options(ep__context_enable="1", ep__context_file_path=path))
    assert not Path(path).exists()


def test_a_context_without_its_provider() -> None:
    data = ModelCompiler(options(), SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    with pytest.raises(OrtNotImplemented) as caught:
        session(data, providers=[CPU])
    assert f"EPContext node generated by '{ACME}' is not compatible with any execution provider" in str(caught.value)
    assert "Available session execution providers: [CPUExecutionProvider]." in str(caught.value)


def test_a_context_that_the_provider_refuses() -> None:
    data = ModelCompiler(options(), SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    proto = onnx.load_from_string(data)
    node = next(n for n in proto.graph.node if n.op_type == "EPContext")
    next(a for a in node.attribute if a.name == "ep_cache_context").s = b"damaged"
    with pytest.raises(Fail, match=f"{ACME}: load_region raised JSONDecodeError"):
        session(proto.SerializeToString())
    next(a for a in node.attribute if a.name == "main_context").i = 0
    with pytest.raises(Fail, match="has no context of its own"):
        session(proto.SerializeToString())


def test_initializers_go_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain, path = onnxplug.SessionOptions(), tmp_path / "e.onnx"
    ModelCompiler(
        plain, SOURCE, external_initializers_file_path="e.bin", external_initializers_size_threshold=0
    ).compile_to_file(path)
    assert (tmp_path / "e.bin").stat().st_size == 8
    same(session(str(path), providers=[CPU]).run(None, FEED), wanted())
    with pytest.raises(InvalidArgument, match="must lie in the model's folder"):
        ModelCompiler(
            plain, SOURCE, external_initializers_file_path="../e.bin", external_initializers_size_threshold=0
        ).compile_to_file(path)

    def locate(name: str, value: Any, info: Any) -> Any:
        assert (name, value.shape(), info) == ("w", [2], None)
        (tmp_path / "f.bin").write_bytes(b"\0" * 8 + value.numpy().tobytes())
        return OrtExternalInitializerInfo("f.bin", 8, 8)

    ModelCompiler(plain, SOURCE, get_initializer_location_func=locate).compile_to_file(path)
    same(session(str(path), providers=[CPU]).run(None, FEED), wanted())


@pytest.mark.parametrize("engine", ["onnxplug", "onnxruntime"])
def test_arguments_that_are_refused(engine: str, tmp_path: Path) -> None:
    ort = pytest.importorskip(engine)
    make, options_, state = ort.ModelCompiler, ort.SessionOptions(), ort.capi.onnxruntime_pybind11_state
    for source in (b"", ""):
        with pytest.raises(ValueError, match=r"Input model (path|bytes array) is empty"):
            make(options_, source)
    with pytest.raises(TypeError, match="Unable to load from type"):
        make(options_, 3)
    with pytest.raises(TypeError, match="Output external initializer filepath is of unexpected type"):
        make(options_, SOURCE, external_initializers_file_path=3)
    with pytest.raises(ValueError, match="Cannot initialize ModelCompiler with both"):
        make(options_, SOURCE, external_initializers_file_path="x", get_initializer_location_func=lambda *a: None)
    with pytest.raises(state.InvalidArgument, match="Input model path does not exist"):
        make(options_, str(tmp_path / "nope.onnx")).compile_to_file(str(tmp_path / "c.onnx"))
    with pytest.raises(state.InvalidArgument, match="failed: No such file or directory"):
        make(options_, SOURCE).compile_to_file(str(tmp_path / "nowhere" / "c.onnx"))


def raising(*_: Any) -> None:
    raise ValueError("mine")


@pytest.mark.parametrize("engine", ["onnxplug", "onnxruntime"])
def test_functions_that_fail(engine: str) -> None:
    ort = pytest.importorskip(engine)
    state = ort.capi.onnxruntime_pybind11_state
    for function in (raising, lambda *_: 5):
        with pytest.raises(state.Fail, match=r"ValueError: mine|Python instance|OrtExternalInitializerInfo"):
            ort.ModelCompiler(ort.SessionOptions(), SOURCE, get_initializer_location_func=function).compile_to_bytes()
    with pytest.raises(state.Fail, match="ValueError: mine"):
        ort.ModelCompiler(ort.SessionOptions(), SOURCE).compile_to_stream(raising)
    with pytest.raises(TypeError):
        ort.ModelCompiler(ort.SessionOptions(), SOURCE).compile_to_stream(5)
    with pytest.raises(TypeError):
        ort.ModelCompiler(ort.SessionOptions(), SOURCE, external_initializers_size_threshold=-1)


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.onnx"
    path.write_text("mine")
    with pytest.raises(Fail, match="exists already"):
        ModelCompiler(onnxplug.SessionOptions(), SOURCE, flags=2).compile_to_file(path)
    assert path.read_text() == "mine"


def test_compatibility_is_written_into_the_model(tmp_path: Path) -> None:
    state = onnxplug.capi.onnxruntime_pybind11_state
    data = ModelCompiler(options(), SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    (tmp_path / "c.onnx").write_bytes(data)
    info = state.get_compatibility_info_from_model_bytes(data, ACME)
    assert info == state.get_compatibility_info_from_model(str(tmp_path / "c.onnx"), ACME) and ACME in info
    assert state.get_compatibility_info_from_model_bytes(SOURCE, ACME) is None
    (device,) = [d for d in onnxplug.get_ep_devices() if d.ep_name == ACME]
    verdict = state.get_model_compatibility_for_ep_devices
    kinds = state.OrtCompiledModelCompatibility
    assert verdict([device], info) == kinds.EP_SUPPORTED_OPTIMAL
    assert verdict([device], info + "1") == kinds.EP_UNSUPPORTED
    assert verdict([device], "other") == kinds.EP_NOT_APPLICABLE
