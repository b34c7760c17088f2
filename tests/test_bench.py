"""The benchmark runs to its end, and its results can be drawn."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("rich")
pytest.importorskip("onnxruntime")
pytest.importorskip("llvmlite")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("results")
    command = [sys.executable, str(ROOT / "benchmarks" / "bench.py"), "--quick", "--results", str(folder)]
    done = subprocess.run([*command, "--threads", "1"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())


def test_every_question_has_an_answer(found: dict) -> None:
    asked = {
        "create", "run", "create, cold", "create, warm", "import and create, warm", "first run, warm", "run, own process", "peak memory",
    }  # fmt: skip
    models = {row["model"] for row in found["rows"]}
    assert models == {"identity", "perceptron"}
    for model in models:
        rows = {row["what"]: row for row in found["rows"] if row["model"] == model}
        assert set(rows) == asked
        for row in rows.values():
            values = row.get("ms") or row["mb"]
            assert {"onnxplug", "onnxruntime"} <= set(values) and min(values.values()) > 0
    missing = importlib.util.find_spec("openvino") is None
    assert ("openvino" in found["left_out"]) == missing
    shares = next(r for r in found["rows"] if r["what"] == "run" and r["model"] == "perceptron")["roofline"]
    assert shares["gflop"] == pytest.approx(2 * (32 * 64 + 64 * 64 + 64 * 4) / 1e9, abs=1e-6)
    assert shares["of_roofline"] > 0 and found["peaks"]["gflops"] > 0


def test_results_are_drawn(found: dict) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import bench_picture
    finally:
        sys.path.remove(str(ROOT / "tools"))
    drawn = ElementTree.fromstring(bench_picture.picture(found))
    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"identity", "perceptron", "than onnxruntime"} <= texts
    page = bench_picture.page(found)
    assert "| perceptron |" in page and "benchmarks.svg" in page


def test_a_folder_of_models_with_inputs_from_their_declared_shapes(tmp_path: Path) -> None:
    from onnx import parser, save

    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (int64[batch, length] tokens, float[1, 1] x) => (float[batch, length] y) { c = Cast<to=1>(tokens) y = Mul(c, x) }"""
    model = parser.parse_model(text)
    save(model, tmp_path / "tokens.onnx")
    command = [sys.executable, str(ROOT / "benchmarks" / "bench.py"), str(tmp_path), "--quick", "--dim", "length=5"]
    done = subprocess.run([*command, "--results", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    assert {row["model"] for row in json.loads(path.read_text())["rows"]} == {"tokens"}


def test_single_operators_are_timed(tmp_path: Path) -> None:
    """A few cases: the lowest ratio comes first, with what it is of; results agree; what onnxruntime cannot run (bfloat16) is named."""
    command = [sys.executable, str(ROOT / "benchmarks" / "operators.py"), "--results", str(tmp_path), "--threads", "1"]
    given = [
        "--match",
        r"^(Concat i64|RandomNormalLike|Cast f32\[256x256\] to=16)",
        "--seconds",
        "0.01",
        "--rounds",
        "1",
    ]
    done = subprocess.run([*command, *given], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    ratios = [row["ratio"] for row in found["rows"]]
    assert ratios == sorted(ratios) and found["summary"]["1"]["cases"] == len(ratios)
    assert {"Concat", "RandomNormalLike"} <= {row["case"].split()[0] for row in found["rows"]}
    assert all(min(row["us"].values()) > 0 and "differs" not in row for row in found["rows"])
    assert len(ratios) + len(found["left_out"]) == 4


def test_cases_of_operators_have_names_of_their_own() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from operator_cases import CASES
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) > 500
    case = CASES[0]
    assert case.model() == case.model() and all((case.feeds()[name] == x).all() for name, x in case.feeds().items())
