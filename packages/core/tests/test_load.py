"""Loading: files that are no models, tensors, external data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from core_files import bounded, made, small
from onnx import IR_VERSION, ModelProto, TensorProto, defs, helper, numpy_helper

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

# ---- files that are no models


@pytest.mark.parametrize(
    ("name", "contents", "error", "text"),
    [
        ("missing.onnx", None, NoSuchFile, "missing.onnx failed. File doesn't exist"),
        ("nul\0.onnx", None, NoSuchFile, "File doesn't exist"),
        ("empty.onnx", b"", InvalidArgument, "empty.onnx failed:No graph was found in the protobuf."),
        ("text.onnx", b"not a model", InvalidProtobuf, "text.onnx failed:Protobuf parsing failed"),
        ("cut.onnx", small().SerializeToString()[:-5], InvalidProtobuf, "cut.onnx failed:Protobuf parsing failed"),
        ("no_graph.onnx", ModelProto(ir_version=9).SerializeToString(), InvalidArgument, "No graph was found"),
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
    assert (from_path.path, from_path.folder) == (str(path), str(tmp_path))
    assert (from_bytes.path, from_bytes.folder) == (None, ".")
    assert load_model(path.read_bytes(), "elsewhere").folder == "elsewhere"
    assert from_path.opsets == from_bytes.opsets == {"": 21}
    (tmp_path / "link.onnx").symlink_to(path)
    assert made(tmp_path / "link.onnx").run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [1, 2]


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
    with pytest.raises((Fail, InvalidArgument), match=r"'w'|tensor w failed"):
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
    with pytest.raises(Fail, match="'w' cannot be read"):
        made(proto.SerializeToString(), sess_options=options)


def test_strings() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.STRING, dims=[2], string_data=["é".encode(), b"\xff"])
    assert tensor_array(tensor, Path(".")).tolist() == ["é", "\udcff"]


@pytest.mark.parametrize(
    "kind",
    [
        "FLOAT",
        "DOUBLE",
        "INT8",
        "UINT8",
        "INT16",
        "UINT16",
        "INT32",
        "UINT32",
        "INT64",
        "UINT64",
        "BOOL",
        "FLOAT16",
        "BFLOAT16",
        "INT4",
        "COMPLEX64",
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_tensors_are_read_as_onnx_reads_them(kind: str, raw: bool) -> None:
    code = getattr(TensorProto, kind)
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(helper.tensor_dtype_to_np_dtype(code))
    tensor = numpy_helper.from_array(array) if raw else helper.make_tensor("t", code, array.shape, array.flatten())
    read, theirs = tensor_array(tensor, Path(".")), numpy_helper.to_array(tensor)
    assert (read.dtype, read.shape, read.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


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
        except Fail as error:
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


@pytest.mark.parametrize("fields", [{}, {"length": 8}, {"offset": 0, "length": 8}, {"length": 0}, {"checksum": "x"}])
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
    with pytest.raises(Fail, match=r"does not exist: \".*w\.bin\""):
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
    with pytest.raises(Fail, match=r"External data (path validation failed for initializer: w|of initializer 'w')"):
        made(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1}, {"offset": 1}, {"offset": 2**62}, {"offset": "x"}, {"offset": "1.5"}, {"offset": " 0"}, {"length": "+8"},
        {"length": -8}, {"length": 7}, {"length": 9}, {"length": 16}, {"length": 2**62}, {"offset": "9" * 5000},
        {"offset": 2**64, "length": 8}, {"dims": [4]}, {"dims": [2**31, 2**31]}, {"dims": [2**32, 2**32]},
        {"dims": [2**62, 2**62, 0]}, {"data_type": 8},
    ],
)  # fmt: skip
def test_external_ranges_that_do_not_fit(external: Placed, fields: dict[str, Any]) -> None:
    path = external("w.bin", DATA, **fields)
    with pytest.raises(Fail, match=r"External (data of initializer 'w'|initializer: w )|TensorProto: w "):
        tensor_array(ModelProto.FromString(path.read_bytes()).graph.initializer[0], path.parent)
    with pytest.raises(Fail):
        made(path)


@pytest.mark.parametrize("runtime", ["onnxplug", "onnxruntime"])
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("location", "w.bin")], "duplicate 'location' entries"),
        ([("location", "v.bin")], "duplicate 'location' entries"),
        ([("basepath", ".")], "model format error"),
        ([("", "")], "model format error"),
        ([("offset", "8"), ("offset", "0"), ("checksum", "a"), ("prepacked_1", "a")], None),
    ],
)
def test_what_may_be_said_of_external_data(
    external: Placed, runtime: str, entries: list[tuple[str, str]], words: str | None
) -> None:
    path, module = external("w.bin", DATA), pytest.importorskip(runtime)
    proto = ModelProto.FromString(path.read_bytes())
    for key, value in entries:
        proto.graph.initializer[0].external_data.add(key=key, value=value)
    path.write_bytes(proto.SerializeToString())
    if words is None:
        assert result(module.InferenceSession(path, providers=["CPUExecutionProvider"])) == [3, 4]
        return
    with pytest.raises(Exception, match=words) as caught:
        module.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert type(caught.value).__name__ == "Fail"


@pytest.mark.parametrize("runtime", ["onnxplug", "onnxruntime"])
@pytest.mark.parametrize("location", ["w.bin/", "w.bin/."])
def test_a_file_is_no_folder(external: Placed, runtime: str, location: str) -> None:
    external("w.bin", DATA)
    with pytest.raises(Exception, match="External data path does not exist") as caught:
        pytest.importorskip(runtime).InferenceSession(external(location), providers=["CPUExecutionProvider"])
    assert type(caught.value).__name__ == "Fail"


def test_external_data_that_is_missing(external: Placed) -> None:
    with pytest.raises(Fail, match=r'for initializer: w\. Error: External data path does not exist: ".*nowhere.bin"'):
        made(external("nowhere.bin"))
    folder = external("x.bin", DATA)
    (folder.parent / "d.bin").mkdir()
    with pytest.raises(Fail, match="External data path does not exist"):
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
