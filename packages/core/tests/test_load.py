"""Reading models: whatever the bytes, a typed error or a session; external data confined to the model's folder."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import IR_VERSION, ModelProto, TensorProto, defs, helper, numpy_helper, parser

import onnxplug as ort
from onnxplug.contract.errors import (
    STATUS_ERRORS,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
)
from onnxplug.load import load_model
from onnxplug.load.tensors import sparse_array, tensor_array

SMALL = (
    """<ir_version: 9, opset_import: ["": 21]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
)


def small() -> ModelProto:
    return parser.parse_model(SMALL)


def made(source: Any, **keywords: Any) -> ort.InferenceSession:
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"], enable_fallback=0, **keywords)


# ---- files that are no models


@pytest.mark.parametrize(
    ("name", "contents", "error", "text"),
    [
        ("missing.onnx", None, NoSuchFile, "missing.onnx failed. File doesn't exist"),
        ("nul\0.onnx", None, NoSuchFile, "File doesn't exist"),
        ("empty.onnx", b"", InvalidProtobuf, "empty.onnx failed:Protobuf parsing failed"),
        ("text.onnx", b"not a model", InvalidProtobuf, "text.onnx failed:Protobuf parsing failed"),
        ("cut.onnx", small().SerializeToString()[:-5], InvalidProtobuf, "cut.onnx failed:Protobuf parsing failed"),
        ("no_graph.onnx", ModelProto(ir_version=9).SerializeToString(), InvalidProtobuf, "no graph in the file"),
        ("model.ort", b"ORTM", NotImplemented, r".ort files are onnxruntime's own format; save the model as .onnx"),
        ("x" * 300, None, Fail, "File name too long"),
        ("empty.onnx/x.onnx", None, Fail, "Not a directory"),
    ],
)
def test_files_that_are_no_models(
    tmp_path: Path, name: str, contents: bytes | None, error: type[Exception], text: str
) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    with pytest.raises(error) as raised:
        made(tmp_path / name)
    assert text in str(raised.value)


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidProtobuf, match="it is a directory"):
        made(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(small().SerializeToString())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(Fail, match="Permission denied"):
        made(path)


@pytest.mark.parametrize("source", [b"", ModelProto(ir_version=9).SerializeToString()])
def test_bytes_without_a_graph(source: bytes) -> None:
    with pytest.raises(InvalidArgument, match=r"No graph was found in the protobuf\.$"):
        made(source)


def changed(**fields: Any) -> ModelProto:
    proto = small()
    for name, value in fields.items():
        if value is None:
            proto.ClearField(name)
        elif name == "opset_import":
            proto.opset_import[0].version = value
        else:
            setattr(proto, name, value)
    return proto


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ir_version": IR_VERSION + 1}, f"Unsupported model IR version: {IR_VERSION + 1}, max supported IR version"),
        ({"ir_version": None}, "Missing model IR version."),
        ({"opset_import": None}, "Missing opset in the model"),
        ({"opset_import": defs.onnx_opset_version() + 1}, "is newer than the installed onnx knows"),
        ({"opset_import": 2**62}, "is newer than the installed onnx knows"),
    ],
)
def test_versions(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Fail, match=text):
        made(changed(**fields).SerializeToString())


@pytest.mark.parametrize("version", [0, -1, -(2**62)])
def test_opsets_that_never_were(version: int) -> None:
    with pytest.raises(STATUS_ERRORS, match="No Op registered for Add with domain_version of"):
        made(changed(opset_import=version).SerializeToString())


def test_where_a_model_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(small().SerializeToString())
    from_path, from_bytes = load_model(path), load_model(path.read_bytes())
    assert (from_path.path, from_path.folder) == (path, tmp_path)
    assert (from_bytes.path, from_bytes.folder) == (None, Path("."))
    assert load_model(path.read_bytes(), "elsewhere").folder == Path("elsewhere")
    assert from_path.opsets == from_bytes.opsets == {"": 21}
    (tmp_path / "link.onnx").symlink_to(path)
    assert made(tmp_path / "link.onnx").run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]


# ---- damaged models


class TooLong(BaseException):
    """Passes every handler of the code under test."""


@contextmanager
def bounded(seconds: float = 20, memory: int = 3 << 30) -> Iterator[None]:
    """Neither a hang nor a machine brought to its knees by a damaged dimension."""
    resource = pytest.importorskip("resource")

    def expired(*_: object) -> None:
        raise TooLong

    before, limits = signal.signal(signal.SIGALRM, expired), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def feeds_for(session: Any) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for each in session.get_inputs():
        if not each.type.startswith("tensor("):
            continue
        dtype = each.value_type.dtype
        shape = [min(d, 5) if isinstance(d, int) else 2 for d in each.shape]
        feeds[each.name] = np.full(shape, "a", object) if dtype.hasobject else np.ones(shape, dtype)
    return feeds


def survives(source: bytes) -> str:
    """What became of a damaged model: refused, run, or its run refused, each with an error of the surface."""
    with bounded():
        try:
            session = made(source)
        except (*STATUS_ERRORS, ValueError, RuntimeError) as error:
            assert isinstance(error, STATUS_ERRORS), f"{type(error).__name__}: {error}"
            return "refused"
        options = ort.RunOptions()
        timer = threading.Timer(2, setattr, (options, "terminate", True))  # a damaged Loop may have no end
        timer.start()
        try:
            session.run(None, feeds_for(session), options)
        except (*STATUS_ERRORS, ValueError):  # ValueError: a feed that this test could not make
            return "run refused"
        finally:
            timer.cancel()
            session.close()
        return "run"


BASES = {
    "arithmetic": """<ir_version: 9, opset_import: ["": 21]> g (float["N", 3] x) => (float["N", 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}, int64[2] s = {-1, 2}> {
            h = MatMul(x, w) r = Relu(h) t = Reshape(r, s) z = Shape <start: int = 0> (t) c = Cast <to: int = 1> (z)
            u = ReduceSum <keepdims: int = 0> (c) y = Add(t, u) }""",
    "control": """<ir_version: 9, opset_import: ["": 21]> g (float[2] x, bool b) => (float[2] y, float["K", 2] s)
        <int64 n = {3}> {
            i = If (b) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (c) { c = Abs(x) }>
            y, s = Loop (n, b, i) <body = l (int64 k, bool g0, float[2] v) => (bool g1, float[2] v1, float[2] o) {
                g1 = Identity(g0) v1 = Add(v, x) o = Mul(v1, v) }> }""",
    "function": """<ir_version: 9, opset_import: ["": 21, "f": 1]> g (float[2, 2] x) => (float[2, 2] y) {
            a = f.soft <axis: int = 0> (x) y = f.twice (a) }
        <domain: "f", opset_import: ["": 21]> soft <axis> (p) => (q) { q = Softmax <axis: int = @axis> (p) }
        <domain: "f", opset_import: ["": 21, "f": 1]> twice (p) => (q) { r = f.soft <axis: int = 1> (p) q = Add(r, r) }""",
    "constants": """<ir_version: 9, opset_import: ["": 21]> g (int64[1] i) => (float[2] y, string[1] t)
        <float[2, 2] w = {1, 2, 3, 4}, string[2] n = {"a", "b"}> {
            h = Gather <axis: int = 0> (w, i) k = Constant <value_floats: floats = [1.0, 2.0]> () r = Mul(h, k)
            a = Constant <value: tensor = int64[1] {0}> () y = Squeeze(r, a) t = Gather(n, i)
            e = ConstantOfShape <value: tensor = float[1] {2}> (i) }""",
    "images": """<ir_version: 9, opset_import: ["": 21]> g (float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y)
        <float[2, 2, 1, 1] w = {1, 0, 0, 1}, float[2] s = {1, 2}> {
            c = Conv <kernel_shape: ints = [1, 1]> (x, w) b = BatchNormalization (c, s, s, s, s)
            y = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (b) }""",
}
PROTOS = {name: parser.parse_model(text) for name, text in BASES.items()}
BYTES = {name: proto.SerializeToString() for name, proto in PROTOS.items()}


@pytest.mark.parametrize("name", BASES)
def test_the_undamaged_models_run(name: str) -> None:
    assert survives(BYTES[name]) == "run"


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    data = bytearray(BYTES[draw(st.sampled_from(sorted(BASES)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        span = draw(st.integers(0, 8))
        match draw(st.sampled_from(["replace", "cut", "insert", "end", "repeat"])):
            case "replace":
                data[at : at + span] = draw(st.binary(min_size=span, max_size=span))
            case "cut":
                del data[at : at + span]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "end":
                del data[at:]
            case "repeat":
                data[at:at] = data[at : at + span * 8]
    return bytes(data)


ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(ANY, max_examples=400)
@given(damaged_bytes())
def test_damaged_bytes(source: bytes) -> None:
    survives(source)


@settings(ANY, max_examples=100)
@given(st.binary(max_size=200))
def test_random_bytes(source: bytes) -> None:
    with pytest.raises((InvalidProtobuf, InvalidArgument, Fail)):
        made(source)


NUMBERS = st.sampled_from([-(2**63), -(2**31), -3, -1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**63 - 1])
TEXTS = st.sampled_from(["", "x", "y", "w", "nope", "Add", "If", "Loop", "Scan", "f", "soft", "\0", "a/b", "é"])
Path_ = tuple[tuple[Any, str], ...]


def places(message: Any) -> list[tuple[Any, Any, int | None]]:
    """(message, field, index or None) of every scalar and every list item in a message, all the way down."""
    found: list[tuple[Any, Any, int | None]] = []
    for field, value in message.ListFields():
        repeated = not isinstance(value, int | float | str | bytes) and not hasattr(value, "ListFields")
        items = list(enumerate(value)) if repeated else [(None, value)]
        for index, item in items:
            found.append((message, field, index))
            if hasattr(item, "ListFields"):
                found += places(item)
    return found


@st.composite
def damaged_protos(draw: st.DrawFn) -> bytes:
    """A model in which a few fields were cleared, changed or repeated; it always parses."""
    proto = ModelProto()
    proto.CopyFrom(PROTOS[draw(st.sampled_from(sorted(BASES)))])
    for _ in range(draw(st.integers(1, 3))):
        message, field, index = draw(st.sampled_from(places(proto)))
        items = getattr(message, field.name)
        old = items if index is None else items[index]
        if hasattr(old, "ListFields"):
            if index is None or draw(st.booleans()):
                message.ClearField(field.name) if index is None else items.__delitem__(index)
            else:
                items.append(old)
            continue
        kinds = {bool: NUMBERS, int: NUMBERS, float: st.floats(width=32), str: TEXTS, bytes: st.binary(max_size=20)}
        new = draw(kinds[type(old)])
        try:
            if index is None:
                setattr(message, field.name, new)
            else:
                items[index] = new
        except (ValueError, TypeError):  # out of the field's range
            message.ClearField(field.name)
    return proto.SerializeToString()


@settings(ANY, max_examples=600)
@given(damaged_protos())
def test_damaged_fields(source: bytes) -> None:
    survives(source)


def test_names_that_are_no_text() -> None:
    for name in (b"x", b"y", b"w", b"Add"):
        source = small().SerializeToString()
        with pytest.raises(STATUS_ERRORS):
            made(source.replace(bytes([len(name)]) + name, bytes([len(name)]) + b"\xff" * len(name)))


# ---- tensors


def initializer(array: np.ndarray, **fields: Any) -> TensorProto:
    tensor = numpy_helper.from_array(array, "w")
    for name, value in fields.items():
        if name == "dims":
            tensor.ClearField("dims")
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    "tensor",
    [
        initializer(np.ones(2, np.float32), raw_data=b"123"),
        initializer(np.ones(2, np.float32), raw_data=b"12345678" * 2),
        initializer(np.ones(2, np.float32), dims=[2, 2]),
        initializer(np.ones(2, np.float32), dims=[-2]),
        initializer(np.ones(2, np.float32), dims=[2**62, 2**62]),
        initializer(np.ones(0, np.float32), dims=[2**62, 2**62, 0]),
        initializer(np.ones(2, np.float32), data_type=0),
        initializer(np.ones(2, np.float32), data_type=8),
        initializer(np.ones(2, np.float32), data_type=99),
    ],
)
def test_tensors_that_cannot_be(tensor: TensorProto) -> None:
    with pytest.raises(InvalidProtobuf, match="'w'"):
        tensor_array(tensor, Path("."))
    proto = small()
    proto.graph.initializer[0].CopyFrom(tensor)
    with pytest.raises(STATUS_ERRORS):
        made(proto.SerializeToString())


def test_damaged_data_is_an_error_of_creation_not_of_the_run() -> None:
    proto = small()
    proto.graph.initializer[0].CopyFrom(initializer(np.ones(2, np.float32), raw_data=b"1234567"))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.raises(InvalidProtobuf, match="'w' cannot be read"):
        made(proto.SerializeToString(), sess_options=options)


def test_strings() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.STRING, dims=[2], string_data=["é".encode(), b"\xff"])
    assert tensor_array(tensor, Path(".")).tolist() == ["é", "\udcff"]


def test_arrays_cannot_be_written() -> None:
    for array in (np.ones(2, np.float32), np.ones((2, 2), ml_dtypes.bfloat16)):
        assert not tensor_array(initializer(array), Path(".")).flags.writeable


def sparse(values: Any, indices: Any, dims: Any) -> Any:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), "s"),
        numpy_helper.from_array(np.asarray(indices, np.int64), "i"),
        dims,
    )


def test_sparse() -> None:
    assert sparse_array(sparse([5, 6], [1, 3], [2, 2]), Path(".")).tolist() == [[0, 5], [0, 6]]
    assert sparse_array(sparse([5, 6], [[0, 1], [1, 1]], [2, 2]), Path(".")).tolist() == [[0, 5], [0, 6]]


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([1, 4], [2, 2]), ([-9, 1], [2, 2]), ([[0, 5], [0, 0]], [2, 2]), ([0, 1], [-2, 2]), ([0, 1], [2**40, 2**40]),
     ([[0], [1]], [2, 2, 2]), ([[[0]]], [2, 2]), ([0, 1, 2], [2, 2])],
)  # fmt: skip
def test_sparse_that_cannot_be(indices: Any, dims: Any) -> None:
    with bounded():
        try:
            sparse_array(sparse([5, 6], indices, dims), Path("."))
        except InvalidProtobuf as error:
            assert "'s' cannot be read" in str(error)


# ---- external data


Placed = Callable[..., Path]


@pytest.fixture
def external(tmp_path: Path) -> Placed:
    """Writes a model whose initializer w lies in a file: external(location, data, offset=..., length=..., dtype=...)."""

    def write(location: str, data: bytes | None = None, **fields: Any) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        proto = small()
        tensor = proto.graph.initializer[0]
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = "w", fields.pop("data_type", 1), TensorProto.EXTERNAL
        tensor.dims.extend(fields.pop("dims", [2]))
        for key, value in {"location": location, **fields}.items():
            tensor.external_data.add(key=key, value=str(value))
        if data is not None:
            (folder / location).write_bytes(data)
        (folder / "model.onnx").write_bytes(proto.SerializeToString())
        return folder / "model.onnx"

    return write


DATA = np.array([3, 4], np.float32).tobytes()


def result(session: Any) -> list[float]:
    return session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist()


@pytest.mark.parametrize("fields", [{}, {"length": 8}, {"offset": 0, "length": 8}, {"checksum": "x"}])
def test_external_data(external: Placed, fields: dict[str, Any]) -> None:
    assert result(made(external("w.bin", DATA, **fields))) == [3, 4]


def test_external_data_at_an_offset_that_is_not_aligned(external: Placed) -> None:
    assert result(made(external("w.bin", b"abc" + DATA + b"z", offset=3, length=8))) == [3, 4]


def test_external_data_is_mapped_not_read(external: Placed) -> None:
    path = external("w.bin", DATA)
    array = tensor_array(ModelProto.FromString(path.read_bytes()).graph.initializer[0], path.parent)
    base: Any = array
    while not isinstance(base, np.memmap):
        base = base.base
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "dims", "packed", "values"),
    [
        ("int4", [3], b"\x21\x0f", [1, 2, -1]),
        ("uint4", [2], b"\xf1", [1, 15]),
        ("int2", [5], b"\xe4\x01", [0, 1, -2, -1, 1]),
        ("float4_e2m1fn", [2], b"\x42", [1, 2]),
        ("float6_e2m3fn", [4], b"\x08\x82\x20", [1, 1, 1, 1]),
        ("float6_e2m3fn", [1], b"\x08", [1]),
        ("float8_e5m2", [1], b"\x3c", [1]),
        ("bfloat16", [1], b"\x80\x3f", [1]),
    ],
)
def test_external_data_of_odd_types(
    external: Placed, dtype: str, dims: list[int], packed: bytes, values: list[float]
) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, dtype)))
    path = external("w.bin", packed, data_type=code, dims=dims)
    array = tensor_array(ModelProto.FromString(path.read_bytes()).graph.initializer[0], path.parent)
    assert array.dtype == getattr(ml_dtypes, dtype) and array.shape == tuple(dims)
    assert array.astype(float).tolist() == values and not array.flags.writeable


def test_external_data_of_bytes(external: Placed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = external("w.bin", DATA)
    with pytest.raises(Fail, match=r"w\.bin' doesn't exist"):
        made(path.read_bytes())
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    assert result(made(path.read_bytes(), sess_options=options)) == [3, 4]
    monkeypatch.chdir(path.parent)
    assert result(made(path.read_bytes())) == [3, 4]


def test_external_data_in_a_folder_below(external: Placed) -> None:
    path = external("x.bin", DATA)
    (path.parent / "data").mkdir()
    path = external("data/w.bin", DATA)
    assert result(made(path)) == [3, 4]
    (path.parent / "inner").symlink_to(path.parent / "data", target_is_directory=True)
    assert result(made(external("inner/w.bin"))) == [3, 4], "a link that stays inside is fine"
    assert result(made(external("data/../x.bin"))) == [3, 4]


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "data/../../w.bin", "/etc/hostname", "link.bin", "folder/w.bin", "", ".", "..", "a\0b", "loop", "y" * 300],
)  # fmt: skip
def test_external_paths_that_leave_the_folder(external: Placed, tmp_path: Path, location: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for at in (tmp_path / "w.bin", outside / "w.bin"):
        at.write_bytes(DATA)
    path = external(location)
    (path.parent / "link.bin").symlink_to(outside / "w.bin")
    (path.parent / "folder").symlink_to(outside, target_is_directory=True)
    (path.parent / "loop").symlink_to(path.parent / "loop")
    with pytest.raises(Fail, match="External data of initializer 'w'"):
        made(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1}, {"offset": 1}, {"offset": 2**62}, {"offset": "x"}, {"offset": "1.5"}, {"length": -8}, {"length": 7},
        {"length": 9}, {"length": 16}, {"length": 2**62}, {"offset": "9" * 5000}, {"offset": 2**64, "length": 8},
        {"dims": [4]}, {"dims": [2**31, 2**31]}, {"dims": [2**32, 2**32]}, {"dims": [2**62, 2**62, 0]}, {"data_type": 8},
    ],
)  # fmt: skip
def test_external_ranges_that_do_not_fit(external: Placed, fields: dict[str, Any]) -> None:
    path = external("w.bin", DATA, **fields)
    with pytest.raises(Fail, match="External data of initializer 'w'"):
        tensor_array(ModelProto.FromString(path.read_bytes()).graph.initializer[0], path.parent)
    with pytest.raises((Fail, InvalidProtobuf)):
        made(path)


def test_external_data_that_is_missing(external: Placed) -> None:
    with pytest.raises(Fail, match=r"External data of initializer 'w': file '.*nowhere.bin' doesn't exist"):
        made(external("nowhere.bin"))
    folder = external("x.bin", DATA)
    (folder.parent / "d.bin").mkdir()
    with pytest.raises(Fail, match="doesn't exist"):
        made(external("d.bin"))


def test_external_data_that_may_not_be_read(external: Placed) -> None:
    path = external("w.bin", DATA)
    (path.parent / "w.bin").chmod(0)
    if os.access(path.parent / "w.bin", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(Fail, match="cannot be read"):
        made(path)


def test_external_initializers_given_by_the_caller_need_no_file(external: Placed) -> None:
    path, options = external("nowhere.bin"), ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.array([3, 4], np.float32))
    options.add_external_initializers(["w"], [value])
    assert result(made(path, sess_options=options)) == [3, 4]


@pytest.mark.parametrize(("name", "text"), [("w", "non-external initializer"), ("nope", "Failed to find existing")])
def test_external_initializers_that_are_none(name: str, text: str) -> None:
    options = ort.SessionOptions()
    options.add_external_initializers([name], [ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))])
    with pytest.raises(Fail, match=text):
        made(small().SerializeToString(), sess_options=options)
