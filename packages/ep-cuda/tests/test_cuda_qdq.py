"""Float products between quantized tensors as products of integers: which are found, and what they compute, on PoCL in OpenCL's dialect."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from job_models import on_opencl
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxplug.contract import EPFail, TensorSpec
from onnxplug_kernel_text.nodes import qdq

IMAGE = "(uint8[2, 6, 9, 11] x) => (uint8[2, 8, P, Q] y) { a = DequantizeLinear(x, sx, zx)"
CONV = IMAGE + " w = DequantizeLinear<axis = 0>(k, sk, zk) b = DequantizeLinear<axis = 0>(bq, sb)"
PRODUCT = "(int8[3, 20, 40] x, int8[3, 40, 30] v) => (int8[3, 20, 30] y) { a = DequantizeLinear(x, sx, z8) "
BODIES = {
    "convolution": CONV + " c = Conv<pads = [1, 1, 1, 1], strides = [2, 1]>(a, w, b) y = QuantizeLinear(c, sy, zy) }",
    "without bias": IMAGE + " w = DequantizeLinear(k, s1, z8) c = Conv(a, w) y = QuantizeLinear(c, sy, zy) }",
    "activation": CONV + " c = Conv(a, w, b) r = Relu(c) y = QuantizeLinear(r, sy, zy) }",
    "matrix and activation": PRODUCT
    + "w = DequantizeLinear<axis = 1>(m, sm) c = MatMul(a, w) r = Relu(c) y = QuantizeLinear(r, sp, z8) }",
    "matrix": PRODUCT + "w = DequantizeLinear<axis = 1>(m, sm) c = MatMul(a, w) y = QuantizeLinear(c, sp, z8) }",
    "batch": PRODUCT + "w = DequantizeLinear(v, s1, z8) c = MatMul(a, w) y = QuantizeLinear(c, sp, z8) }",
}
LEFT = {
    "shared": CONV + " c = Conv(a, w, b) y = QuantizeLinear(c, sy, zy) n = Neg(a) }",
    "another axis": PRODUCT + "w = DequantizeLinear<axis = 0>(m, sd) c = MatMul(a, w) y = QuantizeLinear(c, sp, z8) }",
    "another bias": CONV.replace("sb", "sk") + " c = Conv(a, w, b) y = QuantizeLinear(c, sy, zy) }",
    "floats": CONV + " c = Conv(a, w, b) r = Sigmoid(c) y = QuantizeLinear(r, sy, zy) }",
    "no zero point": CONV + " c = Conv(a, w, b) y = QuantizeLinear(c, sy) }",
}


def constants() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    each = (rng.random(8) * 0.01 + 0.001).astype(np.float32)
    return {
        "sx": np.float32(0.03), "zx": np.uint8(120), "k": rng.integers(-128, 128, (8, 6, 3, 3)).astype(np.int8), "sk": each,
        "zk": np.zeros(8, np.int8), "bq": rng.integers(-9000, 9000, 8).astype(np.int32), "sb": np.float32(0.03) * each,
        "sy": np.float32(0.2), "zy": np.uint8(100), "s1": np.float32(0.01), "z8": np.int8(3), "sp": np.float32(0.4),
        "m": rng.integers(-128, 128, (40, 30)).astype(np.int8), "sm": (rng.random(30) * 0.02).astype(np.float32),
        "sd": (rng.random(40) * 0.02).astype(np.float32),
    }  # fmt: skip


def model(body: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    used = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in constants().items() if n in used
    )
    return made


def numbers(made: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs of such a model."""
    rng, feeds = np.random.default_rng(1), {}
    for value in made.graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        limits = np.iinfo(dtype)
        feeds[value.name] = rng.integers(limits.min, limits.max + 1, dims).astype(dtype)
    return feeds


def assert_neighbours(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal, but where floats round: a result that lies between two numbers may be the other one."""
    difference = np.abs(got.astype(int) - wanted.astype(int))
    assert difference.max() <= 1 and np.count_nonzero(difference) <= got.size / 100


def found_in(made: onnx.ModelProto) -> tuple[Any, list[qdq.Pattern]]:
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    graph = models.graph_of(made)
    return graph, list(qdq.patterns(graph, lambda node: False))


@pytest.mark.parametrize("name", BODIES)
def test_products_of_the_integers_behind(name: str) -> None:
    made = model(BODIES[name])
    graph, (found,) = found_in(made)
    assert len(found.nodes) == len(graph.nodes)
    feeds = numbers(made)
    (wanted,) = ReferenceEvaluator(made).run(None, feeds)
    arrays = [
        None if v is None else feeds[v.name] if v.constant is None else np.asarray(v.constant) for v in found.values
    ]
    specs = {
        v.name: TensorSpec(a.dtype, a.shape)
        for v, a in zip(found.values, arrays, strict=True)
        if v is not None and a is not None
    }
    made_spec = TensorSpec(wanted.dtype, wanted.shape)
    (got,) = on_opencl(qdq.lowered(found, {**specs, "y": made_spec}), arrays, [made_spec])
    assert got is not None and np.ptp(got.astype(int)) > 100
    assert_neighbours(got, wanted)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_in_floats(name: str) -> None:
    assert found_in(model(LEFT[name]))[1] == []


def test_shapes_that_do_not_fit_are_refused() -> None:
    _, (found,) = found_in(model(BODIES["batch"]))
    shapes = {"x": (3, 20, 40), "v": (1, 3, 40, 30), "y": (1, 3, 20, 30)}
    specs = {n: TensorSpec(np.dtype(np.int8), s) for n, s in shapes.items()}
    specs |= {n: TensorSpec(a.dtype, a.shape) for n, a in constants().items()}
    with pytest.raises(EPFail, match="no product of integers"):
        qdq.lowered(found, {**specs, "x": TensorSpec(np.dtype(np.int8), (2, 20, 40))})
