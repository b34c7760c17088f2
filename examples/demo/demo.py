"""magika, a published program written for onnxruntime, run on onnxplug over the files of a folder (default: this repository).

::

    nox -s demo                     # or: nox -s demo -- FOLDER

onnxplug takes onnxruntime's place in ``sys.modules``; magika is as PyPI has it. An observer, the hook that tracing plugins use, counts
and times the runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import onnxplug
from onnxplug.plugins import register_observer

sys.modules["onnxruntime"] = onnxplug
from magika import Magika  # noqa: E402 - imports onnxruntime

ROOT = Path(__file__).parents[2]
PER_TYPE, SHOWN = 3, 14


class Watch:
    """Observes the sessions of the process: who was placed where, how many runs, how long they took."""

    def __init__(self) -> None:
        self.placement: Counter[str] = Counter()
        self.runs, self.seconds, self._started = 0, 0.0, 0.0

    def onnxplug_placed(self, placement: Any) -> None:
        self.placement.update(placement.values())

    def onnxplug_run_start(self) -> None:
        self._started = time.perf_counter()

    def onnxplug_run_end(self) -> None:
        self.seconds += time.perf_counter() - self._started
        self.runs += 1


def files_of(folder: Path) -> Iterator[Path]:
    """The files below ``folder`` that are not in hidden or cache folders."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        yield from (Path(where) / name for name in sorted(names))


def samples(results: Sequence[Any]) -> list[Any]:
    """A few results of each type."""
    seen: Counter[str] = Counter()
    chosen = []
    for result in results:
        seen[str(result.output.label)] += 1
        if seen[str(result.output.label)] <= PER_TYPE:
            chosen.append(result)
    return chosen[:SHOWN]


def main(folder: Path) -> None:
    """Identify every file and print what was found, by whom, in what time."""
    watch, console = Watch(), Console()
    register_observer(watch, "demo")
    started = time.perf_counter()
    magika = Magika()
    created = time.perf_counter()
    paths = list(files_of(folder))
    results = magika.identify_paths(paths)
    ended = time.perf_counter()

    found = Counter(str(r.output.label) for r in results)
    types = Table(title="What magika found")
    types.add_column("type")
    types.add_column("files", justify="right")
    for label, count in found.most_common():
        types.add_row(label, str(count))
    console.print(types)

    some = Table(title="Some of them")
    for name in ("file", "type", "score"):
        some.add_column(name, justify="right" if name == "score" else "left")
    for result in samples(results):
        some.add_row(str(Path(result.path).relative_to(folder)), str(result.output.label), f"{result.score:.3f}")
    console.print(some)

    work = Table(title="Who did the work")
    for name in ("provider", "nodes"):
        work.add_column(name, justify="right" if name == "nodes" else "left")
    for provider, nodes in watch.placement.most_common():
        work.add_row(provider, str(nodes))
    console.print(work)
    console.print(
        f"{len(paths)} files identified in {ended - created:.2f} s; runs of the model: {watch.runs}, {watch.seconds:.2f} s; "
        f"session created in {created - started:.2f} s"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
