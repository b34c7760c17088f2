"""Fixtures of the console program's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_models import ACME, FLOAT, Acme, Answer, Cli, write
from onnx import TensorProto, helper

from onnxplug.cli import main
from onnxplug.contract import (
    CONTRACT_VERSION,
    ProviderSpec,
)
from onnxplug.plugins import registry
from onnxplug.session import environment


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
    """If with one node in each branch, which is not known to be small."""

    def branch(op: str) -> Any:
        node = helper.make_node(op, ["x"], [op.lower()], op.lower() + "_node")
        return helper.make_graph([node], op, [], [helper.make_tensor_value_info(op.lower(), FLOAT, ["N"])])

    choice = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch("Abs"), else_branch=branch("Neg"))
    inputs = [("c", TensorProto.BOOL, []), ("x", FLOAT, ["N"])]
    return write(tmp_path / "nested.onnx", [choice], inputs, [("y", FLOAT, ["N"])])
