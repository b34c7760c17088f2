"""Quantized operators give onnxruntime's numbers bit for bit: what differs in a model of 8 bits comes from the floats between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug

HEAD = '<ir_version: 9, opset_import: ["": 19, "com.microsoft": 1]>\n'
COLUMNS, DEPTH, CHANNELS = 24, 37, 8
SEVEN_BITS = {"uint8": (65, 191), "int8": (-63, 64)}
"""Weights of which no pair of products leaves 16 bits, where onnxruntime saturates on processors without dot products of bytes."""

DYNAMIC = """
agraph (float[m, 37] x) => (float[m, 24] y) {
    q, s, z = DynamicQuantizeLinear(x)
    sums = MatMulInteger(q, w, z, w_zero)
    numbers = Cast<to = 1>(sums)
    scale = Mul(s, w_scale)
    product = Mul(numbers, scale)
    y = Add(bias, product)
}
"""
SHORT = """
agraph (float[m, 37] x) => (float[m, 24] y) { y = com.microsoft.DynamicQuantizeMatMul(x, w, w_scale, w_zero, bias) }
"""
IMAGES = """
agraph (float[m, 8, 9, 11] x) => (float[m, 24, 9, 11] y) {
    q, s, z = DynamicQuantizeLinear(x)
    sums = ConvInteger<pads = [1, 1, 1, 1]>(q, f, z, zero)
    numbers = Cast<to = 1>(sums)
    scale = Mul(s, f_scale)
    product = Mul(numbers, scale)
    y = Add(product, f_bias)
}
"""
_BETWEEN = """
agraph (float[m, 8, 9, 11] x) => (float[m, 24, 9, 11] y) {
    xq = QuantizeLinear(x, x_scale, x_zero)
    xd = DequantizeLinear(xq, x_scale, x_zero)
    fd = DequantizeLinear<axis = 0>(f, scales, no_zeros)
    bd = DequantizeLinear<axis = 0>(counts, b_scales)
    c = Conv<pads = [1, 1, 1, 1]>(xd, fd, bd)
    r = ACTIVATION(c)
    rq = QuantizeLinear(r, y_scale, ZERO)
    y = DequantizeLinear(rq, y_scale, ZERO)
}
"""
RECTIFIED = _BETWEEN.replace("ACTIVATION", "Relu").replace("ZERO", "nothing")
BETWEEN = _BETWEEN.replace("ACTIVATION", "Identity").replace("ZERO", "x_zero")
PRODUCT = """
agraph (float[m, 37] x) => (float[m, 24] y) {
    xq = QuantizeLinear(x, x_scale, x_zero)
    xd = DequantizeLinear(xq, x_scale, x_zero)
    wd = DequantizeLinear(w, w_scale, w_zero)
    c = MatMul(xd, wd)
    cq = QuantizeLinear(c, y_scale, x_zero)
    y = DequantizeLinear(cq, y_scale, x_zero)
}
"""


def initializers(element: str, by_column: bool, rng: np.random.Generator) -> dict[str, np.ndarray]:
    low, high = SEVEN_BITS[element]

    def bytes_of(*shape: int) -> np.ndarray:
        return rng.integers(low, high, shape).astype(element)

    floats = rng.uniform(0.001, 0.05, (3, COLUMNS)).astype(np.float32)
    return {
        "w": bytes_of(DEPTH, COLUMNS),
        "w_zero": bytes_of(COLUMNS) if by_column else bytes_of(),
        "w_scale": floats[0] if by_column else floats[0, 0],
        "bias": rng.standard_normal(COLUMNS).astype(np.float32),
        "f": bytes_of(COLUMNS, CHANNELS, 3, 3),
        "zero": bytes_of(),
        "f_scale": floats[1].reshape(1, -1, 1, 1) if by_column else floats[1, 0],
        "f_bias": floats[2].reshape(1, -1, 1, 1),
        "scales": floats[1],
        "no_zeros": np.zeros(COLUMNS, element),
        "counts": rng.integers(-2000, 2000, COLUMNS).astype(np.int32),
        "b_scales": np.float32(0.031) * floats[1],
        "x_scale": np.array(0.031, np.float32),
        "x_zero": rng.integers(100, 150, ()).astype(np.uint8),
        "nothing": np.uint8(0),
        "y_scale": np.array(0.37, np.float32),
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("element", SEVEN_BITS)
@pytest.mark.parametrize(
    "text",
    [DYNAMIC, SHORT, IMAGES, BETWEEN, RECTIFIED, PRODUCT],
    ids=["dynamic", "short", "images", "between", "rectified", "product"],
)
def test_every_bit_is_onnxruntimes(text: str, element: str, by_column: bool, seed: int) -> None:
    theirs = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(seed)
    model: Any = onnx.parser.parse_model(HEAD + text)
    read = {name for node in model.graph.node for name in node.input}
    for name, array in initializers(element, by_column, rng).items():
        if name in read:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    data = model.SerializeToString()
    sessions = [m.InferenceSession(data, providers=["CPUExecutionProvider"]) for m in (onnxplug, theirs)]
    for rows in (1, 2, 7, 33):
        _, *shape = sessions[0].get_inputs()[0].shape
        x = (rng.uniform(0.1, 5) * rng.standard_normal((rows, *shape)) + rng.uniform(-2, 2)).astype(np.float32)
        (got,), (wanted,) = (each.run(None, {"x": x}) for each in sessions)
        np.testing.assert_array_equal(got, wanted)
