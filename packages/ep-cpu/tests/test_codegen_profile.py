"""The profile of native regions: which nodes' kernels took how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug as ort

NET = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 3, 16, 16] x, float[8, 3, 3, 3] w, float[8] b, float[8, 8, 1, 1] v) => (float[1, 8] y) {
  c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu (c)
  d = Conv (r, v)
  s = Add (d, r)
  t = Tanh (s)
  g = GlobalAveragePool (t)
  y = Flatten (g)
}
"""


def made(text: str, weights: dict[str, np.ndarray], folder: Path, **options: Any) -> ort.InferenceSession:
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    kept = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    settings = ort.SessionOptions()
    settings.profile_file_prefix = str(folder / "p")
    for name, value in options.items():
        setattr(settings, name, value)
    return ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def events(session: ort.InferenceSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def net() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    draw = np.random.default_rng(5)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 1, 1)}
    weights = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return weights, {"x": draw.standard_normal((1, 3, 16, 16), np.float32)}


def last_steps(kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kernels without what they do first, such as turning the input, which the processor decides."""
    behind = [*(set(event["args"]["nodes"]) for event in kernels[1:]), set()]
    return [event for event, then in zip(kernels, behind, strict=True) if not set(event["args"]["nodes"]) <= then]


@pytest.mark.parametrize("threads", [1, 2])
def test_each_kernel_names_the_nodes_it_computes(net: Any, tmp_path: Path, threads: int) -> None:
    weights, feed = net
    session = made(NET, weights, tmp_path, enable_profiling=True, intra_op_num_threads=threads)
    (region,) = session.explain().regions
    (result,) = session.run(None, feed)
    (plain,) = made(NET, weights, tmp_path, intra_op_num_threads=threads).run(None, feed)
    assert result.tobytes() == plain.tobytes()
    found = events(session)
    steps = [event for event in found if event["cat"] == "Kernel"]
    kernels = last_steps(steps)
    operators = [event["args"]["op_name"] for event in kernels]
    assert operators == ["Conv+Relu", "Conv+Add+Tanh", "GlobalAveragePool", "Flatten"]
    shapes = [event["args"]["output_type_shape"] for event in kernels]
    assert shapes == [[{"float": shape}] for shape in ([1, 8, 16, 16], [1, 8, 16, 16], [1, 8, 1, 1], [1, 8])]
    assert steps[0]["args"]["input_type_shape"][0] == {"float": [1, 3, 16, 16]}
    (whole,) = [event for event in found if event["cat"] == "Node"]
    assert {event["args"]["region"] for event in steps} == {whole["args"]["node_name"]} == {region["name"]}
    named = [name for event in kernels for name in event["args"]["nodes"]]
    assert len(named) == len(set(named)) and set(named) == set(whole["args"]["nodes"])
    assert all(whole["ts"] <= e["ts"] and e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] for e in steps)


def test_a_run_behind_the_profile_is_one_call_again(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, feed = net
    session = made(NET, weights, tmp_path, enable_profiling=True)
    session.run(None, feed)
    events(session)
    from onnxplug_ep_cpu.codegen.image import Image

    monkeypatch.setattr(Image, "parts", None)
    session.run(None, feed)


def test_an_expression_computed_for_two_readers_is_told_once(tmp_path: Path) -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    net (float[64] x) => (float[64] y, float[64] z) {
      a = Exp (x)
      b = Neg (a)
      y = Tanh (b)
      z = Sqrt (a)
    }
    """
    session = made(text, {}, tmp_path, enable_profiling=True)
    session.run(None, {"x": np.linspace(0, 1, 64, dtype=np.float32)})
    kernels = [event["args"]["op_name"] for event in events(session) if event["cat"] == "Kernel"]
    assert sorted(kernels) == ["Exp", "Neg+Tanh", "Sqrt"]


def test_nodes_that_run_with_numpy_are_told_as_well(tmp_path: Path) -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    net (float[4] x, int64[2] k) => (float[2] y) {
      a = Exp (x)
      g = Gather (a, k)
      y = Neg (g)
    }
    """
    session = made(text, {}, tmp_path, enable_profiling=True)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        session.run(None, {"x": np.ones(4, np.float32), "k": np.array([0, 9])})
    (y,) = session.run(None, {"x": np.zeros(4, np.float32), "k": np.array([0, -1])})
    assert y.tolist() == [-1, -1]
    assert {"Exp", "Gather+Neg"} & {e["args"]["op_name"] for e in events(session) if e["cat"] == "Kernel"}
