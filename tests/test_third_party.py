"""A third party's provider, a distribution of its own, is built, installed and found, and shares a session with two others.

``thirdparty/acme`` runs Relu and Add in a memory of its own and declines Mul with a reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
ACME, REFERENCE, CPU = "AcmeExecutionProvider", "ReferenceExecutionProvider", "CPUExecutionProvider"
EXPECTED = {
    "positive": ACME,
    "square": REFERENCE,  # Acme declines
    "widen": REFERENCE,
    "erf": CPU,  # onnx.reference has no double Erf
    "narrow": REFERENCE,
    "sum": ACME,
}
CROSSINGS = {
    ("a", "acme:0", "sim:0"),  # once, though square reads it twice
    ("c", "sim:0", "cpu:0"),
    ("d", "cpu:0", "sim:0"),
    ("e", "sim:0", "acme:0"),
}
"""Every value that is made in one memory and read in another."""

PROGRAM = f"""
import gc, json, sys
import numpy as np
import onnxplug as ort
from onnx import TensorProto, helper

node, info = helper.make_node, helper.make_tensor_value_info
graph = helper.make_graph([
    node("Relu", ["x"], ["a"], "positive"),
    node("Mul", ["a", "a"], ["b"], "square"),
    node("Cast", ["b"], ["c"], "widen", to=TensorProto.DOUBLE),
    node("Erf", ["c"], ["d"], "erf"),
    node("Cast", ["d"], ["e"], "narrow", to=TensorProto.FLOAT),
    node("Add", ["a", "e"], ["y"], "sum"),
], "mixed", [info("x", TensorProto.FLOAT, ["n", 4])], [info("y", TensorProto.FLOAT, ["n", 4])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = ort.InferenceSession(model.SerializeToString(), providers={[ACME, REFERENCE, CPU]!r})
from onnxplug_acme import memory
x = np.array(json.load(sys.stdin), np.float32)
memory.copied.clear()
first = session.run(None, {{"x": x}})[0]
copied = list(memory.copied)
second = session.run(None, {{"x": x[:1]}})[0]
answer = dict(
    available=ort.get_available_providers(), providers=session.get_providers(), placement=session.placement(),
    explained=session.explain().to_dict(), first=first.tolist(), second=second.tolist(), copied=copied,
)
del session
gc.collect()
print(json.dumps(answer | dict(live=len(memory.live))))
"""
X = [[-1.0, 0.0, 0.5, 2.0], [0.25, -3.0, 1.5, 0.125]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Acme's wheel installed."""
    folder = tmp_path_factory.mktemp("acme")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels, source = folder / "wheels", HERE / "thirdparty" / "acme"
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def run(site: Path, *command: str, **given: Any) -> subprocess.CompletedProcess[str]:
    """A process that sees Acme's installation."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, **given)


@pytest.fixture(scope="module")
def answer(site: Path) -> dict[str, Any]:
    """What a session with all three providers tells of itself, and its results."""
    done = run(site, sys.executable, "-c", PROGRAM, input=json.dumps(X))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_it_is_found(answer: dict[str, Any]) -> None:
    assert {ACME, REFERENCE, CPU} <= set(answer["available"])
    assert answer["providers"] == [ACME, REFERENCE, CPU]


def test_results_are_right(answer: dict[str, Any]) -> None:
    from math import erf

    x = np.array(X, np.float32)
    a = np.maximum(x, 0)
    expected = a + np.vectorize(erf)((a * a).astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(answer["first"], expected, rtol=1e-6)
    np.testing.assert_allclose(answer["second"], expected[:1], rtol=1e-6)


def test_every_node_is_where_it_should_be(answer: dict[str, Any]) -> None:
    assert answer["placement"] == EXPECTED


def test_the_refusal_is_reported(answer: dict[str, Any]) -> None:
    (node,) = (n for n in answer["explained"]["nodes"] if n["name"] == "square")
    assert node["reasons"][ACME] == "the Anvil 1 has no multiplier"


def test_every_copy_is_accounted_for(answer: dict[str, Any]) -> None:
    explained = answer["explained"]
    copies, edges = ([(c["value"], c["from"], c["to"]) for c in explained[kind]] for kind in ("copies", "edges"))
    assert len(copies) == len(CROSSINGS)
    assert set(copies) == CROSSINGS
    assert edges == [("x", "cpu:0", "acme:0"), ("y", "acme:0", "cpu:0")]


def test_the_device_saw_no_other_copies(answer: dict[str, Any]) -> None:
    nbytes = 4 * 2 * 4
    directions = sorted((source, destination) for source, destination, _ in answer["copied"])
    # x in, a out to the host on its way to the simulated memory, e in likewise, y out
    assert directions == sorted(2 * [("cpu:0", "acme:0")] + 2 * [("acme:0", "cpu:0")])
    assert {size for _, _, size in answer["copied"]} == {nbytes}


def test_no_memory_is_left_behind(answer: dict[str, Any]) -> None:
    assert answer["live"] == 0


def test_the_command_line_lists_it(site: Path) -> None:
    done = run(site, str(Path(sys.executable).with_name("onnxplug")), "providers", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = (r for r in json.loads(done.stdout)["providers"] if r["name"] == ACME)
    assert (row["state"], row["distribution"], row["version"]) == ("available", "onnxplug-acme", "1.2.3")
