"""Which outputs may be asked for, and how, in onnxruntime's words."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import pytest


@functools.cache
def session(module: str) -> Any:
    """A session of a model that hands on X as Xo and W as Wo."""
    from onnx import TensorProto, helper

    names = {"X": "Xo", "W": "Wo"}
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in (*names, *names.values())]
    nodes = [helper.make_node("Identity", [given], [made]) for given, made in names.items()]
    graph = helper.make_graph(nodes, "g", shown[:2], shown[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    runtime = importlib.import_module(module)
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def fetch(request: pytest.FixtureRequest) -> Any:
    """fetch(names) -> how many results come back."""
    feed = {name: np.ones((1, 2), np.float32) for name in "XW"}
    return lambda names: len(session(request.param).run(names, feed))


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (None, 2),
        ([], 2),
        ((), 2),
        ("", 2),
        (0, 2),
        (["Wo"], 1),
        (["Xo", "Xo"], 2),
        ({"Xo"}, 1),
        ([b"Xo"], 1),
        (np.array(["Xo"]), 1),
    ],
)
def test_requested_outputs(fetch: Any, names: Any, count: int) -> None:
    assert fetch(names) == count


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ("Xo", "TypeError", "incompatible function arguments"),
        (b"Xo", "TypeError", ""),
        ({"Xo": 1}, "TypeError", ""),
        (5, "TypeError", ""),
        ([5], "TypeError", ""),
        ([None], "TypeError", ""),
        (["nope"], "InvalidArgument", "Invalid output name:nope"),
        ([""], "InvalidArgument", "Invalid output name:"),
        (["X"], "InvalidArgument", "Invalid output name:X"),
    ],
)
def test_refused_outputs(fetch: Any, names: Any, error: str, text: str) -> None:
    with pytest.raises(Exception) as caught:
        fetch(names)
    assert type(caught.value).__name__ == error and text in str(caught.value)
