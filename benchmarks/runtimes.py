"""The contenders behind one door: a model is opened, run with a dictionary of feeds, and gives its outputs in order."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], Sequence[Any]]

RUNTIMES = ("onnxplug", "onnxruntime", "openvino")


def open_model(runtime: str, path: Path, threads: int, spinning: bool) -> Run:
    """A session of a runtime on the processor. ``spinning``: its defaults; else threads without work sleep at once."""
    if runtime == "openvino":
        return _openvino(path, threads)
    module = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)  # type: ignore[no-any-return]


def missing(runtime: str) -> str | None:
    """Why a runtime cannot be timed here; None where it can."""
    return None if importlib.util.find_spec(runtime) else f"not installed (pip install {runtime})"


def _openvino(path: Path, threads: int) -> Run:
    """Float32 as in the other two: by default OpenVINO computes in bfloat16 where the processor can. Its threads do not spin."""
    openvino = importlib.import_module("openvino")
    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", hints)
    request, outputs = compiled.create_infer_request(), list(compiled.outputs)

    def run(feeds: Feeds) -> Sequence[Any]:
        results = request.infer(dict(feeds))
        return [results[output] for output in outputs]

    return run
