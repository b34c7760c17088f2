"""Single operators, and a few typical groups of them, on the CPU: onnxplug against onnxruntime.

::

    nox -s bench_operators                                    # all
    nox -s bench_operators -- --match "Transpose|Concat"      # those whose name has it, a regular expression
    nox -s bench_operators -- --threads 1 --below 0.95        # one thread; prints those below

Every model (``operator_cases.py``) runs in one process, in turns with onnxruntime, threads not spinning, with one thread and with two; the
ratio is onnxruntime's median time over onnxplug's, so that above 1 is faster. One thread is timed by the processor's time, which other
processes do not lengthen, several by the clock on the wall. Results are compared first. What onnxruntime cannot run is left out and
counted. Ratios, lowest first, go to benchmarks/results/operators/<date>-<machine>.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from operator_cases import CASES
from operator_models import Case
from runtimes import Run, open_model
from timing import interleaved, machine

HERE = Path(__file__).parent
CONTENDERS = ("onnxplug", "onnxruntime")
Row = dict[str, Any]


def main() -> None:
    """Time the cases asked for, print and write what came out."""
    asked = _arguments()
    cases = [case for case in CASES if re.search(asked.match, case.name)]
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            try:
                rows += timed(case, Path(folder) / "model.onnx", asked.threads, asked.seconds, asked.rounds)
            except Unsupported as reason:
                left_out[case.name] = str(reason)
            if asked.verbose and rows and rows[-1]["case"] == case.name:
                print(_line(rows[-1]), flush=True)
    rows.sort(key=lambda row: row["ratio"])
    found = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "summary": {str(t): summary([r for r in rows if r["threads"] == t]) for t in asked.threads},
        "left_out": left_out,
        "rows": rows,
    }
    path = written(found, asked.results)
    for row in rows:
        if row["ratio"] < asked.below or "differs" in row:
            print(_line(row))
    for threads, each in found["summary"].items():
        print(f"{threads} thread(s): {json.dumps(each)}")
    print(f"{len(left_out)} left out: {', '.join(left_out)}")
    print(f"written to {path}")


class Unsupported(Exception):
    """onnxruntime does not run the case."""


def timed(case: Case, path: Path, threads: Sequence[int], seconds: float, rounds: int) -> list[Row]:
    """A row for each number of threads. The ratio is the median of ``rounds`` rounds' ratios. ``Unsupported``: see there."""
    path.write_bytes(case.model().SerializeToString())
    feeds, rows = case.feeds(), []
    for count in threads:
        try:
            theirs = open_model("onnxruntime", path, count, False)
            want = theirs(feeds)
        except Exception as error:  # whatever onnxruntime has against it
            raise Unsupported(str(error).splitlines()[0][:200]) from None
        ours: Run = open_model("onnxplug", path, count, False)
        differs = None if case.random else difference(ours(feeds), want)
        clock = time.process_time if count == 1 else time.perf_counter
        pairs = []
        for _ in range(rounds):
            calls = [lambda: ours(feeds), lambda: theirs(feeds)]  # noqa: B023  called here
            samples = interleaved(calls, seconds / rounds, clock=clock)
            pairs.append([statistics.median(each) for each in samples])
        mine, other = sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]
        row = {
            "case": case.name,
            "threads": count,
            "ratio": round(other / mine, 3),
            "us": {"onnxplug": round(mine * 1e6, 2), "onnxruntime": round(other * 1e6, 2)},
        }
        rows.append(row | ({"differs": differs} if differs else {}))
    return rows


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> str | None:
    """In what the results differ by more than roundings; None where they agree."""
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, np.ndarray):
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        if b.dtype.kind in "OU":
            agree = np.array_equal(a, b)
        elif b.dtype.kind == "f":
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
            agree = np.allclose(a, b, rtol=1e-3, atol=scale * (5e-3 if b.dtype.itemsize == 2 else 1e-3), equal_nan=True)
        else:  # bytes that a rounding decides may be one off
            agree = bool(np.all(np.abs(a.astype("f8") - b.astype("f8")) <= (b.dtype.itemsize == 1)))
        if not agree:
            return "values"
    return None


def summary(rows: Sequence[Row]) -> Row:
    """How many cases, their geometric mean, how many are slower than onnxruntime, and clearly so."""
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
    counts = {f"below {limit}": sum(ratio < limit for ratio in ratios) for limit in (1.0, 0.9, 0.7)}
    return {"cases": len(ratios), "geometric mean": round(mean, 3), **counts}


def written(found: Row, folder: Path) -> Path:
    """The file the results are in, named by the day and the machine."""
    where = found["machine"]
    slug = re.sub(r"[^a-z0-9]+", "-", f"{where['cpu']} {where['cores']} cores".lower()).strip("-")
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{found['date']}-{slug}.json"
    heads = {key: value for key, value in found.items() if key != "rows"}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in found["rows"])
    path.write_text(json.dumps(heads, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')
    return path


def _line(row: Row) -> str:
    times = row["us"]
    wrong = f"  DIFFERS: {row['differs']}" if "differs" in row else ""
    return (
        f"{row['ratio']:7.2f}  {times['onnxplug']:10.1f} us {times['onnxruntime']:10.1f} us  "
        f"{row['threads']}t  {row['case']}{wrong}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time single operators of onnxplug against onnxruntime.")
    parser.add_argument("--match", default="", help="a regular expression that the names of cases have")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of each runtime (default: 1 and 2)")
    parser.add_argument("--seconds", type=float, default=0.3, help="spent on the runs of each case (default: 0.3)")
    parser.add_argument("--rounds", type=int, default=3, help="into which they are divided (default: 3)")
    parser.add_argument("--below", type=float, default=1.0, help="cases below this ratio are printed (default: 1)")
    parser.add_argument("--verbose", action="store_true", help="print every case when it is done")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "operators", help="where results go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
