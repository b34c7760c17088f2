"""``onnxplug run``: made-up and given inputs, results, archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_models import CPU, FLOAT, Cli, as_json, error_of, write
from onnx import TensorProto, helper

from onnxplug.cli.inputs import make_inputs, read_files
from onnxplug.cli.outputs import describe, save
from onnxplug.contract import (
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
)
from onnxplug.session.model_io import NodeArg

# run


def test_run_tells_shape_computation_apart(cli: Cli, tmp_path: Path) -> None:
    shape, out = (helper.make_node(*each) for each in (("Shape", ["x"], ["s"]), ("Reshape", ["x", "s"], ["y"])))
    path = write(tmp_path / "shapes.onnx", [shape, out], [("x", FLOAT, ["n", 2])], [("y", FLOAT, ["n", 2])])
    _, told, _ = cli("run", path, "--providers", "cpu")
    assert "2 nodes (100.0%, 100.0% of those that do more than compute shapes)" in told


def test_run_json(cli: Cli, model: str, tmp_path: Path) -> None:
    np.save("x.npy", np.array([[1, -1, 2], [3, 4, -5]], np.float32))
    code, report = as_json(cli("run", model, "--inputs", "x=x.npy", "--providers", "cpu", "--repeat", "3", "--json"))
    assert code == 0
    assert list(report) == [
        "model", "providers", "inputs", "outputs", "output_file", "runs", "warmup", "seconds", "profile",
    ]  # fmt: skip
    assert report["providers"] == [{"name": CPU, "nodes": 2, "shapes": 0, "share": 1.0, "share_but_shapes": 1.0}]
    assert report["inputs"][0]["source"] == "file"
    assert report["outputs"] == [
        {
            "name": "y", "type": "tensor(float)", "dtype": "float32", "shape": [2, 3],
            "min": 0.0, "mean": 20 / 6, "max": 8.0, "non_finite": 0,
        }
    ]  # fmt: skip
    assert report["runs"] == 3
    assert list(report["seconds"]) == ["create", "median", "min", "max"]
    assert report["seconds"]["min"] <= report["seconds"]["median"] <= report["seconds"]["max"]
    assert report["profile"] is None


def test_run_text(cli: Cli, model: str) -> None:
    code, out, _ = cli("run", model, "--providers", "cpu", "--dim", "rows=4", "--warmup", "1", "--repeat", "2")
    assert code == 0
    assert f"{CPU}: 2 nodes (100.0%)" in out
    assert ["x", "float32", "4x3", "generated"] in [line.split() for line in out.splitlines()]
    assert "median of 2" in out
    assert "first run" in cli("run", model)[1]


def test_run_writes_and_reads_archives(cli: Cli, model: str) -> None:
    np.savez("in.npz", x=np.array([[-1, 0, 1]], np.float32))
    assert cli("run", model, "--inputs", "in.npz", "--output", "out.npz")[0] == 0
    with np.load("out.npz") as written:
        np.testing.assert_array_equal(written["y"], [[0, 0, 2]])
    code, error = error_of(cli("run", model, "--output", "nowhere/out.npz", "--json"))
    assert (code, error["type"]) == (1, "FileNotFoundError")


def test_generated_inputs_follow_the_seed(cli: Cli, model: str) -> None:
    def means(*arguments: str) -> float:
        document = as_json(cli("run", model, "--dim", "rows=9", "--json", *arguments))[1]
        return float(document["inputs"][0]["mean"])

    assert means() == means() == means("--seed", "0")
    assert means("--seed", "1") != means()


def test_run_profile(cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_CODEGEN", "0")  # a step for each node
    code, report = as_json(
        cli("run", model, "--providers", "cpu", "--profile", "--warmup", "1", "--repeat", "2", "--json")
    )
    assert code == 0
    assert Path(report["profile"]["file"]).is_file()
    operators = report["profile"]["operators"]
    assert {o["op_type"] for o in operators} == {"Add", "Relu"}
    for operator in operators:
        assert list(operator) == ["op_type", "provider", "seconds", "calls", "share"]
        assert (operator["provider"], operator["calls"]) == (CPU, 1.0)
    assert sum(o["share"] for o in operators) == pytest.approx(1) or all(o["share"] == 0 for o in operators)
    out = cli("run", model, "--providers", "cpu", "--profile")[1]
    assert "Slowest operators (2 of 2, per run)" in out
    assert out.splitlines()[-1].startswith("profile: ")


def test_the_time_of_control_flow_is_that_of_its_bodies(cli: Cli, nested: str) -> None:
    report = as_json(cli("run", nested, "--providers", "cpu", "--profile", "--json"))[1]
    assert {o["op_type"] for o in report["profile"]["operators"]} <= {"Abs", "Neg"}


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.zeros((2, 3), np.float64), "InvalidArgument"),
        (np.zeros((2, 4), np.float32), "InvalidArgument"),
        (np.zeros(3, np.float32), "InvalidArgument"),
    ],
)
def test_inputs_that_do_not_fit(cli: Cli, model: str, array: np.ndarray, kind: str) -> None:
    np.save("x.npy", array)
    code, error = error_of(cli("run", model, "--inputs", "x=x.npy", "--json"))
    assert (code, error["type"]) == (1, kind)
    assert error["hint"] == "the model takes x tensor(float) [rows, 3]"


def test_an_input_the_model_has_not(cli: Cli, model: str) -> None:
    np.save("x.npy", np.zeros((1, 3), np.float32))
    code, error = error_of(cli("run", model, "--inputs", "z=x.npy", "--json"))
    assert code == 1
    assert "z" in error["message"]


@pytest.mark.parametrize(
    "text", ["x=missing.npy", "missing.npz", "x=bad.npy", "bad.npz", "x.npy", "x=pair.npz", "one.npz"]
)
def test_input_files_that_cannot_be_read(cli: Cli, model: str, text: str) -> None:
    Path("bad.npy").write_bytes(b"nonsense")
    Path("bad.npz").write_bytes(b"PK\x03\x04 nonsense")
    np.savez("pair.npz", x=np.zeros(3))
    np.save("one.npy", np.zeros(3))
    Path("one.npy").rename("one.npz")
    code, error = error_of(cli("run", model, "--inputs", text, "--json"))
    assert code == 2
    assert text in error["message"]


def test_a_dimension_no_input_has(cli: Cli, model: str) -> None:
    code, error = error_of(cli("run", model, "--dim", "columns=2", "--json"))
    assert code == 2
    assert "there are: rows" in error["message"]


def test_a_kernel_that_raises(cli: Cli, tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], "pick")]
    table = helper.make_tensor("table", FLOAT, [1], [1.0])
    model = write(tmp_path / "pick.onnx", nodes, [("i", TensorProto.INT64, [1])], [("y", FLOAT, [1])], [table])
    np.save("i.npy", np.array([7]))
    code, error = error_of(cli("run", model, "--providers", "cpu", "--inputs", "i=i.npy", "--json"))
    assert (code, error["type"]) == (1, "InvalidArgument")  # an index that does not exist is the caller's
    assert "pick" in error["message"]
    assert "onnxplug explain" in error["hint"]


# inputs


def generated(type_: Any, name: str = "x", **dims: int) -> Any:
    (made,) = make_inputs([NodeArg(name, type_)], {}, dims, 0)
    assert made.source == "generated"
    return made.value


@pytest.mark.parametrize(
    "element",
    [
        "float", "float16", "double", "bfloat16", "int64", "int32", "int8", "uint8", "int4", "bool", "complex64",
        "float8e4m3fn", "float8e8m0", "string",
    ],
)  # fmt: skip
def test_every_element_type_is_generated(element: str) -> None:
    type_ = TensorType(element, ("N", 3, None))
    value = generated(type_, **{"N": 5, "x.2": 2})
    assert value.shape == (5, 3, 2)
    assert value.dtype == type_.dtype
    if element == "string":
        assert all(isinstance(text, str) for text in value.ravel())
    if element == "int64":
        assert set(value.ravel()) == {0, 1}


def test_masks_are_ones_and_unknown_ranks_have_one_dimension() -> None:
    assert generated(TensorType("int64", (4,)), "attention_mask").tolist() == [1, 1, 1, 1]
    assert generated(TensorType("float", None)).shape == (1,)
    assert generated(TensorType("float", ())).shape == ()


def test_sequences_optionals_and_maps() -> None:
    (item,) = generated(SequenceType(TensorType("float", (2,))))
    assert item.shape == (2,)
    assert make_inputs([NodeArg("o", OptionalType(TensorType("float", (2,))))], {}, {}, 0) == []
    with pytest.raises(
        Exception, match=r"no value can be generated for input 'x' of type map\(string,tensor\(float\)\)"
    ):
        generated(MapType("string", TensorType("float")))


def test_generated_inputs_take_sizes_from_given_ones() -> None:
    declared = [NodeArg("a", TensorType("float", ("N", 2))), NodeArg("b", TensorType("float", ("N",)))]
    _, b = make_inputs(declared, {"a": np.zeros((7, 2), np.float32)}, {}, 0)
    assert b.value.shape == (7,)


def test_types_that_files_do_not_have_pass_through_them(tmp_path: Path) -> None:
    halves = np.array([0.5, -2], ml_dtypes.bfloat16)
    texts = np.array(["a", "bc"], object)
    path = str(tmp_path / "all.npz")
    values = [halves, np.array([-8, 7], ml_dtypes.int4), texts, [np.ones(2)], np.float32(3), None]
    save(path, ["file", "a/b", "text", "list", "scalar", "absent"], values)
    arrays = read_files([path])
    assert sorted(arrays) == ["a/b", "file", "list.0", "scalar", "text"]
    assert arrays["file"].dtype == np.float32
    assert arrays["text"].tolist() == ["a", "bc"]
    (back,) = make_inputs([NodeArg("file", TensorType("bfloat16", (2,)))], {"file": arrays["file"]}, {}, 0)
    assert back.value.dtype == halves.dtype
    np.testing.assert_array_equal(back.value, halves)
    with pytest.raises(Exception, match="a dict, which"):
        save(path, ["m"], [{"a": 1}])


def test_a_folder_with_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    path = str(tmp_path / "a=b" / "in.npz")
    np.savez(path, x=np.zeros(2))
    assert list(read_files([path])) == ["x"]


# outputs


def test_statistics() -> None:
    told = describe("y", "", np.array([1, np.nan, 3, np.inf], np.float16))
    assert (told["min"], told["mean"], told["max"], told["non_finite"]) == (1.0, 2.0, 3.0, 2)
    assert describe("y", "", np.zeros((0, 2), np.int64))["min"] is None
    assert describe("y", "", np.array([True, False]))["mean"] == 0.5
    assert describe("y", "", np.array(["a"], object))["sample"] == ["a"]
    assert describe("y", "", np.array([1 + 2j]))["non_finite"] == 0
    assert describe("y", "", np.array([2**53 + 1]))["max"] == 2**53 + 1
    assert describe("y", "", [np.zeros(2)])["items"][0]["name"] == "y.0"
    assert describe("y", "", {"a": 1.0})["length"] == 1
    assert describe("y", "", None)["value"] is None
