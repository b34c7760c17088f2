"""OpenCLExecutionProvider on the processor (PoCL) against onnxruntime's CPU provider.

::

    nox -s bench_opencl                                   # models made here
    nox -s bench_opencl -- bert.onnx --length 128         # others; symbolic dimensions behind the first get this extent
    nox -s bench_opencl -- int8.onnx --tolerance 0.1      # results of 8 bits may be neighbours

Both have one thread, and what is compared is the time of the processor: a run of one, a run of the other, and so on in one process. Copies
of inputs and results to and from the device's memory count. PoCL's device ``basic`` computes in the thread that waits for results, as
onnxruntime does with one thread. With ``POCL_DEVICES=pthread`` a worker of its own does, on a processor that sleeps and forgets while the
other contender runs: figures move.
"""

from __future__ import annotations

import os

os.environ.setdefault("POCL_DEVICES", "basic")  # before the driver is loaded
os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import onnxplug
from models import CASES

PROVIDERS = [("OpenCLExecutionProvider", {"platform": "Portable"}), "CPUExecutionProvider"]
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def main() -> None:
    """Time every model and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files; none: squeezenet and resnet50, made here")
    parser.add_argument("--length", type=int, default=128, help="extent of symbolic dimensions but the first")
    parser.add_argument("--runs", type=int, default=15, help="of each")
    parser.add_argument(
        "--tolerance", type=float, default=1e-4, help="share of a result's largest element by which both may differ"
    )
    arguments = parser.parse_args()
    print(f"{'model':24s} {'OpenCL':>10s} {'onnxruntime':>12s} {'ratio':>6s}   nodes on OpenCL, copies, first run")
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.models or made(Path(folder)):
            print(line(path, arguments.length, arguments.runs, arguments.tolerance), flush=True)


def made(folder: Path) -> list[Path]:
    """The convolutional models of the benchmark."""
    paths = []
    for name in ("squeezenet", "resnet50"):
        path = folder / f"{name}.onnx"
        path.write_bytes(CASES[name]().SerializeToString())
        paths.append(path)
    return paths


def line(path: Path, length: int, runs: int, tolerance: float) -> str:
    """One model's figures: medians of both, the median of the ratios of neighbouring runs."""
    ours = session(onnxplug, path, PROVIDERS)
    theirs = session(onnxruntime, path, ["CPUExecutionProvider"])
    feeds = {i.name: feed(i, length) for i in theirs.get_inputs()}
    start = time.perf_counter()
    got = ours.run(None, feeds)[0]
    first = time.perf_counter() - start
    want = theirs.run(None, feeds)[0]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=tolerance * float(np.abs(want).max()))
    samples = [(seconds(ours, feeds), seconds(theirs, feeds)) for _ in range(runs)]
    medians = [statistics.median(column) * 1e3 for column in zip(*samples, strict=True)]
    ratio = statistics.median(a / b for a, b in samples)
    owners = list(ours.placement().values())
    placed = f"{owners.count('OpenCLExecutionProvider')} of {len(owners)}, {len(ours.explain().copies)}, {first:.1f} s"
    return f"{path.stem:24s} {medians[0]:7.1f} ms {medians[1]:9.1f} ms {ratio:6.2f}   {placed}"


def session(runtime: Any, path: Path, providers: list[Any]) -> Any:
    """A session with one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=providers)


def feed(value: Any, length: int) -> np.ndarray:
    """Random numbers, or small integers, of an input's shape."""
    shape = [d if isinstance(d, int) else length if k else 1 for k, d in enumerate(value.shape)]
    dtype = TYPES[value.type]
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape).astype(dtype) if dtype == np.float32 else rng.integers(0, 2, shape).astype(dtype)


def seconds(runtime: Any, feeds: dict[str, np.ndarray]) -> float:
    """Processor time of one run."""
    start = time.process_time()
    runtime.run(None, feeds)
    return time.process_time() - start


if __name__ == "__main__":
    main()
