"""Feeds whose shapes do not go together, where the model leaves dimensions open: refused as onnxruntime refuses them, by generated
code as by kernels, and nothing is read or written beside its memory."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnxplug
from onnxplug.contract.fits import fits

CPU = ["CPUExecutionProvider"]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


INTS = {"a": np.array([0]), "two": np.array([2, 1]), "four": np.array([4, 4]), "six": np.array([2, 3])}
CASES = {
    "v = Add (x, w) y = Relu (v)": ("float[N, M] x", ones(5, 4), [[(5, 4)], [(3, 4)], [(6, 4)], [(5, 3)]]),
    "v = Squeeze (x, a) y = Relu (v)": ("float[N, 4] x", None, [[(1, 4)], [(3, 4)]]),
    "v = Relu (x) y = Concat <axis = 1> (v, w)": ("float[N, 4] x", ones(3, 2), [[(3, 4)], [(2, 4)], [(5, 4)]]),
    "v = Relu (x) y, z = Split <axis = 0> (v, two)": ("float[N, 4] x", None, [[(3, 4)], [(2, 4)], [(5, 4)]]),
    "v = Reshape (x, six) y = Relu (v)": ("float[N] x", None, [[(6,)], [(1,)], [(12,)]]),
    "v = Expand (x, four) y = Relu (v)": ("float[N, M] x", None, [[(1, 4)], [(3, 3)], [(2, 4)]]),
    "v = Conv (x, w) y = Relu (v)": ("float[1, C, 4, 4] x", ones(4, 3, 3, 3), [[(1, 3, 4, 4)], [(1, 1, 4, 4)], [(1, 4, 4, 4)]]),
    "v = BatchNormalization (x, w, w, w, w) y = Relu (v)": ("float[2, C, 4] x", ones(3), [[(2, 3, 4)], [(2, 2, 4)], [(2, 5, 4)]]),
    "v = InstanceNormalization (x, w, w) y = Relu (v)": ("float[2, C, 4] x", ones(3), [[(2, 3, 4)], [(2, 2, 4)], [(2, 5, 4)]]),
    "v = LayerNormalization (x, w) y = Relu (v)": ("float[2, C] x", ones(3), [[(2, 3)], [(2, 2)], [(2, 5)]]),
    "v = MatMul (x, w) y = Relu (v)": ("float[2, C] x", ones(3, 2), [[(2, 3)], [(2, 2)], [(2, 5)]]),
    "v = Gemm (x, w) y = Relu (v)": ("float[2, C] x", ones(3, 2), [[(2, 3)], [(2, 2)], [(2, 5)]]),
    "v = Gemm (x, w, b) y = Relu (v)": ("float[2, 3] x, float[N] b", ones(3, 2), [[(2, 3), (2,)], [(2, 3), (3,)], [(2, 3), (5,)]]),
    "v = PRelu (x, w) y = Relu (v)": ("float[N, C] x", ones(3), [[(2, 3)], [(2, 2)], [(2, 5)]]),
    "y, h = LSTM <hidden_size = 2> (x, w, r)": ("float[S, 1, C] x", ones(1, 8, 3), [[(4, 1, 3)], [(4, 1, 2)], [(4, 1, 5)]]),
    "y, h = LSTM <hidden_size = 2> (x, u, r)": ("float[4, 1, 3] x, float[D, 8, 3] u", None, [[(4, 1, 3), (D, 8, 3)] for D in (1, 2)]),
    "y, z = Split <num_outputs = 2> (x)": ("float[N] x", None, [[(3,)], [(2,)]]),  # of one element 1.32 makes an empty part
    "v = ConvTranspose <pads = [0, 1]> (x, w) y = Relu (v)": ("float[1, 1, N] x", ones(1, 1, 1), [[(1, 1, 3)], [(1, 1, 1)]]),
    "q = QuantizeLinear <axis = 1> (x, w) y = DequantizeLinear <axis = 1> (q, w)": ("float[N, M] x", ones(3), [[(2, 3)], [(2, 2)]]),
    "v = Clip (x, b) y = Relu (v)": ("float[2] x, float[N, M] b", None, [[(2,), (1, 1)], [(2,), (2, 1)]]),
    "v = Add (x, b) u = Mul (v, w) y = Relu (u)": ("float[2, 3] x, float[N, M] b", ones(2, 3), [[(2, 3), (1, 3)], [(2, 3), (4, 3)]]),
}  # fmt: skip


@cache
def source(text: str) -> bytes:
    inputs, weight, _ = CASES[text]
    outputs = "y, z" if "y, z" in text else "y"
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {text} }}')
    arrays = {**INTS, **({} if weight is None else {"w": weight}), **({"r": ones(1, 8, 2)} if "LSTM" in text else {})}
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items() if n in used)
    return bytes(proto.SerializeToString())


def outcome(session: Any, feed: dict[str, np.ndarray]) -> Any:
    """The shapes of the results, or the class of the exception."""
    try:
        return [result.shape for result in session.run(None, feed)]
    except Exception as error:
        return "refused" if type(error).__name__ in ("Fail", "InvalidArgument") else repr(error)


@pytest.mark.parametrize("text", CASES)
def test_open_dimensions(text: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    theirs, ours = (m.InferenceSession(source(text), providers=CPU) for m in (onnxruntime, onnxplug))
    names = [each.name for each in ours.get_inputs()]
    first, *wrong = CASES[text][2]
    for shapes in (first, *wrong, first):
        feed = {name: ones(*shape) for name, shape in zip(names, shapes, strict=True)}
        assert outcome(ours, feed) == outcome(theirs, feed), shapes


@pytest.mark.parametrize(
    "text",
    [
        "g (float[N, 4] x) => (float[N, 4] y) <float[9, 4] h> { h = Relu (x) y = Exp (h) }",
        "g (float[N, 4] x) => (y) <float[9, 4] h, float[9, 4] k> { h = Relu (x) k = Exp (h) y = Softmax (k) }",
        "g (float[N, 4] x) => (float[9, 4] y) { h = Relu (x) y = Exp (h) }",
        "g (float[N, 4] x) => (float[N, 4] y) <float[9, 4] h, float top = {2.0}> { h = Clip (x, , top) y = Exp (h) }",
    ],
)
def test_notes_on_values_that_are_not_true(text: str) -> None:
    """Models whose batch was made open by hand keep the old sizes in value_info."""
    source = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}').SerializeToString()
    options = onnxplug.SessionOptions()
    options.log_severity_level = 4
    session = onnxplug.InferenceSession(source, options, providers=CPU)
    for rows in (9, 3, 20, 9):
        assert session.run(None, {"x": ones(rows, 4)})[0].shape == (rows, 4)


@pytest.mark.parametrize(
    ("op_type", "attributes", "shapes", "fit"),
    [
        ("Conv", {"group": 2}, [(1, 4, 8), (6, 2, 3), (6,)], True),
        ("Conv", {"group": 2}, [(1, 4, 8), (6, 2, 3), (5,)], False),
        ("ConvTranspose", {"group": 2}, [(1, 4, 8), (4, 3, 3), (6,)], True),
        ("ConvTranspose", {}, [(1, 3, 8), (4, 3, 3)], False),
        ("QLinearConv", {}, [(1, 3, 8), (), (), (6, 3, 3), (), (), (), (), (6,)], True),
        ("QLinearConv", {}, [(1, 3, 8), (), (), (6, 3, 3), (), (), (), (), (7,)], False),
        ("GRU", {}, [(4, 2, 3), (1, 6, 3), (1, 6, 2), None, None, (1, 2, 2)], True),
        ("GRU", {}, [(4, 2, 3), (1, 6, 3), (1, 6, 2), None, None, (1, 3, 2)], False),
        ("Conv", {"kernel_shape": [1]}, [(1, 4, 8), (6, 4, 3)], False),
        ("ConvTranspose", {"kernel_shape": [1]}, [(1, 4, 8), (4, 3, 3)], False),
        ("GroupNormalization", {"num_groups": 2}, [(1, 4, 8), (4,), (4,)], True),
        ("GroupNormalization", {"num_groups": 3}, [(1, 4, 8), (4,), (4,)], False),
        ("LSTM", {"hidden_size": 3}, [(4, 2, 3), (1, 8, 3), (1, 8, 2)], False),
        ("LSTM", {}, [(4, 2, 3), (2, 8, 3), (2, 8, 2)], False),
        ("LSTM", {"direction": "bidirectional"}, [(4, 2, 3), (2, 8, 3), (2, 8, 2)], True),
        ("GRU", {"direction": "bidirectional"}, [(4, 2, 3), (1, 6, 3), (1, 6, 2)], False),
        ("Split", {"num_outputs": 4, "axis": -1}, [(9, 3)], False),
        ("Split", {"num_outputs": 4}, [(9, 3)], True),
        ("RNN", {"layout": 1}, [(4, 2, 3), (1, 2, 3), (1, 2, 2), (1, 4), (4,), (4, 1, 2)], True),
        ("ScatterND", {}, [(4, 5), (2, 1), (2, 5)], True),
        ("ScatterND", {}, [(4, 5), (2, 1), (1, 5)], False),
        ("ScatterElements", {"axis": 1}, [(4, 5), (3, 9), (3, 9)], True),
        ("ScatterElements", {"axis": 1}, [(4, 5), (3, 9), (3, 8)], False),
        ("GatherElements", {"axis": 0}, [(4, 5), (9, 6)], False),
        ("DequantizeLinear", {"axis": 0, "block_size": 4}, [(8,), (2,)], True),
        ("DequantizeLinear", {}, [(2, 8), (8,), (7,)], False),
        ("MatMulNBits", {"K": 64}, [(1, 63)], False),
        ("MatMulNBits", {"K": 33, "N": 2, "bits": 4, "block_size": 16}, [(1, 33), (2, 3, 8), (6,)], True),
        ("MatMulNBits", {"K": 33, "N": 2, "bits": 4, "block_size": 16}, [(1, 33), (2, 2, 8), (6,)], False),
        ("MatMulNBits", {"K": 33, "N": 2, "bits": 4, "block_size": 16}, [(1, 33), (2, 3, 8), (5,)], False),
        ("EmbedLayerNormalization", {}, [(1, 4), (1, 4), (9, 2), (3, 2)], False),
        ("EmbedLayerNormalization", {}, [(1, 4), (1, 4), (9, 2), (3, 2), None, (2,), (2,), None, (1, 4)], True),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8), (1, 4, 8), (1, 4, 8)], True),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8), (1, 4, 8), (1, 3, 8)], False),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8), (1, 2, 4, 4), (1, 2, 5, 4)], False),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8)] * 3 + [None] * 3 + [(1, 2, 5, 4), (1, 2, 5, 4)], True),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8)] * 3 + [None] * 3 + [(1, 1, 5, 4), (1, 2, 5, 4)], False),
        (
            "MultiHeadAttention",
            {"num_heads": 2},
            [(1, 3, 8)] * 3 + [None, (1, 8), None, (1, 2, 5, 4), (1, 2, 5, 4)],
            True,
        ),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8)] * 3 + [None, (1, 4)], False),
        *(
            (
                "MultiHeadAttention",
                {"num_heads": 2},
                [*[*given, None, None][:3], (bias,), (1, keys)],
                (bias, keys) == (24, 3),
            )
            for given in ([(1, 3, 8)] * 3, [(1, 3, 8), (1, 3, 2, 2, 4)], [(1, 3, 2, 3, 4)])
            for bias, keys in ((24, 3), (25, 3), (16, 3), (24, 1))
        ),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8)] * 3 + [None, None, (1, 1, 3, 3)], True),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 3, 8)] * 3 + [None, None, (2, 2, 3, 3)], False),
        ("Attention", {}, [(1, 3, 8), (8, 24), (24,), (1, 3), (2, 1, 2, 5, 4)], False),
        ("Attention", {}, [(1, 3, 8), (8, 24), (24,), (1, 8), (2, 1, 2, 5, 4)], True),
        (
            "GroupQueryAttention",
            {"num_heads": 4, "kv_num_heads": 2},
            [(2, 1, 32), (2, 1, 16), (2, 1, 16), *[(2, 2, 4, 8)] * 2, (2,)],
            True,
        ),
        (
            "GroupQueryAttention",
            {"num_heads": 4, "kv_num_heads": 2},
            [(2, 1, 32), (2, 1, 16), (2, 1, 16), *[(1, 2, 4, 8)] * 2, (2,)],
            False,
        ),
        (
            "GroupQueryAttention",
            {"num_heads": 4, "kv_num_heads": 2},
            [(2, 1, 64), None, None, *[(2, 2, 4, 8)] * 2, (1,)],
            False,
        ),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 2, 8), (1, 5, 8), (1, 5, 8)], True),
        ("MultiHeadAttention", {"num_heads": 2}, [(1, 2, 8), (1, 2, 5, 2), (1, 2, 5, 4)], False),
        ("GatherND", {"batch_dims": 1}, [(2, 4), (2, 1)], True),
        ("GatherND", {"batch_dims": 1}, [(2, 4), (9, 1)], False),
        ("GatherND", {"batch_dims": 1}, [(2, 4), (2, 2)], False),
        ("GatherND", {}, [(2, 4), (3, 3)], False),
        ("SpaceToDepth", {"blocksize": 2}, [(1, 1, 4, 3)], False),
        ("DepthToSpace", {"blocksize": 2}, [(1, 8, 3, 3)], True),
        ("ArgMin", {"axis": -1}, [(3, 0)], False),
        ("ArgMin", {"axis": -1}, [(0, 3)], True),
        ("Clip", {}, [(4, 2), None, (1,)], True),
        ("Clip", {}, [(4, 2), (), (1, 1)], False),
        ("ReverseSequence", {}, [(4, 2), (2,)], True),
        ("ReverseSequence", {"batch_axis": 0, "time_axis": 1}, [(4, 2), (2,)], False),
        ("DFT", {}, [(1, 5, 3)], False),
        ("STFT", {}, [(1, 5), ()], True),
        ("PRelu", {}, [(2, 3), None], True),
        ("BatchNormalization", {}, [(2, 3), (3,), (3,), None, (4,)], False),
        ("Gemm", {"transA": 1}, [(3, 2), (3, 4), (2, 1)], True),
        ("Gemm", {}, [(3, 2), (3,)], False),
        ("FusedMatMul", {"transA": 1}, [(3, 2), (3, 4)], True),
        ("FusedMatMul", {"transB": 1}, [(3, 2), (3, 4)], False),
        ("MatMul", {}, [(2, 3, 4), (3, 4, 5)], False),
        ("QLinearMatMul", {}, [(3, 2), (), (), (4, 4)], False),
        ("FastGelu", {}, [(1, 3, 4), (8,)], False),
        ("Attention", {}, [(1, 3, 8), (8, 24), (24,)], True),
        ("Attention", {}, [(1, 3, 4), (8, 24), (24,)], False),
        ("DynamicQuantizeLSTM", {}, [(4, 1, 3), (1, 3, 8), (1, 2, 8), (1, 16)], True),
        ("DynamicQuantizeLSTM", {}, [(4, 1, 5), (1, 3, 8), (1, 2, 8), (1, 16)], False),
        ("Relu", {}, [(3, 2)], True),
    ],
)
def test_what_goes_together(op_type: str, attributes: dict[str, int], shapes: list[Any], fit: bool) -> None:
    node = SimpleNamespace(op_type=op_type, attributes=attributes, since_version=21, domain="com.microsoft")
    assert fits(node, shapes) is fit
