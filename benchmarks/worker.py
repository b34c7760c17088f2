"""One runtime with one model in a process of its own: creation, peak memory, run at the runtime's defaults. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from runtimes import open_model
from timing import block, peak_memory

FIRST = 3
"""Runs before the peak is read: everything that is made at first use is there then."""


def main(runtime: str, path: str, feeds: str, threads: str, seconds: str) -> None:
    """``feeds``: an .npz file of the inputs; runs are repeated for ``seconds``, five times at least if that is not 0."""
    with np.load(feeds) as file:
        given = {name: file[name] for name in file.files}
    began = time.perf_counter()
    __import__(runtime)
    started = time.perf_counter()
    run = open_model(runtime, Path(path), int(threads), spinning=True)
    ready = time.perf_counter()
    run(given)
    first = time.perf_counter() - ready
    for _ in range(FIRST - 1):
        run(given)
    found = {"create": ready - started, "import and create": ready - began, "first": first, "peak": peak_memory()}
    samples: list[float] = []
    end = time.perf_counter() + float(seconds)
    while float(seconds) and (time.perf_counter() < end or len(samples) < 5):
        samples.append(block(lambda: run(given), 1))
    print(json.dumps(found | ({"run": float(np.median(samples))} if samples else {})))


if __name__ == "__main__":
    main(*sys.argv[1:])
