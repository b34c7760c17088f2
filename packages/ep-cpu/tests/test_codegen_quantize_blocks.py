"""QuantizeLinear and DequantizeLinear in blocks: numbers of their own for so many elements along an axis."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_models import kernel, one, random, run, same, scales

import onnxplug

pytestmark = pytest.mark.usefixtures("single_nodes")

MS = "com.microsoft"


in_blocks = pytest.mark.parametrize(("shape", "axis", "block"), [
    ((8, 64), 1, 16), ((8, 64), 0, 4), ((3, 4, 10), -1, 5), ((3, 4, 10), 1, 2), ((40,), 0, 8), ((0, 16), 1, 4), ((1, 1), 0, 1),
])  # fmt: skip


@in_blocks
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_quantizing_in_blocks(
    shape: tuple[int, ...], axis: int, block: int, kind: str, points: bool, constant: bool
) -> None:
    """Scales and zero points may be computed; halves, what is saturated and infinities are as they are elsewhere."""
    rng, blocks = np.random.default_rng(0), list(shape)
    blocks[axis] //= block
    most = 1.2 * np.iinfo(kind).max
    x = (rng.integers(-2 * most, 2 * most, shape) / 2).astype(np.float32)
    x[rng.random(shape) < 0.1] = np.inf
    given = [x, rng.choice([0.5, 1, 2, 0.3], blocks).astype(np.float32)]
    given += [random(rng, kind, *blocks)] if points else []
    attributes = {"axis": axis, "block_size": block}
    if not points:
        attributes["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    same(one("QuantizeLinear", given, {0} if constant else set(range(len(given))), **attributes))


@in_blocks
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16", "int32"])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("fed", [{0}, {0, 1, 2}, {1}])
def test_dequantizing_in_blocks(
    shape: tuple[int, ...], axis: int, block: int, kind: str, points: bool, fed: set[int]
) -> None:
    rng, blocks = np.random.default_rng(0), list(shape)
    blocks[axis] //= block
    given = [random(rng, kind, *shape), scales(rng, *blocks), *([random(rng, kind, *blocks)] if points else [])]
    same(one("DequantizeLinear", given, fed & set(range(len(given))), axis=axis, block_size=block))


@pytest.mark.parametrize("target", ["", "generic"])
def test_what_was_quantized_for_a_product_is_dequantized_in_blocks(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Without instructions for bytes it lies as int16, less its zero point."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng = np.random.default_rng(0)
    x, scale, zero = rng.standard_normal((1, 1, 1, 8)).astype(np.float32), np.float32(0.05), np.uint8(3)
    filters, step, point = random(rng, "uint8", 1, 1, 1, 2), scales(rng, 1, 1, 1, 1), np.full((1, 1, 1, 1), zero)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "point"], ["y"], axis=3, block_size=8),
        helper.make_node("ConvInteger", ["q", "w", "z"], ["i"]),
    ]
    held = {"s": scale, "z": zero, "step": step, "point": point, "w": filters}
    y, i = run(nodes, {"x": x}, held, ["y", "i"])
    q = kernel("QuantizeLinear")(np, x, scale, zero)
    np.testing.assert_array_equal(y, kernel("DequantizeLinear")(np, q, step, point, axis=3, block_size=8))
    np.testing.assert_array_equal(i, kernel("ConvInteger")(np, q, filters, zero))


def test_a_last_block_that_is_not_whole_is_numpy_s() -> None:
    x, scale = np.arange(35, dtype=np.float32).reshape(5, 7), np.ones((5, 3), np.float32)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=3)]
    ins = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("x", x), ("s", scale))]
    graph = helper.make_graph(nodes, "g", ins, [helper.make_tensor_value_info("y", TensorProto.UINT8, x.shape)])
    source = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    made = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    assert made.explain().nodes[0]["region"] is None
    np.testing.assert_array_equal(made.run(None, {"x": x, "s": scale})[0], x)


def test_quotients_of_blocks_are_rounded_to_the_type_of_half_scales() -> None:
    """As ONNX says of QuantizeLinear's precision: with 16 bits it shows."""
    rng, shape = np.random.default_rng(3), (64, 4)
    feeds = {
        "x": (rng.standard_normal(shape) * 300).astype(np.float32),
        "scale": rng.uniform(0.5, 2, shape).astype(np.float16),
        "zero": np.zeros(shape, np.int16),
    }
    node = helper.make_node("QuantizeLinear", list(feeds), ["y"], axis=-1, block_size=1)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.INT16, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = np.rint(feeds["x"].astype(np.float16) / feeds["scale"]).astype(np.int16)
    np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)


@pytest.mark.parametrize("generated", ["1", "0"])
@pytest.mark.parametrize(
    ("domain", "opset", "precision"), [("", 19, 0), ("", 21, 0), (MS, 21, 0), ("", 23, 1), ("", 23, 0), ("", 25, 0)]
)
@pytest.mark.parametrize("grain", ["tensor", "axis", "blocks"])
def test_half_scales_divide_in_float32_until_opset_23_says_otherwise(
    grain: str, domain: str, opset: int, precision: int, generated: str
) -> None:
    """ONNX leaves the precision open before, ONNX Runtime divides in float32: in half, one quotient of twelve is off by one."""
    if grain == "blocks" and (opset < 21 or domain):
        pytest.skip("known since opset 21 of ONNX")
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((4, 512)) * 100).astype(np.float16)
    shape = {"tensor": (), "axis": (4,), "blocks": (4, 32)}[grain]
    attributes = {"tensor": {}, "axis": {"axis": 0}, "blocks": {"axis": 1, "block_size": 16}}[grain]
    scale = np.asarray(rng.uniform(0.5, 3, shape), np.float16)
    if precision:
        attributes["precision"] = precision
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], domain=domain, **attributes)
    held = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(np.zeros(shape, np.int8), "z")]
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)]
    outs = [helper.make_tensor_value_info("y", TensorProto.INT8, x.shape)]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    model = helper.make_model(helper.make_graph([node], "g", ins, outs, held), ir_version=10, opset_imports=imports)
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", generated)
    session = onnxplug.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    each = np.repeat(scale, 16, 1) if grain == "blocks" else scale.reshape(-1, 1)
    divide = np.float16 if opset >= 23 and not precision else np.float32
    wanted = np.clip(np.rint(x.astype(divide) / each.astype(divide)), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)
