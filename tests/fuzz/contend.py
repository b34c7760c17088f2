"""One model on several runtimes, and where their answers differ."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
from onnx import ModelProto

import onnxplug
from onnxplug.contract.types import element_of

CPU = ["CPUExecutionProvider"]
Feeds = Mapping[str, Any]
FAULT = "GeneratorFault"
"""What an answer has as its error where generated code was wanted and only the log tells why there is none."""


@dataclass(frozen=True)
class Answer:
    """The outputs of each run, or the class and message of what a session or its first failing run raised."""

    outputs: tuple[list[Any], ...] = ()
    error: str = ""
    message: str = ""


def onnxruntime(model: bytes, runs: Sequence[Feeds]) -> Answer:
    """onnxruntime's CPU provider."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # it crashes fusing some attention
    return _answer(lambda: ort.InferenceSession(model, options, providers=CPU), runs)


def _in_turn(session: Any, runs: Sequence[Feeds]) -> list[list[Any]]:
    return [list(session.run(None, dict(feeds))) for feeds in runs]


def _bound(session: Any, runs: Sequence[Feeds]) -> list[list[Any]]:
    """Through a binding, into memory of the caller's: the second time results lie where the first ones were."""
    binding = session.io_binding()
    tensors = {i.name for i in session.get_inputs() if i.type.startswith("tensor(") and "string" not in i.type}
    results = []
    for feeds, first in zip(runs, _in_turn(session, runs), strict=True):
        plain = [isinstance(value, np.ndarray) and value.dtype.kind in "fiub" for value in first]
        if not all(plain) or tensors != set(feeds):
            results.append(first)
            continue
        places = [np.zeros_like(value) for value in first]
        for name, value in feeds.items():
            binding.bind_cpu_input(name, np.asarray(value, order="C"))
        for output, place in zip(session.get_outputs(), places, strict=True):
            binding.bind_ortvalue_output(output.name, onnxplug.OrtValue.ortvalue_from_numpy(place))
        for _ in range(2):
            session.run_with_iobinding(binding)
        results.append(binding.copy_outputs_to_cpu())
    return results


def _together(session: Any, runs: Sequence[Feeds]) -> list[list[Any]]:
    """Several threads at once, each in an order of its own; what the last of them says."""
    found: list[list[Any]] = [[] for _ in runs]
    order = [*range(len(runs))] * 2

    def some(numbers: Sequence[int]) -> None:
        for number in numbers:
            found[number] = list(session.run(None, dict(runs[number])))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(some, numbers) for numbers in (order, order[::-1], order[1::2])]:
            done.result()
    return found


def plug(
    entries: Mapping[str, str] = {},
    smallest: int | None = 1,
    threads: int = 2,
    optimized: bool = True,
    way: Callable[[Any, Sequence[Feeds]], list[list[Any]]] = _in_turn,
) -> Callable[[bytes, Sequence[Feeds]], Answer]:
    """The CPU provider with these session config entries, run in a ``way``; regions of ``smallest`` nodes are compiled."""

    def run(model: bytes, runs: Sequence[Feeds]) -> Answer:
        from onnxplug_ep_cpu.codegen import capability, region

        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        if not optimized:
            options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
        for key, value in entries.items():
            options.add_session_config_entry(key, value)

        def make() -> Any:
            with mock.patch.object(capability, "SMALLEST", smallest if smallest is not None else capability.SMALLEST):
                return onnxplug.InferenceSession(model, options, providers=CPU)

        faults: list[str] = []
        by_node = region.NativeRegion._by_node

        def noting(made: region.NativeRegion, specs: Any, reason: str) -> Any:
            if reason.startswith(region.FAULT):
                faults.append(traceback.format_exc(limit=-2))
            return by_node(made, specs, reason)

        with np.errstate(all="ignore"), mock.patch.object(region.NativeRegion, "_by_node", noting):
            answer = _answer(make, runs, way)
        return Answer(error=FAULT, message=faults[0]) if faults else answer

    return run


def reference(model: bytes, runs: Sequence[Feeds]) -> Answer:
    """``onnx.reference`` in float64."""
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    chosen: list[Any] = [("ReferenceExecutionProvider", {"float64": "1", "memory": "host"})]
    with np.errstate(all="ignore"):
        return _answer(lambda: onnxplug.InferenceSession(model, options, providers=chosen), runs)


def plain(model: bytes, runs: Sequence[Feeds]) -> Answer:
    """The model as it is written, node by node with NumPy."""
    return plug({"ep.cpu.codegen": "0"}, optimized=False)(model, runs)


def opencl(model: bytes, runs: Sequence[Feeds]) -> Answer:
    """The OpenCL provider on PoCL, its tensors between forbidden pages."""
    from fuzz.guard import guarded

    options = onnxplug.SessionOptions()
    options.log_severity_level = 4
    chosen: list[Any] = [("OpenCLExecutionProvider", {"platform": "Portable"}), *CPU]
    with np.errstate(all="ignore"), guarded():
        return _answer(lambda: onnxplug.InferenceSession(model, options, providers=chosen), runs)


CONTENDERS: dict[str, Callable[[bytes, Sequence[Feeds]], Answer]] = {
    "native": plug(),
    "numpy": plug({"ep.cpu.codegen": "0"}),
    "avx2": plug({"ep.cpu.target": "avx2"}),
    "generic": plug({"ep.cpu.target": "generic"}),
    "alone": plug(smallest=None, threads=1),
    "unoptimized": plug(optimized=False),
    "bound": plug(way=_bound),
    "together": plug(way=_together),
    "opencl": opencl,
}


def _answer(
    make: Callable[[], Any], runs: Sequence[Feeds], way: Callable[[Any, Sequence[Feeds]], list[list[Any]]] = _in_turn
) -> Answer:
    try:
        return Answer(tuple(way(make(), runs)))
    except Exception as error:  # of either runtime's classes
        return Answer(error=type(error).__name__, message=str(error)[:400])


def difference(got: Any, want: Any, slack: Any = 0.0) -> str:
    """How two outputs differ beyond rounding (and ``slack``); nothing where they do not."""
    if isinstance(want, list) or isinstance(got, list):
        if not (isinstance(want, list) and isinstance(got, list)) or len(want) != len(got):
            return "sequences of different lengths"
        return next((found for pair in zip(got, want, strict=True) if (found := difference(*pair))), "")
    if isinstance(want, dict) and isinstance(got, dict) and want.keys() == got.keys():
        return difference(*(np.array([each[key] for key in want]) for each in (got, want)), slack)
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return "" if type(got) is type(want) and got == want else f"{got!r:.80} for {want!r:.80}"
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    element = element_of(got.dtype)
    if element != element_of(want.dtype):
        return f"{got.dtype} for {want.dtype}"
    if got.dtype.kind in "OUSbiu" or "int" in element:
        same = np.asarray(got == want)
    else:
        same = _close(got, want, slack)
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0]) if same.ndim else ()
    return f"{got[at]!r} for {want[at]!r} at {at} ({int((~same).sum())} of {same.size}, {got.dtype})"


def _close(got: np.ndarray, want: np.ndarray, slack: Any) -> np.ndarray:
    mine, theirs = got.astype(np.complex128), want.astype(np.complex128)
    with np.errstate(all="ignore"):
        same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        finite = np.isfinite(mine) & np.isfinite(theirs)
        scale = float(np.abs(theirs[finite]).max()) if finite.any() else 0.0
        kind = got.dtype if got.dtype.kind != "c" else got.real.dtype
        eps = float(ml_dtypes.finfo(kind).eps)
        few = 8 if kind.itemsize <= 2 else 64
        eps = max(eps, 1e-8)  # much that is of type double is computed with tables or factors in float
        return np.asarray(
            same
            | (
                finite
                & (np.abs(mine - theirs) <= few * eps * (np.abs(theirs) + scale) + np.nan_to_num(slack, posinf=0))
            )
        )


def slack_of(model: ModelProto, feeds: Feeds, seed: int = 0) -> list[Any]:
    """How far outputs move when the floats of feeds and initializers move by their last digits: what rounding on the way may do."""
    from onnx import numpy_helper

    run = CONTENDERS["numpy"]
    first = run(model.SerializeToString(), [feeds])
    if not first.outputs:
        return []
    found: list[Any] = [0.0] * len(first.outputs[0])
    for number in range(3):
        rng = np.random.default_rng(seed + number)
        moved = ModelProto()
        moved.CopyFrom(model)
        for tensor in moved.graph.initializer:
            value = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(_moved(value, rng), tensor.name))
        again = run(moved.SerializeToString(), [{n: _moved(v, rng) for n, v in feeds.items()}])
        if not again.outputs:
            continue
        for index, (a, b) in enumerate(zip(first.outputs[0], again.outputs[0], strict=True)):
            if (
                isinstance(a, np.ndarray)
                and isinstance(b, np.ndarray)
                and a.shape == b.shape
                and a.dtype.kind not in "OUSb"
            ):
                with np.errstate(all="ignore"):
                    found[index] = np.maximum(
                        found[index], 16 * np.abs(a.astype(np.complex128) - b.astype(np.complex128))
                    )
    return found


def _moved(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUSbiu" or "int" in value.dtype.name:
        return value
    eps = float(ml_dtypes.finfo(value.dtype).eps) if value.dtype.kind != "c" else 1e-7
    factor = 1 + 2 * eps * rng.choice([-1, 1], value.shape)
    return np.asarray(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64) * factor).astype(
        value.dtype
    )
