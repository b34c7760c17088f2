"""What a length, or a size of images, that a session has not seen costs over one that it has.

::

    python benchmarks/lengths.py bert_base.onnx                                   # every open dimension but the first
    python benchmarks/lengths.py gpt2.onnx seq=1 past=n total=n+1 --most 200      # dimensions by name
    python benchmarks/lengths.py unet.onnx h=32n w=32m --least 4 --most 11        # two numbers
    python benchmarks/lengths.py squeezenet.onnx --image --least 160 --most 330   # height and width of a model for one size

Lengths come in random order, each twice and more; the surcharge is the first run's time less the least of the others. The later half of the
lengths is told apart, when what can be shared has been made.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
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
    parser.add_argument(
        "sizes",
        nargs="*",
        type=_size,
        help="of open dimensions: name=4, name=n, name=n+1, name=32n; m is another number",
    )
    parser.add_argument("--image", action="store_true", help="open the last two dimensions of the first input: n and m")
    parser.add_argument("--least", type=int, default=5)
    parser.add_argument("--most", type=int, default=127)
    parser.add_argument("--count", type=int, default=40, help="of lengths")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.image:
            given.model, given.sizes = _opened(given.model, Path(folder)), [_size("height=n"), _size("width=m")]
        _compare(given)


def _compare(given: argparse.Namespace) -> None:
    sizes = dict(given.sizes) or {name: _size(f"{name}=n")[1] for name in _open(given.model)}
    rng, numbers = np.random.default_rng(1), np.arange(given.least, given.most + 1)
    lengths = list(zip(*(rng.permutation(numbers)[: given.count].tolist() for _ in range(2)), strict=True))
    for runtime in ("onnxruntime", "onnxplug"):
        run = open_model(runtime, given.model, given.threads, spinning=False)
        extra, steady = [], []
        for length in lengths:
            feeds = feeds_of(given.model, {name: of(*length) for name, of in sizes.items()})
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


def _opened(path: Path, folder: Path) -> Path:
    """The model with the height and width of its first input left open."""
    model = onnx.load(path)
    own = {i.name for i in model.graph.initializer}
    image = next(i for i in model.graph.input if i.name not in own)
    height, width = list(image.type.tensor_type.shape.dim)[-2:]
    height.dim_param, width.dim_param = "height", "width"
    del model.graph.value_info[:]
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    onnx.save(model, folder / path.name)
    return folder / path.name


def _size(text: str) -> tuple[str, Callable[[int, int], int]]:
    name, _, size = text.partition("=")
    found = re.fullmatch(r"([0-9]+)|([0-9]*)([nm])(?:\+([0-9]+))?", size)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not name=4, name=n, name=n+1 or name=32n")
    alone, times, letter, more = found.groups()
    if alone:
        return name, lambda n, m: int(alone)
    return name, lambda n, m: int(times or 1) * (n if letter == "n" else m) + int(more or 0)


def _took(run: Run, feeds: Feeds) -> float:
    start = time.perf_counter()
    run(feeds)
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
