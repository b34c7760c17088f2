"""What the general inference, which needs onnx, found for the plans of an earlier process is not asked for again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[n, 2] x, int64[m, 2] places, float[m, 2] news) => (float[n, 2] y, int64[2] size) {
    scattered = ScatterElements <axis = 0> (x, places, news)
    y = Relu(scattered)
    size = Shape(y)
}
"""
RUNS = """
import json, sys, numpy, onnxplug, onnxplug.session.recall as recall
recall._SETTLED = 0
options = onnxplug.SessionOptions()
options.graph_optimization_level = onnxplug.GraphOptimizationLevel(int(sys.argv[2]))
session = onnxplug.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
results = []
for rows in map(int, sys.argv[3:]):
    feeds = {
        "x": numpy.zeros((rows, 2), "f"), "places": numpy.array([[0, rows - 1]]), "news": numpy.array([[1.0, -1.0]], "f"),
    }
    results.append([result.tolist() for result in session.run(None, feeds)])
print(json.dumps(["onnx" in sys.modules, results]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path


def runs(folder: Path, *rows: int, level: int = 99, env: dict[str, str] | None = None) -> bool:
    """Whether a process imported onnx in which a session of the model had so many rows in its runs, and the results."""
    command = [sys.executable, "-c", RUNS, str(folder / "model.onnx"), str(level), *map(str, rows)]
    own = {k: v for k, v in os.environ.items() if k != "ONNXPLUG_CACHE"}
    environment = {**own, "ONNXPLUG_CACHE_DIR": str(folder / "cache"), **(env or {})}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert found.returncode == 0, found.stderr
    imported, results = json.loads(found.stdout)
    assert results == [expected(each) for each in rows]
    return bool(imported)


def expected(rows: int) -> list[Any]:
    y = [[0.0, 0.0] for _ in range(rows)]
    y[0][0] = 1.0
    return [y, [rows, 2]]


def test_a_later_process_asks_for_what_no_earlier_one_did(folder: Path) -> None:
    assert runs(folder, 3)
    assert not runs(folder, 3)
    assert runs(folder, 3, 4)
    assert not runs(folder, 4, 3)


def test_another_graph_has_other_answers(folder: Path) -> None:
    assert runs(folder, 3)
    assert runs(folder, 3, level=0)
    assert len(list((folder / "cache" / "inferences").glob("*.inferences"))) == 2


def test_switched_off_nothing_is_kept(folder: Path) -> None:
    off = {"ONNXPLUG_CACHE": "0"}
    assert runs(folder, 3, env=off)
    assert runs(folder, 3, env=off)
