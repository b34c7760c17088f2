"""The console program: exit codes, JSON, text, inputs and outputs, in process and through ``python -m onnxplug``."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxplug import __version__
from onnxplug.cli import main, progress
from onnxplug.cli.inputs import make_inputs, read_files
from onnxplug.cli.outputs import describe, save
from onnxplug.contract import (
    CONTRACT_VERSION,
    Claim,
    CompiledRegion,
    Decline,
    DeviceInfo,
    ExecutionProvider,
    KernelRegistry,
    MapType,
    OptionalType,
    ProviderSpec,
    Region,
    SequenceType,
    TensorType,
    Unavailable,
    kernel,
)
from onnxplug.plugins import registry
from onnxplug.session import environment
from onnxplug.session.model_io import NodeArg

ACME, CPU, REFERENCE = "AcmeExecutionProvider", "CPUExecutionProvider", "ReferenceExecutionProvider"
FLOAT = TensorProto.FLOAT
Answer = tuple[int, str, str]
Cli = Callable[..., Answer]


@kernel("Relu", since=14)
def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


class Acme(ExecutionProvider):
    """Takes Relu, declines Add."""

    def get_kernel_registry(self) -> KernelRegistry:
        kernels = KernelRegistry()
        kernels.add(relu)
        return kernels

    def get_capability(self, graph: Any, kernels: Any) -> Iterator[Claim | Decline]:
        for node in graph.nodes:
            if node.op_type == "Relu":
                yield Claim([node])
            elif node.op_type == "Add":
                yield Decline(node, "Acme cannot add")


class Fusing(ExecutionProvider):
    """Takes everything as one region and doubles its input."""

    def get_capability(self, graph: Any, kernels: Any) -> Iterator[Claim]:
        yield Claim(graph.nodes, fused="whole")

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [Doubled() for _ in regions]


class Doubled(CompiledRegion):
    def __call__(self, context: Any, *inputs: np.ndarray) -> list[np.ndarray]:
        return [2 * inputs[0]]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [n for n in os.environ if n.startswith("ONNXPLUG_") or n in ("NO_COLOR", "FORCE_COLOR")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "_seed", None)
    registry.refresh()
    yield
    monkeypatch.undo()
    registry.refresh()


@pytest.fixture
def offer() -> Iterator[Callable[..., None]]:
    names: list[str] = []

    def add(name: str = ACME, **fields: Any) -> None:
        defaults = {"name": name, "contract": CONTRACT_VERSION, "create": lambda options, context: Acme()}
        registry.register_provider(ProviderSpec(**{**defaults, **fields}))
        names.append(name)

    yield add
    for name in names:
        registry.unregister_provider(name)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(arguments)
        text = capsys.readouterr()
        return code, text.out, text.err

    return call


def write(
    path: Path,
    nodes: list[Any],
    inputs: list[tuple[str, int, Any]],
    outputs: list[tuple[str, int, Any]],
    constants: list[Any] = (),  # type: ignore[assignment]
) -> str:
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(constants),
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """y = relu(x + x), rows symbolic."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"], "plus"),
        helper.make_node("Relu", ["twice"], ["y"], "positive"),
    ]
    return write(tmp_path / "small.onnx", nodes, [("x", FLOAT, ["rows", 3])], [("y", FLOAT, ["rows", 3])])


@pytest.fixture
def nested(tmp_path: Path) -> str:
    """If with one node in each branch."""

    def branch(op: str) -> Any:
        node = helper.make_node(op, ["x"], [op.lower()], op.lower() + "_node")
        return helper.make_graph([node], op, [], [helper.make_tensor_value_info(op.lower(), FLOAT, [2])])

    choice = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch("Abs"), else_branch=branch("Neg"))
    inputs = [("c", TensorProto.BOOL, []), ("x", FLOAT, [2])]
    return write(tmp_path / "nested.onnx", [choice], inputs, [("y", FLOAT, [2])])


def as_json(answer: Answer) -> tuple[int, dict[str, Any]]:
    code, out, _ = answer
    return code, json.loads(out)


def error_of(answer: Answer) -> tuple[int, dict[str, str]]:
    """Exit code and error of a ``--json`` call that failed."""
    code, document = as_json(answer)
    assert list(document) == ["error"]
    assert list(document["error"]) == ["type", "message", "hint"]
    assert all(document["error"].values())
    return code, document["error"]


# the front


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version") == (0, f"onnxplug {__version__}\n", "")
    code, out, _ = cli("--help")
    assert code == 0
    assert "exit codes:" in out
    assert all(command in out for command in ("providers", "doctor", "explain", "run"))
    code, out, _ = cli("run", "--help")
    assert code == 0
    assert "exit codes:" in out


def test_the_front_imports_nothing_heavy() -> None:
    script = (
        "import sys; from onnxplug.cli import main; main(['--help'])\n"
        "heavy = {'numpy', 'onnx', 'rich', 'pluggy', 'onnxplug.session', 'onnxplug.contract'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["walk"],
        ["run"],
        ["explain", "m.onnx", "--what"],
        ["run", "m.onnx", "--repeat", "0"],
        ["run", "m.onnx", "--warmup", "-1"],
        ["run", "m.onnx", "--seed", "-1"],
        ["run", "m.onnx", "--dim", "N"],
        ["run", "m.onnx", "--providers", "cpu,,reference"],
        ["run", "m.onnx", "--option", "threads=4"],
    ],
)
def test_usage_errors(cli: Cli, arguments: list[str]) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("onnxplug: UsageError: ")
    assert "--help" in err.splitlines()[1]
    code, error = error_of(cli(*arguments, "--json"))
    assert (code, error["type"]) == (2, "UsageError")


def test_an_error_is_two_lines_without_traceback(cli: Cli) -> None:
    code, out, err = cli("run", "missing.onnx")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first.startswith("onnxplug: NoSuchFile: ")
    assert "missing.onnx" in first
    assert second.startswith("  next: ")
    assert "Traceback" in cli("run", "missing.onnx", "--traceback")[2]


def test_names_cannot_steer_the_terminal(cli: Cli) -> None:
    assert "\x1b" not in cli("run", "\x1b[2Jmissing.onnx")[2]


def test_interruption(cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxplug.session.session import InferenceSession

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InferenceSession, "run", interrupt)
    code, out, err = cli("run", model)
    assert (code, out) == (130, "")
    assert "interrupted" in err


def test_what_plugins_print_stays_out_of_the_json(cli: Cli, offer: Callable[..., None]) -> None:
    offer(devices=lambda: print("hello") or [])
    code, out, err = cli("providers", "--json")
    assert code == 0
    json.loads(out)
    assert "hello" in err


# providers


def test_providers_json(cli: Cli, offer: Callable[..., None]) -> None:
    offer(devices=lambda: [DeviceInfo("NPU", 3, "Acme", "A1", {"memory": "2 GB"})], vendor="Acme", device_kind="acme")
    code, document = as_json(cli("providers", "--json"))
    assert code == 0
    by_short = {p["short"]: p for p in document["providers"]}
    assert by_short["cpu"]["name"] == CPU
    for provider in document["providers"]:
        assert list(provider) == [
            "name", "short", "state", "detail", "error", "fix", "distribution", "version", "entry_point", "vendor",
            "device_kind", "contract", "devices", "devices_error", "options",
        ]  # fmt: skip
    assert by_short["acme"]["devices"] == [
        {"type": "NPU", "id": 3, "vendor": "Acme", "name": "A1", "metadata": {"memory": "2 GB"}}
    ]
    options = {o["name"]: o for o in by_short["reference"]["options"]}
    assert list(options["memory"]) == ["name", "type", "default", "choices", "doc"]
    assert options["memory"]["type"] == "str"
    assert options["memory"]["default"] == "simulated"
    assert options["memory"]["choices"] == ["simulated", "host"]
    assert options["float64"]["default"] is False
    assert all(o["doc"] for o in options.values())


def test_providers_text(cli: Cli, offer: Callable[..., None]) -> None:
    offer(check=lambda: Unavailable("no Acme card", "buy one"))
    code, out, _ = cli("providers")
    assert code == 0
    assert f"{ACME} (acme)  unavailable  registered in process" in out
    assert "why: no Acme card" in out
    assert "fix: buy one" in out
    assert f"{CPU} (cpu)  available" in out
    assert "arena_extend_strategy" in out


def test_a_provider_that_cannot_list_its_devices_harms_no_other(cli: Cli, offer: Callable[..., None]) -> None:
    def devices() -> list[DeviceInfo]:
        raise OSError("driver asleep")

    offer(devices=devices)
    _, document = as_json(cli("providers", "--json"))
    errors = {p["name"]: p["devices_error"] for p in document["providers"]}
    assert errors[ACME] == "OSError: driver asleep"
    assert errors[CPU] is None
    assert "driver asleep" in cli("providers")[1]


def test_no_provider_at_all(cli: Cli, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("ONNXPLUG_AUTOLOAD", "0")
    registry.refresh()
    assert as_json(cli("providers", "--json")) == (0, {"providers": []})
    assert "pip install onnxplug-ep-cpu" in cli("providers")[1]
    assert cli("doctor")[0] == 1
    assert error_of(cli("explain", model, "--json"))[0] == 3


# doctor


def test_doctor_json(cli: Cli) -> None:
    code, report = as_json(cli("doctor", "--json"))
    assert code == 0
    assert list(report) == ["healthy", "problems", "notes", "plugins", "environment", "versions", "system"]
    assert report["healthy"] is True
    assert report["problems"] == report["notes"] == []
    assert report["environment"] == {}
    assert {"python", "onnxplug", "contract", "numpy", "onnx", "pluggy"} <= set(report["versions"])
    assert report["versions"]["numpy"] == np.__version__
    assert report["system"]["cpu"]
    record = next(p for p in report["plugins"] if p["provider"] == CPU)
    assert record["state"] == "available"
    assert record["stage"] == "check"


def test_doctor_names_what_is_broken(cli: Cli, offer: Callable[..., None]) -> None:
    def check() -> Unavailable:
        raise OSError("libacme.so is missing")

    offer(check=check)
    code, report = as_json(cli("doctor", "--json"))
    assert code == 1
    assert not report["healthy"]
    assert len(report["problems"]) == 1
    record = next(p for p in report["plugins"] if p["provider"] == ACME)
    assert (record["state"], record["stage"], record["error"]) == ("broken", "check", "OSError: libacme.so is missing")
    assert record["fix"]
    code, out, _ = cli("doctor")
    assert code == 1
    assert "1 problem" in out
    assert "libacme.so is missing" in out
    assert "  fix: " in out


def test_an_absent_device_is_no_defect(cli: Cli, offer: Callable[..., None]) -> None:
    offer(check=lambda: Unavailable("no Acme card"))
    code, out, _ = cli("doctor")
    assert code == 0
    assert "no Acme card" in out


def test_doctor_shows_switches(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_PROVIDERS", "cpu,acme")
    monkeypatch.setenv("ONNXPLUG_PROVIDER", "cpu")
    registry.refresh()
    code, report = as_json(cli("doctor", "--json"))
    assert code == 0
    assert report["environment"] == {"ONNXPLUG_PROVIDER": "cpu", "ONNXPLUG_PROVIDERS": "cpu,acme"}
    assert len(report["notes"]) == 2
    out = cli("doctor")[1]
    assert "ONNXPLUG_PROVIDER is not a switch" in out
    assert "names acme" in out


# explain


def test_explain_json(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer()
    code, document = as_json(cli("explain", model, "--providers", "acme,cpu", "--json"))
    assert code == 0
    assert document["summary"] == {
        "nodes": 2, "share": {ACME: 0.5, CPU: 0.5}, "copies": 0, "edges": 0, "removed": 0, "inlined": 0, "regions": 0,
    }  # fmt: skip
    assert [(p["name"], p["nodes"]) for p in document["providers"]] == [(ACME, 1), (CPU, 1)]
    plus, positive = document["nodes"]
    assert (plus["name"], plus["op_type"], plus["provider"]) == ("plus", "Add", CPU)
    assert plus["reasons"][ACME] == "Acme cannot add"
    assert positive["provider"] == ACME
    assert CPU in positive["reasons"]


def test_explain_text(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer()
    code, out, _ = cli("explain", model, "--providers", "acme,cpu")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith(f"{model}\n2 nodes\n")
    assert "#" * 30 + "=" * 30 in out
    assert ["1", "Relu-14", ACME] in lines
    assert ["1", "Add-14", CPU, f"{ACME}:", "Acme", "cannot", "add"] in lines
    assert "which has priority" not in out
    full = cli("explain", model, "--providers", "acme,cpu", "--all")[1]
    assert "plus" in full
    assert "which has priority" in full


def test_explain_groups_alike_nodes(cli: Cli, tmp_path: Path) -> None:
    names = ["x", *(f"v{i}" for i in range(40)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    model = write(tmp_path / "chain.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    out = cli("explain", model)[1]
    assert ["41", "Neg-13", CPU] in [line.split() for line in out.splitlines()]
    assert len(out.splitlines()) < 15


def test_explain_shows_copies_and_who_was_not_named(cli: Cli, model: str) -> None:
    code, out, _ = cli("explain", model, "--providers", "reference", "--option", "reference.float64=1")
    assert code == 0
    assert "2 copies at inputs and outputs" in out
    assert "float64=1" in out
    assert "not named" in out
    lines = [line.split() for line in cli("explain", model, "--providers", "reference", "--all")[1].splitlines()]
    assert ["cpu:0", "sim:0", "x"] in lines


def test_explain_nested_graphs(cli: Cli, nested: str) -> None:
    document = as_json(cli("explain", nested, "--providers", "cpu", "--json"))[1]
    assert {node["op_type"] for node in document["nodes"]} == {"Abs", "Neg"}
    assert "Abs-13" in cli("explain", nested)[1]


def test_explain_shows_regions(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer(create=lambda options, context: Fusing())
    code, document = as_json(cli("explain", model, "--providers", "acme", "--json"))
    assert code == 0
    assert document["summary"]["regions"] == 1
    (region,) = document["regions"]
    assert region["nodes"] == ["plus", "positive"]
    assert {node["region"] for node in document["nodes"]} == {region["name"]}
    out = cli("explain", model, "--providers", "acme")[1]
    assert "1 fused region" in out
    assert [region["name"], ACME, "2"] in [line.split() for line in out.splitlines()]


def test_explain_names_what_the_optimizer_removed(cli: Cli, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"], "noop"), helper.make_node("Neg", ["same"], ["y"], "neg")]
    model = write(tmp_path / "noop.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    assert "Removed by the optimizer" in cli("explain", model)[1]
    assert "noop" in cli("explain", model, "--all")[1]


@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_named_provider_that_cannot_be_used(cli: Cli, model: str, offer: Callable[..., None], command: str) -> None:
    offer(check=lambda: Unavailable("no Acme card", "buy one"))
    code, error = error_of(cli(command, model, "--providers", "acme,cpu", "--json"))
    assert (code, error["type"], error["hint"]) == (3, "ProviderLookupError", "buy one")
    assert "no Acme card" in error["message"]
    code, error = error_of(cli(command, model, "--providers", "cuda", "--json"))
    assert code == 3
    assert "CUDAExecutionProvider is not installed" in error["message"]
    assert error_of(cli(command, model, "--providers", "nonsense", "--json"))[0] == 3


def test_a_named_provider_that_cannot_be_created(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    def create(options: Any, context: Any) -> ExecutionProvider:
        raise OSError("the card is on fire")

    offer(create=create)
    code, error = error_of(cli("run", model, "--providers", "acme", "--json"))
    assert code == 3
    assert "the card is on fire" in error["message"]


@pytest.mark.parametrize("option", ["cpu.nothing=1", "reference.float64=maybe", "acme.x=1", "cuda.device_id=0"])
def test_options_are_checked(cli: Cli, model: str, option: str) -> None:
    code, error = error_of(cli("run", model, "--providers", "cpu,reference", "--option", option, "--json"))
    assert (code, error["type"]) == (2, "UsageError")


def test_a_provider_named_twice(cli: Cli, model: str) -> None:
    assert error_of(cli("run", model, "--providers", "cpu,CPUExecutionProvider", "--json"))[0] == 2


def test_models_that_cannot_be_loaded(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "noise.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    assert error_of(cli("explain", "noise.onnx", "--json"))[1]["type"] == "InvalidProtobuf"
    unknown = write(
        tmp_path / "unknown.onnx",
        [helper.make_node("Frobnicate", ["x"], ["y"])],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [1])],
    )
    code, error = error_of(cli("explain", unknown, "--json"))
    assert code == 1
    assert "Frobnicate" in error["message"]


# run


def test_run_json(cli: Cli, model: str, tmp_path: Path) -> None:
    np.save("x.npy", np.array([[1, -1, 2], [3, 4, -5]], np.float32))
    code, report = as_json(cli("run", model, "--inputs", "x=x.npy", "--providers", "cpu", "--repeat", "3", "--json"))
    assert code == 0
    assert list(report) == [
        "model", "providers", "inputs", "outputs", "output_file", "runs", "warmup", "seconds", "profile",
    ]  # fmt: skip
    assert report["providers"] == [{"name": CPU, "nodes": 2, "share": 1.0}]
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
    code, out, _ = cli("run", model, "--dim", "rows=4", "--warmup", "1", "--repeat", "2")
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
    code, report = as_json(cli("run", model, "--profile", "--warmup", "1", "--repeat", "2", "--json"))
    assert code == 0
    assert Path(report["profile"]["file"]).is_file()
    operators = report["profile"]["operators"]
    assert {o["op_type"] for o in operators} == {"Add", "Relu"}
    for operator in operators:
        assert list(operator) == ["op_type", "provider", "seconds", "calls", "share"]
        assert (operator["provider"], operator["calls"]) == (CPU, 1.0)
    assert sum(o["share"] for o in operators) == pytest.approx(1) or all(o["share"] == 0 for o in operators)
    out = cli("run", model, "--profile")[1]
    assert "Slowest operators (2 of 2, per run)" in out
    assert out.splitlines()[-1].startswith("profile: ")


def test_the_time_of_control_flow_is_that_of_its_bodies(cli: Cli, nested: str) -> None:
    report = as_json(cli("run", nested, "--profile", "--json"))[1]
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
    code, error = error_of(cli("run", model, "--inputs", "i=i.npy", "--json"))
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


# terminals


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color, green, bar in (("", True, "█"), ("1", False, "#")):
        monkeypatch.setenv("NO_COLOR", no_color)
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        assert main(["explain", model]) == 0
        assert ("\x1b[32m" in screen.getvalue()) is green
        assert bar * 60 in screen.getvalue()


def test_progress_shows_only_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for patience, hidden, shown in ((0.01, False, True), (0.01, True, False), (60, False, False)):
        monkeypatch.setattr(progress, "_PATIENCE", patience)
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        with progress.progress("waiting", 2, hidden) as advance:
            time.sleep(0.1)
            advance()
        assert ("waiting" in screen.getvalue()) is shown


# as a program


def program(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "onnxplug", *arguments], capture_output=True, text=True, **more)


def test_as_a_program(model: str) -> None:
    assert program("--version").stdout == f"onnxplug {__version__}\n"
    done = program("run", model, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [1, 3]
    assert program("run", "missing.onnx").returncode == 1
    assert program("run").returncode == 2
    assert program("run", model, "--providers", "cuda").returncode == 3


def test_a_console_that_knows_ascii_only(model: str) -> None:
    done = program("run", model, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
def test_a_reader_that_leaves_early(model: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "onnxplug", "explain", model], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_cannot_be_written(model: str) -> None:
    for unbuffered, flags in (("", []), ("1", []), ("1", ["--json"])):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "onnxplug", "explain", model, *flags]
            variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=variables)
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("onnxplug: cannot write to standard output: ")
