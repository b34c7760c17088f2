"""What a length that a session has not seen costs over one that it has.

::

    python benchmarks/lengths.py bert_base.onnx                                   # every open dimension but the first
    python benchmarks/lengths.py gpt2.onnx seq=1 past=n total=n+1 --most 200      # dimensions by name

Lengths come in random order, each twice and more; the surcharge is the first run's time less the least of the others. The later half of the
lengths is told apart, when what can be shared has been made.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from inputs import feeds_of
from runtimes import Feeds, Run, open_model

AGAIN = 3
"""Runs after the first one of a length."""


def main() -> None:
    """Time both runtimes and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sizes", nargs="*", help="of open dimensions: name=4, name=n or name=n+1")
    parser.add_argument("--least", type=int, default=5)
    parser.add_argument("--most", type=int, default=127)
    parser.add_argument("--count", type=int, default=40, help="of lengths")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    sizes = dict(map(_size, given.sizes)) or {name: _size(f"{name}=n")[1] for name in _open(given.model)}
    lengths = np.random.default_rng(1).permutation(np.arange(given.least, given.most + 1))[: given.count].tolist()
    for runtime in ("onnxruntime", "onnxplug"):
        run = open_model(runtime, given.model, given.threads, spinning=False)
        extra, steady = [], []
        for length in lengths:
            feeds = feeds_of(given.model, {name: of(length) for name, of in sizes.items()})
            first, *again = (_took(run, feeds) for _ in range(1 + AGAIN))
            extra.append(first - min(again))
            steady.append(min(again))
        later = extra[len(extra) // 2 :]
        print(
            f"{runtime:12} steady {statistics.median(steady):7.1f} ms; a new length, in addition: first one {extra[0]:.0f}, "
            f"median {statistics.median(extra):.1f}, of the later half {statistics.median(later):.1f}, at most {max(later):.1f} ms"
        )


def _open(path: Path) -> list[str]:
    """Names of the dimensions that inputs leave open, but for the first of a shape."""
    graph = onnx.load(path, load_external_data=False).graph
    return [d.dim_param for i in graph.input for d in list(i.type.tensor_type.shape.dim)[1:] if d.dim_param]


def _size(text: str) -> tuple[str, Callable[[int], int]]:
    name, _, size = text.partition("=")
    if not size.startswith("n"):
        return name, lambda n: int(size)
    return name, lambda n: n + int(size[1:] or 0)


def _took(run: Run, feeds: Feeds) -> float:
    start = time.perf_counter()
    run(feeds)
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
