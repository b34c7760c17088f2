"""onnxplug against IREE, which compiles a model ahead of time, on this machine.

::

    nox -s bench_iree                      # our own models
    nox -s bench_iree -- --only encoder
    nox -s bench_iree -- FOLDER            # every model of a folder, inputs made from the declared shapes

IREE is given the shapes of the inputs, its highest optimization level, the processor's own instructions, and both the same number of
threads. Runs are timed in one process, in turns; IREE's threads do not spin, so neither do ours. Making is timed once, for us with what
the cache of kernels holds: set ONNXPLUG_CACHE_DIR to an empty folder to time the compiler too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import HERE, agree, slug
from inputs import feeds_of
from models import CASES
from runtimes import Feeds, Run, open_model
from timing import compared, cores, interleaved, machine

FLAGS = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
LEVEL = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3")
LEAST_OPSET = 17
"""Of models that IREE's importer is made for."""
Row = dict[str, Any]


def main() -> None:
    """Measure, write the results, print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="time the models of this folder instead of our own")
    parser.add_argument("--only", help="one of the models")
    parser.add_argument("--seconds", type=float, default=8.0, help="spent on the runs of each model (default: 8)")
    parser.add_argument("--threads", type=int, default=cores(), help="of each (default: all processors)")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "iree", help="where results are written to")
    given = parser.parse_args()
    rows, left_out = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _models(given, Path(folder)):
            try:
                rows.append(_case(name, path, given, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
            except Exception as error:  # whatever a contender thinks of a model
                left_out[name] = f"{type(error).__name__}: {error}"
                print(f"{name} is left out: {left_out[name]}", flush=True)
    found = {
        "date": datetime.date.today().isoformat(), "machine": machine(), "threads": given.threads, "flags": [*FLAGS, *LEVEL],
        "left_out": left_out, "rows": rows,
    }  # fmt: skip
    given.results.mkdir(exist_ok=True, parents=True)
    target = given.results / f"{slug(found)}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {target}")


def _models(given: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path]]:
    if given.folder:
        yield from ((p.stem, p) for p in sorted(given.folder.rglob("*.onnx")) if given.only in (None, p.stem))
        return
    for name, make in CASES.items():
        if given.only in (None, name):
            path = folder / "model.onnx"
            path.write_bytes(make().SerializeToString())
            yield name, path


def _case(name: str, path: Path, given: argparse.Namespace, folder: Path) -> Row:
    """Milliseconds of a run of both, seconds of making what is run."""
    feeds = feeds_of(path, {})
    began = time.perf_counter()
    ours = open_model("onnxplug", path, given.threads, spinning=False)
    results = ours(feeds)
    created = time.perf_counter() - began
    fixed = _fixed(path, feeds, results, folder / "fixed.onnx")
    began = time.perf_counter()
    theirs = _iree(fixed, folder, given.threads)
    compiled = time.perf_counter() - began
    agree({"onnxplug": results, "iree": theirs(feeds)})
    samples = interleaved([lambda: ours(feeds), lambda: theirs(feeds)], given.seconds)
    made = {"onnxplug": round(created, 3), "iree": round(compiled, 3)}
    return {"model": name, **compared(dict(zip(("onnxplug", "iree"), samples, strict=True))), "seconds to make": made}


def _fixed(path: Path, feeds: Feeds, results: Sequence[np.ndarray], target: Path) -> Path:
    """The model for the shapes of the feeds, in the form that IREE's importer takes: no weight is an input, every output has a shape."""
    model = onnx.load(path)
    graph = model.graph
    inputs = [value for value in graph.input if value.name in feeds]
    del graph.input[:], graph.value_info[:]
    graph.input.extend(inputs)
    arrays = [*(feeds[value.name] for value in inputs), *results]
    for value, array in zip([*graph.input, *graph.output], arrays, strict=True):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, array.shape))
    model.ir_version = max(model.ir_version, 4)  # with which weights need not be inputs
    if next(o.version for o in model.opset_import if not o.domain) < LEAST_OPSET:
        model = onnx.version_converter.convert_version(model, LEAST_OPSET)
    onnx.save(model, target)
    return target


def _iree(path: Path, folder: Path, threads: int) -> Run:
    """What IREE makes of a model. RuntimeError with the end of what its tools say where they fail."""
    import iree.runtime as runtime

    written, compiled = folder / "model.mlir", folder / "model.vmfb"
    _tool("iree-import-onnx", path, "-o", written)
    _tool("iree-compile", written, "-o", compiled, *FLAGS, *LEVEL)
    runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, compiled.read_bytes()), config)
    graph = onnx.load(path, load_external_data=False).graph
    names = [value.name for value in graph.input]
    function = module[graph.name]

    def run(feeds: Feeds) -> list[np.ndarray]:
        found = function(*(feeds[name] for name in names))
        return [np.asarray(each.to_host()) for each in (found if isinstance(found, tuple) else (found,))]

    return run


def _tool(name: str, *arguments: object) -> None:
    done = subprocess.run(
        [str(Path(sysconfig.get_path("scripts")) / name), *map(str, arguments)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")


if __name__ == "__main__":
    sys.exit(main())
