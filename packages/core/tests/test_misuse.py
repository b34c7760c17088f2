"""Wrong types and values, one by one: the exceptions are of onnxruntime's classes."""

from __future__ import annotations

import importlib
import io
import pathlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import parser

CPU = ["CPUExecutionProvider"]
MISUSES = [
    line
    for line in pathlib.Path(__file__).with_name("misuses.txt").read_text().splitlines()
    if not line.startswith("#")
]
MODELS = {
    "ADD": "g (float[N, 2] X) => (float[N, 2] Y) <float[2] W = {1, 2}> { Y = Add (X, W) }",
    "TWO_OUTPUTS": "g (float[N, 2] A, float[N, 2] B) => (float[N, 2] S, float[N, 2] P) { S = Add (A, B) P = Mul (A, B) }",
    "STRINGS": "g (string[N] X) => (string[N] Y) { Y = Identity (X) }",
    "BOOLEANS": "g (bool[N] X) => (bool[N] Y) { Y = Not (X) }",
    "INTEGERS": "g (int64[N] X) => (int64[N] Y) { Y = Add (X, X) }",
    "RESHAPE": "g (float[P, Q] X, int64[R] S) => (Y) { Y = Reshape (X, S) }",
    "GATHER": "g (float[3] X, int64[K] I) => (float[K] Y) { Y = Gather (X, I) }",
}


@cache
def names(package: str) -> dict[str, Any]:
    """What the expressions speak of, for one of the two packages."""
    ort = importlib.import_module(package)
    matrix = np.ones((3, 2), np.float32)
    models = {
        name: parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}').SerializeToString()
        for name, text in MODELS.items()
    }

    @cache
    def session(model: bytes = models["ADD"]) -> Any:
        return ort.InferenceSession(model, providers=CPU)

    return {
        **models,
        "ort": ort,
        "state": importlib.import_module(f"{package}.capi.onnxruntime_pybind11_state"),
        "session": session,
        "binding": lambda made=None: (made or session()).io_binding(),
        "value": lambda array=matrix: ort.OrtValue.ortvalue_from_numpy(array),
        "matrix": matrix,
        "vector": matrix[:, 0].copy(),
        "np": np,
        "io": io,
        "pathlib": pathlib,
    }


def raised(package: str, misuse: str) -> str:
    """The class of the exception that an expression raises."""
    try:
        eval(misuse, dict(names(package)))
    except Exception as error:
        return type(error).__name__
    return "nothing"


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("misuse", MISUSES)
def test_class_of_the_exception(misuse: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime").set_default_logger_severity(4)
    (tmp_path / "garbage.onnx").write_text("hello")
    monkeypatch.chdir(tmp_path)
    theirs = raised("onnxruntime", misuse)
    assert theirs != "nothing" and raised("onnxplug", misuse) == theirs
