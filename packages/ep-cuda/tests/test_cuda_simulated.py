"""The provider on a simulated GPU (``driverless.simulation``): CuPy and the provider as they are, what NVRTC makes of their kernels run on
the processor, work done as late as may be. cuBLAS, cuDNN, Thrust and CUB are NumPy's and C's here: of them arguments and order are seen."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from driverless import cublas
from nvrtc_compile import MISSING, _is_there
from test_cuda_driverless import LIBRARIES, ROOT, TESTS, UNRECORDED, names, operator, others, run, troubles

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="capability: CuPy (cupy is not installed)"),
    pytest.mark.skipif(
        importlib.util.find_spec("cudnn") is None, reason="capability: cuDNN's frontend (not installed)"
    ),
    pytest.mark.skipif(not _is_there(), reason=MISSING),
    pytest.mark.skipif(cublas.compiler() is None, reason="capability: a C compiler (cc and nm are not installed)"),
]


@pytest.mark.parametrize("order", ["0", "1"])
def test_what_a_gpu_has_to_show_is_shown_by_a_simulated_one(order: str, tmp_path: Path) -> None:
    """In both orders of what runs at the same time: blocks, warps and threads between barriers; in one of them a session's stream
    for copies is ahead of the other."""
    paths = [TESTS, ROOT / "tests", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)), "ONNXPLUG_SIMULATED": str(tmp_path), "ONNXPLUG_SIMULATED_ORDER": order,
    }  # fmt: skip
    tests = str(TESTS / "test_cuda_hardware.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "driverless.simulation", tests]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 300 and "skipped" not in done.stdout


KIT = (
    "test_check or errors_are_raised or interrupts or close_is_quiet or odd_graphs or io_binding or dynamic_shapes or misfits "
    "or (test_trial and (GatherND or ScatterND or ReverseSequence or GroupQueryAttention))"
)
"""What of the conformance kit takes a minute or two."""


def test_a_core_of_the_conformance_kit_holds(tmp_path: Path) -> None:
    paths = [TESTS, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "ONNXPLUG_SIMULATED": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "driverless.simulation"]
    command += [
        "--pyargs",
        "onnxplug_testkit",
        "--ep",
        "cuda",
        "--level",
        "robust",
        "--profile",
        "transformer",
        "-k",
        KIT,
    ]
    command += ["--waivers", str(TESTS.parent / "conformance.toml"), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert "FAILED" not in done.stdout and "ERROR" not in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 250


def test_a_first_look_at_a_gpu_shows_the_right_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    smokes = importlib.import_module("gpu_smoke").SMOKES
    rows = run(tmp_path, [f"smoke {name}" for name in smokes if "by cuFFT" not in name], "simulated")
    assert troubles(rows) == {} and all(row["others"] == [] for row in rows.values())


def test_what_is_measured_on_a_gpu_runs_on_small_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    parts = importlib.import_module("gpu_parts").PARTS
    items = [f"part {name} {item}" for name in ("zoo", "speed") for item in parts[name].items() if "onnx's" not in item]
    rows = run(tmp_path, items, "simulated")
    assert len(rows) > 20 and troubles(rows) == {}


def test_every_operator_computes_what_the_cpu_provider_does(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"node {name}" for name in names()], "simulated")
    assert troubles(rows) == {}


LOUD = frozenset({"SparseAttention own_sparseattention_1_scale (float) (int32)"})
"""Scores of tens, whose roundings the exponential multiplies."""
READ = frozenset({"DynamicQuantizeLSTM", "GroupQueryAttention", "QLinearConv", "RemovePadding"})
"""Operators some of whose forms read lengths, sums or zero points on the host."""


def contrib() -> list[str]:
    """Nodes of operators that ONNX does not define, in every type."""
    pytest.importorskip("onnxplug_testkit", reason="capability: onnxplug-testkit")
    from driverless.structures import examples

    return [name for name in examples() if name.split()[0] not in LIBRARIES and name not in LOUD]


def test_every_operator_of_onnxruntimes_computes_what_the_cpu_provider_does(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"contrib {name}" for name in contrib()], "simulated")
    assert len(rows) > 600 and troubles(rows) == {}
    assert {name: row["others"] for name, row in rows.items() if row["others"]} == {}


def test_recordings_of_onnxruntimes_operators_compute_what_the_cpu_provider_does(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"captured {name}" for name in contrib()], "simulated")
    found = troubles(rows)
    assert {name: said for name, said in found.items() if name.split()[0] not in READ} == {}
    assert all("cannot be recorded" in said[-1] for said in found.values())


def test_recordings_of_every_operator_compute_what_the_cpu_provider_does(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"recorded {name}" for name in names()], "simulated")
    assert {n: said for n, said in troubles(rows).items() if operator(n) not in UNRECORDED} == {}


MINUTES = pytest.mark.skipif(
    os.environ.get("ONNXPLUG_OPERATORS", "core") == "core", reason="capability: minutes (ONNXPLUG_OPERATORS=all)"
)


@MINUTES
def test_every_type_of_every_operator_computes_what_the_cpu_provider_does(tmp_path: Path) -> None:
    assert troubles(run(tmp_path, [f"node {name}" for name in others()], "simulated")) == {}


@MINUTES
def test_the_backend_data_is_right_and_mostly_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    parts = importlib.import_module("gpu_parts")
    cases = [
        name for name in parts.PARTS["score"].items() if not name.startswith(("test_dft", "test_stft", "test_det_"))
    ]
    rows = run(tmp_path, [f"part score {name}" for name in cases], "simulated")
    assert len(rows) > 2000 and troubles(rows) == {}
    assert sum(row["on_first"] for row in rows.values()) >= parts.LEAST["on_first"]
