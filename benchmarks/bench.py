"""onnxplug against onnxruntime on this machine: import, session creation, run.

::

    nox -s bench                                  # everything
    nox -s bench -- --only "300 adds" --seconds 5

Runs are timed twice: in one process, in turns, with thread spinning off for both (two spinning pools disturb each other), and in processes
of their own, in turns, with each runtime's default options. Results go to benchmarks/results/<date>-<machine>.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from models import CASES
from timing import alternating, block, compared, interleaved, machine

RUNTIMES = ("onnxplug", "onnxruntime")
IMPORTS = {"import": "import {}", "import the session": "from {} import InferenceSession"}
LIMITS = {("import", ""): 1.3, ("run", "identity"): 3.0, ("run", "300 adds"): 2.0}
"""The ratios the project sets itself; shown, never enforced here."""
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, write the results, print the table."""
    arguments = _arguments()
    if arguments.worker:
        print(_worker(*arguments.worker))
        return
    where = machine()
    rows: list[dict[str, Any]] = []
    if not arguments.only:
        for what, statement in IMPORTS.items():
            rows.append({"what": what, "case": "", **compared(_imports(statement, arguments.turns))})
    with tempfile.TemporaryDirectory() as folder:
        for name, make in CASES.items():
            if not arguments.only or name == arguments.only:
                path = Path(folder) / f"{name.replace(' ', '-')}.onnx"
                path.write_bytes(make().SerializeToString())
                rows += _case(name, path, arguments.seconds, arguments.turns)
    command = " ".join(["nox -s bench --", *sys.argv[1:]]).removesuffix(" --")
    found = {"date": datetime.date.today().isoformat(), "command": command, "machine": where, "rows": rows}
    path = _write(found)
    _show(found, path)


def _case(name: str, path: Path, seconds: float, turns: int) -> list[dict[str, Any]]:
    """Creation and both kinds of run of one model, after a look whether the results agree."""
    sessions = {runtime: _session(runtime, path, spinning=False) for runtime in RUNTIMES}
    feeds = _feeds(sessions["onnxplug"])
    first, second = (session.run(None, feeds)[0] for session in sessions.values())
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(second).max())))
    creations = [_bind(_session, runtime, path, False) for runtime in RUNTIMES]
    runs = [_bind(session.run, None, feeds) for session in sessions.values()]
    processes = [_bind(_process, "--worker", runtime, str(path)) for runtime in RUNTIMES]
    return [
        {"what": what, "case": name, **compared(dict(zip(RUNTIMES, samples, strict=True)))}
        for what, samples in (
            ("create", interleaved(creations, seconds / 4)),
            ("run", interleaved(runs, seconds)),
            ("run, own process", alternating(processes, turns)),
        )
    ]


def _imports(statement: str, turns: int) -> dict[str, list[float]]:
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    programs = [_bind(_process, "-c", code.format(runtime)) for runtime in RUNTIMES]
    alternating(programs, 1)  # byte code and disk caches
    return dict(zip(RUNTIMES, alternating(programs, turns * 3), strict=True))


def _process(*arguments: str) -> float:
    script = () if arguments[0] == "-c" else (__file__,)
    done = subprocess.run([sys.executable, *script, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _worker(runtime: str, path: str) -> float:
    """Median seconds per run of a process with default options, over two seconds."""
    session = _session(runtime, Path(path), spinning=True)
    feeds = _feeds(session)
    call = _bind(session.run, None, feeds)
    block(call, 3)
    samples: list[float] = []
    end = time.perf_counter() + 2
    while time.perf_counter() < end or len(samples) < 5:
        samples.append(block(call, 1))
    return float(np.median(samples))


def _session(runtime: str, path: Path, spinning: bool) -> Any:
    module = importlib.import_module(runtime)
    options = module.SessionOptions()
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _feeds(session: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        i.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in i.shape]).astype(np.float32)
        for i in session.get_inputs()
    }


def _bind(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _write(found: dict[str, Any]) -> Path:
    where = found["machine"]
    slug = re.sub(r"[^a-z0-9]+", "-", f"{where['cpu']} {where['cores']} cores".lower()).strip("-")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{found['date']}-{slug}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def _show(found: dict[str, Any], path: Path) -> None:
    where = found["machine"]
    title = f"ms, onnxplug against onnxruntime {where['onnxruntime']} on {where['cpu']}, {where['cores']} cores, load {where['load']}"
    table = Table(title=title)
    for column in ("what", "model", "onnxplug", "onnxruntime", "ratio", "aim", "samples"):
        table.add_column(column, justify="left" if column in ("what", "model") else "right")
    for row in found["rows"]:
        limit = LIMITS.get((row["what"], row["case"]))
        numbers = (f"{row['onnxplug_ms']:.3f}", f"{row['onnxruntime_ms']:.3f}", f"{row['ratio']:.2f}")
        table.add_row(row["what"], row["case"], *numbers, f"<= {limit}" if limit else "", str(row["samples"]))
    Console().print(table)
    print(f"written to {path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time onnxplug against onnxruntime.")
    parser.add_argument("--only", choices=list(CASES), help="one model")
    parser.add_argument("--seconds", type=float, default=8.0, help="spent on the runs of each model in one process")
    parser.add_argument("--turns", type=int, default=5, help="processes of each runtime")
    parser.add_argument("--worker", nargs=2, metavar=("RUNTIME", "MODEL"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
