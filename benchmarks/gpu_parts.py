"""The parts of ``nox -s gpu``: which items each has, how one is measured, and what is concluded from all of them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import backend_score
import gpu_smoke
from gpu_contrib import LARGEST_ERRORS, MODELS
from gpu_isolated import Row
from gpu_models import ARCHITECTURES
from models import light
from timing import compared, interleaved

ROOT = Path(__file__).parent.parent
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
HARDWARE = ROOT / "packages" / "ep-cuda" / "tests" / "test_cuda_hardware.py"
PROFILES = ("cnn", "transformer")
LIGHT = ("bvlc_alexnet", "densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19")
_LIGHT = "onnx's "
"""Before their names: there is another resnet50."""
BATCHES = (1, 32)
LARGEST_ERROR = 2e-5
"""Of the largest result, for float32 without TF32: the project's aim for real models."""
_LONGEST = 20_000
"""Characters of what went wrong that are kept."""
_TOLD = 1000
"""The same in one line."""
_PLAIN = ("-c", str(ROOT / "pyproject.toml"), "--tb=short", "-p", "no:cacheprovider")
"""Whoever runs pytest, from wherever."""
WHOLE_DEVICE = ("test_a_session_that_is_closed_gives_its_memory_back", "test_more_than_the_device_has")
"""Beginnings of the names of tests that look at all the memory of the device."""
LEAST = {"right": 2018, "on_first": 1200}
"""The project's aims for the ONNX backend data."""


@dataclass(frozen=True)
class Part:
    """``items()`` by name; ``measure(item, arguments)`` gives a row, which has "error" where there is no result; ``conclude(rows)`` what
    they add up to, with "ok" (None: nothing to judge by); ``seconds``: an item may take; ``apart``: beginnings of the names of items
    that want the GPU for themselves."""

    items: Callable[[], Sequence[str]]
    measure: Callable[[str, argparse.Namespace], Row]
    conclude: Callable[[Sequence[Row]], dict[str, Any]]
    seconds: float
    apart: tuple[str, ...] = ()


def session(data: bytes, provider: str, **options: object) -> Any:
    """A session in which the provider is not replaced by another."""
    import onnxplug

    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    return onnxplug.InferenceSession(data, strict, providers=[(provider, options), *([CPU] if provider != CPU else [])])


def largest_error(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference as a share of the largest magnitude, over all outputs; infinite where results are not finite."""
    shares = []
    for got, right in zip(results, wanted, strict=True):
        got, right = got.astype(np.float64), right.astype(np.float64)
        error = float(np.abs(got - right).max())
        shares.append(error / max(float(np.abs(right).max()), 1e-30) if np.isfinite(got).all() else float("inf"))
    return max(shares)


def plain(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows of which each has a result or an error."""
    return {"rows": list(rows), "ok": not any("error" in row for row in rows)}


# ---- a first look; the tests that need a device; the conformance kit


def look(item: str, _: argparse.Namespace) -> Row:
    """One smoke test."""
    return gpu_smoke.measure(item, session, largest_error)


def hardware() -> list[str]:
    """The hardware tests, each with its parameters. RuntimeError with pytest's words where they cannot be found."""
    command = [sys.executable, "-m", "pytest", *_PLAIN, "--collect-only", "-q", str(HARDWARE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    if done.returncode or not found:
        raise RuntimeError(f"pytest finds no tests: {(done.stdout + done.stderr)[-_LONGEST:]}")
    return found


def run_pytest(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, what is counted, and what went wrong; the output is this process's, for it to be seen where the time is up."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", *arguments, f"--junitxml={report}"]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if not report.exists():
            raise RuntimeError(f"pytest ended with status {status} and without a report")
        root = ElementTree.parse(report).getroot()
    return status, counted(root), "\n".join(troubles(root))[:_LONGEST]


class _Reports:
    """A plugin of pytest that keeps what it says of one test."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Of each phase; a test that passes is heard of once."""
        if report.when == "call" or not report.passed:
            self.outcomes.append(report.outcome)
        if not report.passed:
            self.texts.append(report.longreprtext)


def run_tests(item: str, _: argparse.Namespace) -> Row:
    """One test, in this process: the next one need not wait for libraries and device to be made ready."""
    import pytest

    reports = _Reports()
    status = int(pytest.main([*_PLAIN, "-q", f"{HARDWARE}::{item}"], plugins=[reports]))
    found = {"status": status, "outcomes": reports.outcomes}
    if status == 0 and set(reports.outcomes) == {"passed"}:
        return found
    wrong = "\n".join(reports.texts)
    said = " | ".join(s for line in wrong.splitlines() if line.startswith("E  ") and (s := line[1:].strip()))
    return {**found, "error": said[:_TOLD] or wrong[-_TOLD:] or "no test ran", "trace": wrong[-_LONGEST:]}


def troubles(root: ElementTree.Element) -> list[str]:
    """The tests of a JUnit report that failed, with the first words of why."""
    found = []
    for case in root.iter("testcase"):
        for kind in ("failure", "error"):
            for trouble in case.iter(kind):
                found.append(f"{case.get('name')}: {(trouble.get('message') or '')[:300]}")
    return found


def counted(root: ElementTree.Element) -> dict[str, Any]:
    """What a JUnit report counts; ``ok`` where tests ran and none failed."""
    suites = list(root.iter("testsuite"))
    sums = {name: sum(int(s.get(name, 0)) for s in suites) for name in ("tests", "failures", "errors", "skipped")}
    ran = sums["tests"] - sums["skipped"]
    return {**sums, "ok": ran > 0 and not sums["failures"] and not sums["errors"]}


def run_kit(profile: str, arguments: argparse.Namespace) -> Row:
    """The conformance kit."""
    waivers = ROOT / "packages" / "ep-cuda" / "conformance.toml"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        given = ("--ep", "cuda", "--level", arguments.level, "--profile", profile, "--waivers", str(waivers))
        status, counts, wrong = run_pytest("--pyargs", "onnxplug_testkit", *given, "--report", str(report))
        data = json.loads(report.read_text()) if report.exists() else {}
    found = {**counts, "status": status, "verdict": data.get("verdict"), "level": data.get("level")}
    return found if status == 0 else {**found, "error": wrong or f"the kit ended with status {status}"}


# ---- the backend data; accuracy


def score(item: str, _: argparse.Namespace) -> Row:
    """One case of the ONNX backend data."""
    return backend_score.outcome(CUDA, item)


def scored(rows: Sequence[Row]) -> dict[str, Any]:
    """How many cases are right, and how many ran on the GPU alone; of a slice there is no verdict."""
    found = backend_score.totals(CUDA, rows)
    enough = all(found[name] >= least for name, least in LEAST.items())
    return {**found, "ok": enough if len(rows) >= LEAST["right"] else None}


def zoo() -> list[str]:
    """Models whose accuracy is looked at."""
    return [*(_LIGHT + name for name in LIGHT), *ARCHITECTURES, *MODELS]


def accuracy(name: str, _: argparse.Namespace) -> Row:
    """Largest errors of a model against the CPU provider, with and without TF32, as shares of the largest result; by cuDNN's first plans,
    for a search takes minutes and is no matter of accuracy."""
    made = None if name.startswith(_LIGHT) else {**ARCHITECTURES, **MODELS}[name]()
    data = (light(name.removeprefix(_LIGHT)) if made is None else made.model).SerializeToString()
    reference = session(data, CPU)
    feeds = random_feeds(reference) if made is None else made.feeds(2)
    wanted = reference.run(None, feeds)
    row = {}
    for tf32 in (0, 1):
        made = session(data, CUDA, use_tf32=tf32, cudnn_conv_algo_search="HEURISTIC")
        row[f"error_tf32_{tf32}"] = largest_error(made.run(None, feeds), wanted)
        made.close()
    allowed = LARGEST_ERRORS.get(name, LARGEST_ERROR)
    return row if row["error_tf32_0"] <= allowed else {**row, "error": f"more than {allowed:g} of the largest result"}


def random_feeds(made: Any) -> dict[str, np.ndarray]:
    """Seeded inputs of a session over floats."""
    rng = np.random.default_rng(1)
    return {
        i.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in i.shape]).astype(np.float32)
        for i in made.get_inputs()
    }


# ---- speed


def races() -> dict[str, tuple[str, int, bool]]:
    """Name of each comparison: architecture, batch, whether runs are recorded."""
    return {
        f"{name}, batch {batch}{', recorded' if graphs else ''}": (name, batch, graphs)
        for name in ARCHITECTURES
        for batch in BATCHES
        for graphs in ((False, True) if batch == 1 else (False,))
    }


def speed(item: str, arguments: argparse.Namespace) -> Row:
    """Milliseconds a run with inputs and outputs on the device, in turns with PyTorch where it is installed."""
    name, batch, graphs = races()[item]
    made = ARCHITECTURES[name]()
    feeds = made.feeds(batch)
    calls: dict[str, Callable[[], object]] = {
        "onnxplug": bound(made.model.SerializeToString(), feeds, graphs, arguments.search)
    }
    if importlib.util.find_spec("torch") is not None:
        import gpu_torch

        calls |= gpu_torch.calls(made.model, feeds, captured=graphs)
    samples = dict(zip(calls, interleaved(list(calls.values()), arguments.seconds), strict=True))
    row: dict[str, Any] = {"model": name, "batch": batch, "cuda_graph": graphs, "search": arguments.search}
    row |= {f"{n}_ms": round(float(np.median(t)) * 1e3, 5) for n, t in samples.items()}
    own = samples.pop("onnxplug")
    return row | {f"to_{n}": compared({"onnxplug": own, n: t})["ratio"][n] for n, t in samples.items()}


def bound(data: bytes, feeds: dict[str, np.ndarray], graphs: bool, search: str) -> Callable[[], object]:
    """A run with everything on the device, waited for. ``search``: for cuDNN's plans."""
    import onnxplug

    made = session(data, CUDA, enable_cuda_graph=int(graphs), cudnn_conv_algo_search=search)
    binding = made.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in made.get_outputs():
        binding.bind_output(output.name, "cuda")

    def call() -> None:
        made.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return call


def judged(rows: Sequence[Row]) -> dict[str, Any]:
    """The project's aims, where PyTorch was there to compare with."""
    errors = any("error" in row for row in rows)
    known = [row for row in rows if "to_torch_eager" in row]
    ok = False if errors else all(map(fast_enough, known)) if known else None
    return {"rows": list(rows), "ok": ok}


def fast_enough(row: Mapping[str, Any]) -> bool:
    """No slower than eager; recorded, no slower than compiled."""
    return bool(row["to_torch_compiled"] <= 1 if row["cuda_graph"] else row["to_torch_eager"] <= 1)


PARTS: Mapping[str, Part] = {
    "smoke": Part(lambda: list(gpu_smoke.SMOKES), look, plain, 90),
    "tests": Part(hardware, run_tests, plain, 150, apart=WHOLE_DEVICE),
    "zoo": Part(zoo, accuracy, plain, 120),
    "score": Part(backend_score.names, score, scored, 60),
    "speed": Part(
        lambda: list(races()), speed, judged, 600, apart=("",)
    ),  # cuDNN's plans are searched for, once a machine
    "kit": Part(lambda: PROFILES, run_kit, plain, 3600),
}
"""In the order of their worth: what is known first is worth most, what takes longest comes last."""
