"""Operands that do not go together, which only a run of a model with open dimensions brings: a kernel, which reads and writes by their
shapes alone, refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser
from opencl_models import PROVIDER, needs_device
from test_opencl_attention import model as contrib_model

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


def filled(*shapes: tuple[int, ...] | None) -> list[Any]:
    return [None if shape is None else np.ones(shape, np.float32) for shape in shapes]


def grouped(*changed: tuple[int, tuple[int, ...]], places: tuple[int, ...] | None = None) -> list[Any]:
    """Operands of GroupQueryAttention of 90 new rows, of which some have another shape."""
    shapes = [*[(1, 90, 32)] * 3, *[(1, 4, 5, 8)] * 2, (1,), (1,), *[(95, 4)] * 2]
    for number, shape in changed:
        shapes[number] = shape
    operands = filled(*shapes)
    operands[5], operands[6] = np.array([94], np.int32), np.array([95], np.int32)
    return operands if places is None else [*operands, np.zeros(places, np.int64)]


def rows(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


ONE, ZERO = np.float32(1).reshape(()), np.uint8(0).reshape(())
GROUPED: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 4, "do_rotary": 1}
TURNED = [np.ones((2, 6, 16), np.float32), np.zeros((2, 6), np.int64)]
BYTES, FEW = np.zeros((32, 1, 16), np.uint8), {"K": 32, "N": 32, "block_size": 32, "bits": 4}


@pytest.mark.parametrize(
    ("op_type", "operands", "outputs", "attributes"),
    [
        ("RotaryEmbedding", [*TURNED, *filled((50, 4), (2, 4))], 1, {"num_heads": 2}),
        ("RotaryEmbedding", [*TURNED, *filled((50, 600), (50, 600))], 1, {"num_heads": 2, "rotary_embedding_dim": 1200}),
        ("RotaryEmbedding", [*TURNED, *filled((50, 2), (50, 2))], 1, {"num_heads": 3, "rotary_embedding_dim": 4}),
        *[
            ("GroupQueryAttention", operands, 3, GROUPED)
            for operands in (
                grouped((1, (1, 4, 32))), grouped((2, (1, 4, 32))), grouped((0, (9, 90, 32))), grouped((8, (2, 4))),
                grouped((7, (95, 600)), (8, (95, 600))), grouped((4, (1, 4, 1, 8))), grouped(places=(1, 2)),
            )
        ],
        ("MultiHeadAttention", filled((2, 7, 16), (2, 9, 16), (2, 9, 16), (3,)), 1, {"num_heads": 2}),
        ("MultiHeadAttention", filled((2, 7, 16), (2, 9, 16), (2, 9, 16)), 1, {"num_heads": 3}),
        ("MultiHeadAttention", filled((20, 7, 16), (2, 9, 2, 2, 8)), 1, {"num_heads": 2}),
        ("MultiHeadAttention", filled((2, 7, 2, 2, 8)), 1, {"num_heads": 2}),
        ("MultiHeadAttention", filled((2, 7, 5, 3, 8)), 1, {"num_heads": 1}),
        ("MultiHeadAttention", filled((2, 7, 16), (2, 9, 2, 1, 8)), 1, {"num_heads": 2}),
        ("MultiHeadAttention", filled((2, 7, 64), (2, 8, 9, 8), (2, 2, 9, 8)), 1, {"num_heads": 8}),
        (
            "MultiHeadAttention", filled((2, 7, 16), (2, 9, 16), (2, 9, 16), None, None, None, (2, 2, 90, 8), (2, 2, 1, 8)), 3,
            {"num_heads": 2},
        ),
        ("Attention", filled((2, 7, 16), (16, 48), (48,), None, (2, 2, 2, 90, 4)), 2, {"num_heads": 2}),
        ("Attention", filled((2, 7, 16), (16, 48), (48,)), 1, {"num_heads": 3}),
        ("BiasSoftmax", filled((2, 70, 16), (1, 3, 16)), 1, {"axis": 1, "is_inner_broadcast": 1}),
        (
            "EmbedLayerNormalization", [np.zeros((2, 9), np.int32), None, *filled((9, 16), (9, 8), None, (16,), (16,))], 2, {},
        ),
        (
            "EmbedLayerNormalization",
            [np.zeros((2, 9), np.int32), None, *filled((9, 16), (9, 16), None, (16,), (16,)), np.zeros((1, 2), np.int32)], 2, {},
        ),
        ("QLinearConcat", [ONE, ZERO, rows(2, 70, 3), ONE, ZERO, rows(2, 7, 3), ONE, ZERO], 1, {"axis": 2}),
        ("QGemm", [rows(70, 70), ONE, ZERO, rows(3, 5), ONE, ZERO, None, ONE, ZERO], 1, {}),
        ("FusedConv", filled((1, 3, 7, 7), (4, 3, 3, 3), (4,), (1, 4, 2, 2)), 1, {"activation": "Relu"}),
        ("MatMulNBits", [*filled((2, 32)), BYTES, *filled((32,)), None, None, *filled((3,))], 1, FEW),
        ("MatMulNBits", [*filled((2, 32)), BYTES, *filled((32,)), np.zeros((3,), np.uint8)], 1, FEW),
        (
            "GatherBlockQuantized", [np.zeros((90, 16), np.uint8), np.full((7,), 89), *filled((9, 1))], 1,
            {"block_size": 32, "bits": 4},
        ),
    ],
)  # fmt: skip
def test_operands_that_a_kernel_would_read_beside(
    op_type: str, operands: list[Any], outputs: int, attributes: dict[str, Any]
) -> None:
    """All shapes are open, so that only a run shows them."""
    made = onnx.load_from_string(contrib_model(op_type, operands, outputs, "com.microsoft", attributes, 23))
    for value in made.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    session = ort.InferenceSession(made.SerializeToString(), providers=[PROVIDER])
    with pytest.raises((InvalidArgument, Fail)):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize(
    "operands",
    [
        filled((1, 8, 7, 8), (1, 8, 7, 8), (1, 2, 7, 8)),
        filled((8, 8, 7, 8), (8, 8, 7, 8), (1, 8, 7, 8)),
        filled((1, 2, 7, 8), (1, 2, 7, 8), (1, 2, 7, 8), None, (1, 2, 90, 8), (1, 2, 1, 8)),
        filled((1, 2, 7, 8), (1, 2, 7, 8), (1, 2, 7, 8), None, (1, 1, 90, 8), (1, 1, 90, 8)),
    ],
)
def test_attention_of_onnx_that_a_kernel_would_read_beside(operands: list[Any]) -> None:
    made = onnx.load_from_string(contrib_model("Attention", operands, 3 if len(operands) > 3 else 1, "", {}, 23))
    for value in made.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    session = ort.InferenceSession(made.SerializeToString(), providers=[PROVIDER])
    with pytest.raises((InvalidArgument, Fail)):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize("place", [95, -1, 2**62])
def test_places_of_new_rows_that_have_no_angles(place: int) -> None:
    operands = [*grouped(), np.full((1, 90), place)]
    made = contrib_model("GroupQueryAttention", operands, 3, "com.microsoft", GROUPED, 23)
    session = ort.InferenceSession(made, providers=[PROVIDER, "CPUExecutionProvider"])
    with pytest.raises(InvalidArgument, match="out of bounds"):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands)})
