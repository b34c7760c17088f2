"""onnxplug against onnxruntime and OpenVINO on this machine: import, session creation, memory, run.

::

    nox -s bench                                  # our own models
    nox -s bench -- --only "300 adds" --seconds 5
    nox -s bench -- FOLDER                        # every model of a folder, inputs made from the declared shapes
    nox -s bench -- --quick                       # whether it works, in seconds

Runs are timed twice: in one process, in turns, with thread spinning off for all (two spinning pools disturb each other), and in processes
of their own, in turns, with each runtime's defaults. Those processes also tell peak memory, and what creation takes when onnxplug's cache
of compiled code is empty (cold) and when it is filled (warm). Results go to benchmarks/results/<date>-<machine>.json;
``python tools/bench_picture.py`` draws them for the documentation.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import roofline
from inputs import feeds_of
from models import CASES, QUICK
from runtimes import RUNTIMES, missing, open_model
from timing import alternating, compared, cores, interleaved, machine

IMPORTS = {"import": "import {}", "import the session": "from {} import InferenceSession"}
LIMITS = {("import", ""): 1.3, ("run", "identity"): 3.0, ("run", "300 adds"): 2.0}
"""The ratios to onnxruntime the project sets itself; shown, never enforced here."""
SETTLED = 2.5
"""Seconds after which a file counts as known by its times: of one just written onnxplug keeps no graph."""
HERE = Path(__file__).parent
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """Who is timed, with how many threads, for how long: seconds in one process, processes of each, seconds in each of those."""

    runtimes: tuple[str, ...]
    threads: int
    seconds: float
    turns: int
    own: float
    peaks: roofline.Peaks


def main() -> None:
    """Measure, write the results, print the table."""
    arguments = _arguments()
    reasons = {runtime: reason for runtime in RUNTIMES if (reason := missing(runtime)) is not None}
    for runtime, reason in reasons.items():
        print(f"{runtime} is left out: {reason}")
    where, peaks = machine(), roofline.measured(arguments.threads)
    runtimes = tuple(r for r in RUNTIMES if r not in reasons)
    own = 0.05 if arguments.quick else 2.0
    extent = Extent(runtimes, arguments.threads, arguments.seconds, arguments.turns, own, peaks)
    rows: list[Row] = []
    if not (arguments.only or arguments.folder or arguments.quick):
        rows += [{"what": what, "model": "", **compared(_imports(s, extent))} for what, s in IMPORTS.items()]
    sizes = {name: int(size) for name, size in arguments.dim}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _models(arguments, Path(folder)):
            try:
                rows += _case(name, path, sizes, extent, Path(folder))
            except Exception as error:  # whatever a contender thinks of somebody's model
                reasons[name] = f"{type(error).__name__}: {error}"
                print(f"{name} is left out: {reasons[name]}")
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["nox -s bench --", *_asked(sys.argv[1:])]).removesuffix(" --"),
        "machine": where,
        "threads": extent.threads,
        "peaks": {"gflops": round(peaks.flops / 1e9, 1), "gbytes_per_second": round(peaks.bandwidth / 1e9, 1)},
        "left_out": reasons,
        "rows": rows,
    }
    _show(found, _write(found, arguments.results))


def _models(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and files: those of the folder given, or our own, written into ``folder``."""
    if arguments.folder:
        yield from ((path.stem, path) for path in sorted(arguments.folder.rglob("*.onnx")))
        return
    chosen = [arguments.only] if arguments.only else QUICK if arguments.quick else CASES
    paths = {name: folder / f"{name.replace(' ', '-')}.onnx" for name in chosen}
    for name, path in paths.items():
        path.write_bytes(CASES[name]().SerializeToString())
    time.sleep(SETTLED)
    yield from paths.items()


def _case(name: str, path: Path, sizes: Mapping[str, int], extent: Extent, scratch: Path) -> list[Row]:
    """Creation, memory and both kinds of run of one model, after a look whether the results agree."""
    feeds = feeds_of(path, sizes)
    opened = {runtime: open_model(runtime, path, extent.threads, False) for runtime in extent.runtimes}
    agree({runtime: run(feeds) for runtime, run in opened.items()})
    creations = [_bind(open_model, runtime, path, extent.threads, False) for runtime in extent.runtimes]
    created = interleaved(creations, extent.seconds / 4, least=min(5, extent.turns))
    ran = interleaved([_bind(run, feeds) for run in opened.values()], extent.seconds)
    rows = [_row("create", name, extent, created), _row("run", name, extent, ran)]
    flops, read = roofline.work(path, feeds)
    rows[-1]["roofline"] = roofline.line(flops, read, rows[-1]["ms"]["onnxplug"] / 1e3, extent.peaks)
    saved = scratch / "feeds.npz"
    np.savez(saved, **feeds)
    arguments = (str(path), str(saved), str(extent.threads))
    alternating([_bind(_worker, r, *arguments, "0") for r in extent.runtimes], 1)  # fills what is kept on disk
    warm = alternating([_bind(_worker, r, *arguments, str(extent.own)) for r in extent.runtimes], extent.turns)
    cold = alternating([_bind(_cold, r, *arguments, "0") for r in extent.runtimes], extent.turns)
    for what, key, found in (
        ("create, cold", "create", cold),
        ("create, warm", "create", warm),
        ("import and create, warm", "import and create", warm),
        ("first run, warm", "first", warm),
        ("run, own process", "run", warm),
    ):
        rows.append(_row(what, name, extent, [[each[key] for each in samples] for samples in found]))
    peaks = {r: float(np.median([each["peak"] for each in s])) for r, s in zip(extent.runtimes, warm, strict=True)}
    ours = peaks["onnxplug"]
    more = {r: round(ours - peak, 1) for r, peak in peaks.items() if r != "onnxplug"}
    rows.append(
        {"what": "peak memory", "model": name, "mb": {r: round(p, 1) for r, p in peaks.items()}, "more_mb": more}
    )
    return rows


def _row(what: str, name: str, extent: Extent, samples: list[list[float]]) -> Row:
    return {"what": what, "model": name, **compared(dict(zip(extent.runtimes, samples, strict=True)))}


def agree(results: Mapping[str, Any]) -> None:
    """AssertionError where a contender computes something else than the first."""
    (_, first), *others = results.items()
    for runtime, theirs in others:
        for a, b in zip(first, theirs, strict=True):
            if isinstance(a, np.ndarray) and a.dtype.kind == "f":
                scale = float(np.abs(b).max(initial=0.0))
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * scale, err_msg=f"onnxplug and {runtime} differ")


def _imports(statement: str, extent: Extent) -> dict[str, list[float]]:
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    runtimes = [r for r in extent.runtimes if r != "openvino"]  # which has no class of that name
    programs = [_bind(_process, {}, "-c", code.format(runtime)) for runtime in runtimes]
    alternating(programs, 1)  # byte code and disk caches
    return dict(zip(runtimes, alternating(programs, extent.turns * 3), strict=True))


def _worker(*arguments: str) -> dict[str, float]:
    found: dict[str, float] = _process({}, str(HERE / "worker.py"), *arguments)
    return found


def _cold(*arguments: str) -> dict[str, float]:
    """As ``_worker``, with an empty cache of compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        found: dict[str, float] = _process({"ONNXPLUG_CACHE_DIR": cache}, str(HERE / "worker.py"), *arguments)
    return found


def _process(environment: Mapping[str, str], *arguments: str) -> Any:
    """The JSON that a Python program prints. RuntimeError with the end of what it says when it fails."""
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"its process ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _bind(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def slug(found: Row) -> str:
    """The date and the machine, as a file's name."""
    where = found["machine"]
    name = re.sub(r"[^a-z0-9]+", "-", f"{where['cpu']} {where['cores']} cores".lower()).strip("-")
    return f"{found['date']}-{name}"


def _write(found: Row, folder: Path) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{slug(found)}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def _show(found: Row, path: Path) -> None:
    where, peaks = found["machine"], found["peaks"]
    title = (
        f"ms on {where['cpu']}, {found['threads']} threads, load {where['load']}; "
        f"peaks {peaks['gflops']} GFLOP/s, {peaks['gbytes_per_second']} GB/s"
    )
    table = Table(title=title)
    for column in ("what", "model", *RUNTIMES, "ratio", "to openvino", "aim", "of roofline"):
        table.add_column(column, justify="left" if column in ("what", "model") else "right")
    for row in found["rows"]:
        table.add_row(row["what"], row["model"], *_cells(row))
    Console(width=max(130, Console().width)).print(table)
    print(f"written to {path}")


def _cells(row: Row) -> list[str]:
    values, ratios = row.get("ms") or row["mb"], row.get("ratio") or row["more_mb"]
    limit, share = LIMITS.get((row["what"], row["model"])), row.get("roofline")
    return [
        *(f"{values[r]:.3f}" if r in values else "" for r in RUNTIMES),
        *((f"{ratios[r]:+.1f} MB" if "mb" in row else f"{ratios[r]:.2f}") if r in ratios else "" for r in RUNTIMES[1:]),
        f"<= {limit}" if limit else "",
        f"{share['of_roofline']:.0%}" if share else "",
    ]


def _asked(arguments: list[str]) -> list[str]:
    """The command line without where its results go."""
    at = arguments.index("--results") if "--results" in arguments else len(arguments)
    return [*arguments[:at], *arguments[at + 2 :]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time onnxplug against onnxruntime and OpenVINO.")
    parser.add_argument("folder", nargs="?", type=Path, help="time the models of this folder instead of our own")
    parser.add_argument("--only", choices=list(CASES), help="one of our own models")
    parser.add_argument("--seconds", type=float, help="spent on the runs of each model in one process (default: 8)")
    parser.add_argument("--turns", type=int, help="processes of each runtime (default: 5)")
    parser.add_argument("--threads", type=int, default=cores(), help="of each runtime (default: all processors)")
    parser.add_argument("--dim", type=lambda text: text.split("=", 1), action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--quick", action="store_true", help="few models, few samples: whether it works")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder results are written to")
    arguments = parser.parse_args()
    arguments.seconds = arguments.seconds or (0.05 if arguments.quick else 8.0)
    arguments.turns = arguments.turns or (1 if arguments.quick else 5)
    return arguments


if __name__ == "__main__":
    main()
