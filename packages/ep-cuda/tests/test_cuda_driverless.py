"""Sessions of the provider over the installed CuPy without a driver (see ``driverless``): every line of the provider and of CuPy runs,
CuPy's kernels and ours are compiled by NVRTC (but where all types are looked at), launches and products are judged, recordings are held
to what may be recorded. No number is computed: tests of values are others."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driverless import calls, cublas, kernels
from nvrtc_compile import MISSING, _is_there

from onnxplug_ep_cuda.registry import claimable

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="capability: CuPy (cupy is not installed)"),
    pytest.mark.skipif(not _is_there(), reason=MISSING),
    pytest.mark.skipif(cublas.compiler() is None, reason="capability: a C compiler (cc and nm are not installed)"),
]
TESTS = Path(__file__).parent
ROOT = TESTS.parents[2]
LIBRARIES = {"DFT": "cuFFT", "STFT": "cuFFT", "Det": "cuSOLVER", "Inverse": "cuBLAS's factors of small matrices"}
"""Operators whose library calls the driver by itself, or is not computed here."""
DATA = frozenset({"Compress", "NonMaxSuppression", "NonZero"})
"""Operators whose results have the shape that their data say: here all numbers are zeros."""
UNRECORDED = frozenset({"Compress", "Div", "Mod", "NonMaxSuppression", "NonZero"})
"""Operators that read numbers on the host: how many elements or boxes are taken, whether an integer is divided by zero."""
FOLDED = frozenset(
    {"BlackmanWindow", "Constant", "ConstantOfShape", "HammingWindow", "HannWindow", "Range", "Shape", "Size"}
)
"""Operators of which nothing is left to be recorded where what they read on the host is constant."""


def run(folder: Path, items: list[str], *further: str) -> dict[str, dict[str, Any]]:
    """The row of each item, from a process of their own. What it keeps on disk is for such processes alone: a device that computes nothing
    folds constants to nothing."""
    report, given, kept = folder / "rows", folder / "items", folder.parent / "-".join(("kept", *further))
    given.write_text(json.dumps(items))
    paths = [TESTS, ROOT / "tests", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "ONNXPLUG_CACHE_DIR": str(kept)}
    command = [sys.executable, "-m", "driverless.sessions", str(report), str(given), *further]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    assert [row["item"] for row in rows] == items, done.stdout + done.stderr
    return {row["item"].partition(" ")[2]: row for row in rows}


def troubles(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What is wrong with items."""
    found = {name: [*row.get("broken", ()), *row.get("differ", ()), row.get("error", "")] for name, row in rows.items()}
    return {name: text for name, all_said in found.items() if (text := [said for said in all_said if said])}


@functools.cache
def names() -> list[str]:
    """A cell of each claimed operator, and those of bfloat16, for which CuPy lacks functions."""
    from operators.cells import all_cells
    from operators.extent import one_of_each_operator

    claimed = {(entry.domain, entry.op_type) for entry, *_ in claimable()}
    newest = {cell[:2]: cell.version for cell in all_cells()}
    halves = [c for c in all_cells() if c.type == "tensor(bfloat16)" and c.version == newest[c[:2]]]
    chosen = dict.fromkeys([*one_of_each_operator(), *halves])
    return [str(c) for c in chosen if c[:2] in claimed and c.op_type not in LIBRARIES]


@functools.cache
def others() -> list[str]:
    """All other cells of the newest versions: each type of each operator."""
    from operators.cells import all_cells

    claimed = {(entry.domain, entry.op_type) for entry, *_ in claimable()}
    newest = {cell[:2]: cell.version for cell in all_cells()}
    wanted = (c for c in all_cells() if c[:2] in claimed and c.version == newest[c[:2]] and c.op_type not in LIBRARIES)
    return [name for c in wanted if (name := str(c)) not in set(names())]


def operator(name: str) -> str:
    """Of a cell's name."""
    return name.split("-")[0].split(".")[-1]


def test_launches_are_held_against_the_text_of_their_kernels() -> None:
    driver = calls.Driver()
    taken = kernels.signatures("KERNEL void k(TENSOR(f32, in0), const i64 n, const f32 epsilon) {")["k"]
    address = np.uint64(driver.malloc(16))
    assert kernels._wrong(driver, taken, (address, np.int64(4), np.float32(0))) == []
    assert len(kernels._wrong(driver, taken, (address + np.uint64(2), np.int32(4), np.float64(0)))) == 3
    assert kernels._wrong(driver, taken, (address,)) == ["takes 3 arguments, not 1"]
    assert "no address" in kernels._wrong(driver, taken, (address + np.uint64(16), np.int64(4), np.float32(0)))[0]


def test_a_first_look_at_a_gpu_meets_no_error_of_types_names_or_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    smokes = importlib.import_module("gpu_smoke").SMOKES
    elsewhere = (
        "by cuDNN",
        "by cuFFT",
        "boxes",
        "data selects",
    )  # libraries with calls of their own; data that say the shape
    rows = run(tmp_path, [f"smoke {name}" for name in smokes if not any(word in name for word in elsewhere)])
    assert troubles(rows) == {} and all(row["others"] == [] for row in rows.values())


def test_a_recording_outlives_the_thread_that_made_it_until_it_is_released(tmp_path: Path) -> None:
    """A replay works in scratch memory of the handle that its products were recorded with."""
    stages, found = ("before", "replayed", "released", "closed"), []
    for name, row in run(
        tmp_path, [f"handles {n}" for n in ("a recorded product", "a recorded table of the host's")]
    ).items():
        assert row.get("error") is None and row["broken"] == [], name
        found.append(list(zip(*(row[stage] for stage in stages), strict=True)))
    (handles, graphs, memory), (*_, temporaries) = found
    assert handles == (0, 0, 0, 1) and graphs == (0, 0, 1, 1)
    assert memory[0] == memory[3] < memory[1] and temporaries[2] < temporaries[1]


def test_a_convolution_without_a_plan_is_columns_recorded_too(tmp_path: Path) -> None:
    pytest.importorskip("cudnn", reason="capability: cuDNN (nvidia-cudnn-frontend is not installed)")
    rows = run(tmp_path, [f"columns {name}" for name in ("a convolution by cuDNN", "a recorded convolution")])
    assert troubles(rows) == {} and all(row["others"] == [] for row in rows.values())


def test_every_operator_gives_results_of_the_right_type_and_shape(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"node {name}" for name in names()])
    assert {n: said for n, said in troubles(rows).items() if operator(n) not in DATA} == {}
    assert sum(row["others"] == [] for row in rows.values()) > 200


def test_cupy_has_a_loop_for_every_type_of_every_operator(tmp_path: Path) -> None:
    """A ufunc without one raises on the device, where no test with NumPy sees it."""
    rows = run(tmp_path, [f"typed {name}" for name in others()])
    assert len(rows) > 1000
    assert {n: said for n, said in troubles(rows).items() if operator(n) not in DATA} == {}


def test_all_is_recorded_but_what_reads_numbers_on_the_host(tmp_path: Path) -> None:
    rows = run(tmp_path, [f"recorded {name}" for name in names()])
    found = troubles(rows)
    assert {n: said for n, said in found.items() if operator(n) not in UNRECORDED | DATA} == {}
    assert {operator(n) for n, row in rows.items() if not row.get("recorded", True) and not row["others"]} <= FOLDED
    assert all("cannot be recorded" in said[-1] for n, said in found.items() if operator(n) in UNRECORDED - DATA)
