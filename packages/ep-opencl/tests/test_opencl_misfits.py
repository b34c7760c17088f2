"""Operands that do not go together, which only a run of a model with open dimensions brings: a kernel, which reads and writes by their
shapes alone, refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, parser
from opencl_models import PROVIDER, needs_device

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument

pytestmark = needs_device
CASES = {
    "y = Conv (x, w, b)": {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3), "b": (2,)},
    "y = ConvTranspose (x, w)": {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3)},
    "y = Gemm (x, w, b)": {"x": (3, 4), "w": (4, 5), "b": (4,)},
    "y = BatchNormalization (x, b, b, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = InstanceNormalization (x, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = LayerNormalization (x, b)": {"x": (2, 6), "b": (5,)},
    "y = GroupNormalization <num_groups = 3> (x, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = PRelu (x, b)": {"x": (2, 6), "b": (5,)},
    "y = ReverseSequence (x, n)": {"x": (4, 6, 2), "n": (5,)},
    "y = GatherND <batch_dims = 1> (x, k)": {"x": (2, 4), "k": (9, 1)},
    "y = Attention (x, k4, v)": {"x": (1, 2, 2, 4), "k4": (1, 2, 5, 1), "v": (1, 2, 5, 4)},
    "y = Attention (x, k4, v, m)": {"x": (1, 2, 3, 4), "k4": (1, 2, 5, 4), "v": (1, 2, 5, 4), "m": (3, 6)},
    "y = DepthToSpace <blocksize = 2> (x)": {"x": (1, 5, 2, 2)},
    "y = SpaceToDepth <blocksize = 2> (x)": {"x": (1, 1, 3, 3)},
    "y = ArgMax <axis = 1> (x)": {"x": (3, 0)},
    "y = Conv <strides = [2, 2]> (x, w)": {"x": (1, 2, 2, 2), "w": (3, 2, 4, 4)},
    "y = Conv (x, w)": {"x": (1, 2, 1, 1), "w": (3, 2, 3, 3)},
    "y = GlobalAveragePool (x)": {"x": (1, 2, 0, 3)},
    "y = ConvTranspose <pads = [1, 1, 1, 1]> (x, w)": {"x": (1, 2, 0, 3), "w": (2, 3, 2, 2)},
    'y = ConvTranspose <auto_pad = "SAME_UPPER"> (x, w)': {"x": (1, 2, 0, 3), "w": (2, 3, 3, 3)},
    "y = ConvInteger (q, p)": {"q": (1, 2, 2, 2), "p": (3, 2, 3, 3)},
    "y = ConvInteger  (q, p)": {"q": (1, 2, 1, 1), "p": (3, 2, 3, 3)},
    'y = Einsum <equation = "ij,jk->ik"> (x, w)': {"x": (2, 3), "w": (4, 5)},
    "y = com.microsoft.FusedMatMul <transB = 1> (x, w)": {"x": (2, 3), "w": (4, 5)},
    "y = NonMaxSuppression (x, w)": {"x": (1, 5, 4), "w": (1, 2, 6)},
    "y = ScatterND (x, k, u)": {"x": (4, 6), "k": (3, 1), "u": (3, 5)},
    "y = ScatterElements (x, k, u)": {"x": (4, 6), "k": (2, 6), "u": (2, 5)},
    "y = GatherElements (x, k)": {"x": (4, 6), "k": (2, 9)},
    "y, h = GRU <hidden_size = 2> (x, w, r)": {"x": (3, 1, 4), "w": (1, 6, 4), "r": (1, 6, 3)},
    "y, h = LSTM <hidden_size = 2> (x, w, r)": {"x": (3, 1, 4), "w": (2, 8, 4), "r": (2, 8, 2)},
    "y, z = Split <num_outputs = 2> (x)": {"x": (1, 4)},
    "v = Gemm (x, w) y = Softmax (v)": {"x": (3, 4), "w": (5, 4)},
    "v = MatMul (x, w) y = Concat <axis = 1> (v, x)": {"x": (4, 3), "w": (4, 3)},
}


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def build(text: str, feeds: dict[str, np.ndarray]) -> bytes:
    """A model of these nodes, of which the one with the most to say is called culprit, and whose extents are all open."""
    inputs = ", ".join(
        f"{'float' if value.dtype == np.float32 else value.dtype}[{', '.join(name + str(k) for k in range(value.ndim))}] {name}"
        for name, value in feeds.items()
    )
    opset = 18 if "GroupN" in text else 23 if "Attention" in text or "y = Rotary" in text else 21
    domains = f'"": {opset}, "com.microsoft": 1'
    model = parser.parse_model(
        f"<ir_version: 9, opset_import: [{domains}]> g ({inputs}) => (float[a, b] y) {{ {text} }}"
    )
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
        others = {"ConvInteger": TensorProto.INT32} | dict.fromkeys(
            ("ArgMax", "NonMaxSuppression", "Range"), TensorProto.INT64
        )
        output.type.tensor_type.elem_type = others.get(model.graph.node[0].op_type, TensorProto.FLOAT)
    for node in model.graph.node:
        node.name = node.name or "culprit"
    return model.SerializeToString()


def assert_refused_as_on_the_cpu(model: bytes, feeds: dict[str, np.ndarray]) -> None:
    """By an error of the class that the CPU provider has, which names the node."""
    kinds = []
    for provider in (PROVIDER, "CPUExecutionProvider"):
        session = ort.InferenceSession(model, providers=[provider])
        with pytest.raises((Fail, InvalidArgument), match="culprit") as raised:
            session.run(None, feeds)
        kinds.append(raised.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("text", CASES)
def test_operands_that_do_not_go_together(text: str) -> None:
    types = {"n": np.int64, "k": np.int64, "q": np.uint8, "p": np.uint8}
    feeds = {n: np.zeros(s, types.get(n, np.float32)) for n, s in CASES[text].items()}
    assert_refused_as_on_the_cpu(build(text, feeds), feeds)


VALUES: dict[str, dict[str, Any]] = {
    "y = ReverseSequence (x, n)": {"x": ones(4, 2), "n": [5, 2]},
    "y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n)": {"x": ones(4, 2), "n": [2, -1, 2, 2]},
    "y = Expand (x, n)": {"x": ones(2, 3), "n": [2, 4]},
    "y = Pad (x, n)": {"x": ones(2, 3), "n": [-5, 0, 0, 0]},
    'y = Pad <mode = "edge"> (x, n)': {"x": ones(2, 0), "n": [0, 1, 0, 1]},
    "y, z = Split <axis = 1> (x, n)": {"x": ones(2, 3), "n": [4, -1]},
    "y = CumSum (x, n)": {"x": ones(2, 3), "n": 5},
    "y = Range (n, m, d)": {"n": 0, "m": 5, "d": 0},
    "y, z = TopK (x, n)": {"x": ones(2, 3), "n": [4]},
    "y = RotaryEmbedding (x, w, w, n)": {"x": ones(1, 2, 3, 4), "w": ones(5, 2), "n": [[0, -1, 2]]},
    "y = com.microsoft.RotaryEmbedding (x, n, w, w)": {"x": ones(1, 2, 3, 4), "w": ones(5, 2), "n": [[0, -1, 2]]},
    "y = RoiAlign (x,  w, n)": {"x": ones(2, 1, 4, 6), "w": ones(1, 3), "n": [0]},
    "y = RoiAlign (x, w, n)": {"x": ones(2, 1, 4, 6), "w": ones(1, 4), "n": [-1]},
    "y = RoiAlign  (x, w, n)": {"x": ones(2, 1, 4, 6), "w": np.array([[0, np.nan, 1, 1]], np.float32), "n": [0]},
    "y = GatherElements (x, n)": {"x": ones(2, 3), "n": [[3, 0, 0]]},
    "y, z = com.microsoft.EmbedLayerNormalization (i, s, w, w, w, b, b)": {
        "i": np.array([[1, -1]], np.int32),
        "s": np.array([[0, 1]], np.int32),
        "w": ones(5, 4),
        "b": ones(4),
    },
    "y, z = com.microsoft.EmbedLayerNormalization  (i, s, w, w, w, b, b)": {
        "i": np.array([[1, 0]], np.int32),
        "s": np.array([[0, -1]], np.int32),
        "w": ones(5, 4),
        "b": ones(4),
    },
}


@pytest.mark.parametrize("text", VALUES)
def test_numbers_that_mean_nothing(text: str) -> None:
    feeds = {name: np.array(value) for name, value in VALUES[text].items()}
    assert_refused_as_on_the_cpu(build(text, feeds), feeds)


def test_a_scale_of_an_extent_that_is_not_known_is_left_to_others() -> None:
    feeds = {"x": ones(2, 3, 5), "b": ones(1)}
    model = build("y = LayerNormalization (x, b)", feeds)
    providers = [PROVIDER, "CPUExecutionProvider"]
    (found,) = ort.InferenceSession(model, providers=providers).run(None, feeds)
    assert found.shape == (2, 3, 5)


def test_a_mean_of_nothing_is_zero() -> None:
    feeds = {"x": ones(3, 0), "n": np.array([1])}
    (found,) = ort.InferenceSession(build("y = ReduceMean (x, n)", feeds), providers=[PROVIDER]).run(None, feeds)
    assert found.tolist() == [[0]] * 3
