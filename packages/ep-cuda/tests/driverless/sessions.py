"""Sessions of the CUDA provider without a driver, in a process of their own: ``python -m driverless.sessions REPORT ITEMS [simulated]``,
ITEMS a list in JSON.

A line of JSON for each item: what went wrong, the operators that another provider ran, results whose type or shape, and on a device that
is simulated whose numbers, are not the CPU provider's. Items: "smoke NAME" of ``benchmarks/gpu_smoke.py``, "node CELL" of the operator
tests, "recorded CELL" the same with CUDA graphs, "typed CELL" the same as a node, and from there on no kernel is compiled, "contrib NAME"
one of ``driverless.structures``, "captured NAME" the same with CUDA graphs, "part PART ITEM" an item of ``benchmarks/gpu_parts.py`` over
small architectures, "handles NAME" what becomes of a recording of a smoke test's model, "columns NAME" a smoke test with cuDNN, which
has no plan.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from driverless import calls, cublas, kernels

ROOT = Path(__file__).parents[4]
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
Row = dict[str, Any]


def prepare() -> calls.Driver:
    """The answers in the driver's place, and a provider that finds a device."""
    driver = calls.install()
    driver.library = cublas.load(Path(tempfile.mkdtemp()))
    import cupy

    from onnxplug.contract import Available
    from onnxplug_ep_cuda import device, plugin

    plugin.check = device.check = lambda *_: Available("nothing")  # type: ignore[attr-defined, assignment]
    device.gpu_names = lambda load: ["nothing"]
    device.missing_cudnn = lambda: "cuDNN has calls of its own"
    cupy.RawModule = kernels.judging(driver, cupy.RawModule)
    return driver


def opened(data: bytes, provider: str, **options: object) -> Any:
    """A session in which nothing is replaced by another provider."""
    import onnxplug

    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    providers = [(provider, options), *([CPU] if provider != CPU else [])]
    return onnxplug.InferenceSession(data, strict, providers=providers, enable_fallback=0)


def compared(driver: calls.Driver, data: bytes, feeds: dict[str, Any], runs: int, **options: object) -> Row:
    """What some runs of a model broke."""
    driver.broken.clear()
    made = opened(data, CUDA, **options)
    others = sorted({owner for owner in made.placement().values()} - {CUDA})
    for _ in range(runs):
        results = made.run(None, feeds)
    made.close()
    wanted = opened(data, CPU).run(None, feeds)
    floats = [
        np.abs(x[np.isfinite(x)]).max(initial=0) for x in feeds.values() if getattr(x, "dtype", None) == np.float32
    ]
    largest = float(max(floats, default=0))
    differ = [said for got, right in zip(results, wanted, strict=True) if (said := _apart(driver, got, right, largest))]
    return {"others": others, "broken": list(driver.broken), "differ": differ}


def _apart(driver: calls.Driver, got: Any, right: Any, largest: float) -> str | None:
    """In what a result is not the CPU provider's: a few roundings of its type apart, at its magnitude, or at that of what was fed, are
    none."""
    if not hasattr(right, "dtype"):
        return None
    if (got.dtype, got.shape) != (right.dtype, right.shape):
        return f"{got.dtype}{list(got.shape)} where the CPU provider gives {right.dtype}{list(right.shape)}"
    if driver.machine is None:
        return None
    if got.dtype.kind in "iubOU":
        apart = got != right
    else:
        eps = float(ml_dtypes.finfo(right.real.dtype).eps)
        with np.errstate(all="ignore"):
            exact, x = (a.astype(np.complex128) for a in (right, got))
            size = np.abs(exact[np.isfinite(exact)]).max(initial=largest)
            near = np.abs(x - exact) <= eps * (8 * np.abs(exact) + 2 * size) + _FLUSHED
            apart = ~(near | (exact == x) | (np.isnan(exact) & np.isnan(x)))
    return f"{got[apart][:3]} where the CPU provider gives {right[apart][:3]}" if apart.any() else None


_FLUSHED = 2.0**-126
"""Smaller numbers of float32 and bfloat16 are zero on the device."""


def smoke(driver: calls.Driver, name: str) -> Row:
    """One model of the first look at a GPU."""
    tool = importlib.import_module("gpu_smoke")
    found = tool.SMOKES[name]
    options = {"use_tf32": 0, **found.options}
    return compared(driver, tool.model(found).SerializeToString(), tool.feeds(found, 0), 4, **options)


def node(driver: calls.Driver, name: str, *, recorded: bool = False) -> Row:
    """One random legal node."""
    from operators.cells import all_cells
    from operators.model import feeds_of, model_of

    cell = next(c for c in all_cells() if str(c) == name)
    (case,) = drawn(cell)
    if recorded:  # whose inputs are all on the device
        case = hosted(case)
        driver.calls.clear()
    data, feeds = model_of(case), feeds_of(case)
    row = {"case": str(case)[:300]}
    if not recorded:
        return row | compared(driver, data, feeds, 1, use_tf32=0)
    found = compared(driver, data, feeds, 3, use_tf32=0, enable_cuda_graph=1)
    return row | found | {"recorded": driver.calls["streamBeginCapture"] > 0}


def contrib(driver: calls.Driver, name: str, *, recorded: bool = False) -> Row:
    """A node of an operator that ONNX does not define."""
    from driverless.structures import examples, feeds, recordable

    target = examples()[name]
    if not recorded:
        return compared(driver, target.model().SerializeToString(), feeds(target), 1, use_tf32=0)
    made, given = recordable(target)
    return compared(driver, made.SerializeToString(), given, 3, use_tf32=0, enable_cuda_graph=1)


def part(driver: calls.Driver, name: str) -> Row:
    """What is measured on a GPU, of small models."""
    tool, models = importlib.import_module("gpu_parts"), importlib.import_module("gpu_models")
    tool.ARCHITECTURES = {each: functools.partial(models.small, each) for each in models.ARCHITECTURES}
    driver.broken.clear()
    kind, _, item = name.partition(" ")
    row: Row = tool.PARTS[kind].measure(item, argparse.Namespace(seconds=0.0, search="HEURISTIC"))
    return {**row, "broken": list(driver.broken)}


def typed(driver: calls.Driver, name: str) -> Row:
    """``node`` whose kernels are not compiled."""
    calls.uncompiled(driver)
    return node(driver, name)


def hosted(case: Any) -> Any:
    """A case in which what kernels want on the host is constant."""
    from onnxplug_kernels.catalogue import find

    entry = find(*case.cell[:3])
    given = {n for n in (entry.host_inputs if entry is not None else ()) if n < len(case.inputs)}
    constant = {n for n in given if isinstance(case.inputs[n], np.ndarray)}
    return replace(case, initializers=frozenset(case.initializers) | constant)


def drawn(cell: Any) -> Iterator[Any]:
    """A case of a cell."""
    from operators.case import find_strategy
    from operators.draws import draw_cases

    cases: list[Any] = []
    strategy = find_strategy(cell.domain, cell.op_type)
    assert strategy is not None
    draw_cases(cell, strategy, cases.append, 1)
    yield from cases


def handles(driver: calls.Driver, name: str) -> Row:
    """A recording made by a thread that ends, replayed by this one, released, and the session closed: how many handles of cuBLAS and
    recordings were given back by then, and bytes of memory that are taken."""
    tool = importlib.import_module("gpu_smoke")
    data, feeds = tool.model(tool.SMOKES[name]).SerializeToString(), tool.feeds(tool.SMOKES[name], 0)
    row: Row = {}

    def count(when: str) -> None:
        gc.collect()
        memory = sum(driver.blocks.values())
        row[when] = driver.library.cublasDestroyed(), driver.calls["graphExecDestroy"], memory

    driver.broken.clear()
    count("before")
    made = opened(data, CUDA, enable_cuda_graph=1)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            pool.submit(made.run, None, feeds).result()
    made.run(None, feeds)
    count("replayed")
    made.release_captured_graph()
    count("released")
    made.close()
    count("closed")
    return {**row, "broken": list(driver.broken)}


class Planless:
    """A session of cuDNN's that has no plan for anything."""

    attend, close = None, lambda self: None

    def convolution(self, problem: Any) -> Any:
        """There is none."""
        from onnxplug_ep_cuda.dnn.plans import NoPlan

        raise NoPlan("of nothing")


def columns(driver: calls.Driver, name: str) -> Row:
    """A smoke test whose convolutions are regions of cuDNN's that has no plan for them."""
    from onnxplug_ep_cuda import provider

    plain = provider.missing_cudnn, provider.CUDAProvider._with_cudnn
    provider.missing_cudnn, provider.CUDAProvider._with_cudnn = lambda: None, lambda self: Planless()  # type: ignore
    try:
        return smoke(driver, name)
    finally:
        provider.missing_cudnn, provider.CUDAProvider._with_cudnn = plain  # type: ignore


KINDS: dict[str, Callable[[calls.Driver, str], Row]] = {
    "smoke": smoke, "handles": handles, "columns": columns, "contrib": contrib, "node": node, "part": part,
    "typed": typed, "recorded": functools.partial(node, recorded=True), "captured": functools.partial(contrib, recorded=True),
}  # fmt: skip


def main(report: Path, items: list[str], *, simulated: bool) -> None:
    """Write a row for each item."""
    driver = importlib.import_module("driverless.simulation").start() if simulated else prepare()
    sys.path.append(str(ROOT / "benchmarks"))
    with report.open("w") as file:
        for item in items:
            kind, _, name = item.partition(" ")
            try:
                row = KINDS[kind](driver, name)
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
            file.write(json.dumps({"item": item, **row}) + "\n")
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), simulated="simulated" in sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # CuPy's objects would call what is gone by then
