"""Generated code for quantized operators against the NumPy kernels: integers bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from quantized_models import MS, SIZES, TYPES, convolutions, kernel, near, one, operands, random, run, same, scales

import onnxplug

pytestmark = pytest.mark.usefixtures("single_nodes")


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.booleans())
def test_qlinear_conv(case: dict[str, Any], last: bool) -> None:
    """``last``: as onnxruntime's optimizer writes it, with channels declared last."""
    rng, x, x_zero, w, w_zero = operands(case)
    w_scale = scales(rng, len(w)) if case["by_channel"] else scales(rng)
    bias = rng.integers(-5000, 5000, len(w)).astype(np.int32) if case["bias"] else None
    inputs = [x, np.float32(0.01), x_zero, w, w_scale, w_zero, np.float32(0.013), random(rng, case["x"]), bias]
    window = {name: case[name] for name in ("group", "strides", "pads")}
    if last:
        inputs[0] = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        same(one("QLinearConv", inputs, {0}, MS, channels_last=1, **window))
    else:
        same(one("QLinearConv", inputs, {0}, **window))


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.booleans())
def test_conv_integer(case: dict[str, Any], computed: bool) -> None:
    _, x, x_zero, w, w_zero = operands(case)
    window = {name: case[name] for name in ("group", "strides", "pads")}
    same(one("ConvInteger", [x, w, x_zero, w_zero], {0, 2} if computed else {0}, **window))


@pytest.mark.parametrize(
    ("channels", "group"), [(3, 1), (32, 1), (32, 32)], ids=["few channels", "many", "each by itself"]
)
def test_a_convolution_quantized_as_it_runs_is_one_region(channels: int, group: int) -> None:
    """What dynamic quantization makes of a convolution: the zero point of the image is computed beside it."""
    rng = np.random.default_rng(channels)
    filters = random(rng, "uint8", 32, channels // group, 3, 3)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("ConvInteger", ["q", "w", "zero", "w_zero"], ["i"], pads=[1] * 4, group=group),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["step", "w_step"], ["scale"]),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    x = rng.standard_normal((2, channels, 9, 9)).astype(np.float32) + 0.5
    (y,) = run(nodes, {"x": x}, {"w": filters, "w_zero": np.uint8(117), "w_step": np.float32(0.01)}, ["y"])
    q, step, zero = kernel("DynamicQuantizeLinear")(np, x)
    wanted = kernel("ConvInteger")(np, q, filters, zero, np.uint8(117), pads=[1] * 4, group=group)
    np.testing.assert_array_equal(y, wanted.astype(np.float32) * (step * np.float32(0.01)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, TYPES, st.booleans(), st.booleans())
def test_matmul_integer(seed: int, sizes: Any, left: str, right: str, by_column: bool, computed: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = random(rng, left, 2, m, k), random(rng, right, k, n)
    w_zero = random(rng, right, n) if by_column else random(rng, right)
    same(one("MatMulInteger", [x, w, random(rng, left), w_zero], {0, 2} if computed else {0}))


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 7, 300), (2, 3, 300, 20)), ((4, 5, 9), (9, 33)), ((6, 700), (700, 5)), ((5, 8), (3, 8, 4))],
)
def test_two_computed_matrices_are_multiplied_exactly(
    left: tuple[int, ...], right: tuple[int, ...], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the scores of attention are quantized dynamically: sums larger than floats hold all integers up to."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng = np.random.default_rng(3)
    x, w = rng.integers(200, 256, left).astype(np.uint8), rng.integers(-128, -90, right).astype(np.int8)
    same(one("MatMulInteger", [x, w, np.uint8(1), np.int8(127)], {0, 1, 2, 3}))
    same(one("MatMulInteger", [x, w], {0, 1}))
    inputs = [
        x,
        w,
        np.float32(0.03),
        np.float32(0.02),
        np.uint8(3),
        np.int8(-5),
        random(rng, "int8", right[-1]).astype("f"),
    ]
    (got,), (wanted,) = one("MatMulIntegerToFloat", inputs, {0, 1, 2, 4, 5}, MS)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["p", "s", "y"], name="a"),
        helper.make_node("DynamicQuantizeLinear", ["w"], ["q", "t", "z"], name="b"),
        helper.make_node("MatMulInteger", ["p", "q", "y", "z"], ["m"], name="c"),
    ]
    x, w = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
    (p, _, y), (q, _, z) = (kernel("DynamicQuantizeLinear")(np, a) for a in (x, w))
    np.testing.assert_array_equal(
        run(nodes, {"x": x, "w": w}, {}, ["m"])[0], kernel("MatMulInteger")(np, p, q, y, z)
    )  # what lies widened inside a region is without its zero point


@pytest.mark.parametrize("shape", [(3, 6), (5, 33)])
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float16, np.bool_])
def test_sums_are_read_as_types_that_products_do_not_write(dtype: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(6)
    x, w = random(rng, "uint8", *shape), random(rng, "int8", shape[1], 17)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["i"]),
        helper.make_node("Clip", ["i", "least", "most"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=to),
    ]
    (y,) = run(nodes, {"x": x}, {"w": w, "least": np.int32(0), "most": np.int32(300)}, ["y"])
    wanted = (x.astype(np.int32) @ w.astype(np.int32)).clip(0, 300)
    np.testing.assert_array_equal(y, wanted.astype(dtype))


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize(
    ("op_type", "shape", "weights", "group"),
    [
        ("MatMulInteger", (6, 32), (32, 40), None),
        ("ConvInteger", (1, 8, 10, 10), (8, 8, 3, 3), 1),
        ("ConvInteger", (1, 32, 10, 10), (32, 1, 3, 3), 32),
        ("ConvInteger", (1, 64, 20, 20), (64, 64, 3, 3), 1),
    ],
)
def test_equal_weights_of_several_products_go_with_the_zero_points_of_each(
    op_type: str, shape: Any, weights: Any, group: int | None, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng, points = np.random.default_rng(4), (np.int8(3), np.int8(20))
    x, w = random(rng, "uint8", *shape), rng.integers(-50, 50, weights).astype(np.int8)
    given = {} if group is None else {"group": group}
    nodes = [
        helper.make_node(op_type, ["x", "w", "a", f"z{at}"], [f"y{at}"], f"m{at}", **given) for at in range(len(points))
    ]
    nodes.append(helper.make_node("Add", ["y0", "y1"], ["y"], "t"))  # all in one region
    held = {"w": w, "a": np.uint8(7), **{f"z{at}": point for at, point in enumerate(points)}}
    (got,) = run(nodes, {"x": x}, held, ["y"])
    wanted = [kernel(op_type)(np, x, w, np.uint8(7), point, **given) for point in points]
    np.testing.assert_array_equal(got, wanted[0] + wanted[1])


def test_no_sum_of_products_saturates() -> None:
    """255 x -128 and 255 x 127 in pairs: what 16-bit sums of two products would cut off."""
    x, w = np.full((3, 64), 255, np.uint8), np.full((64, 16), -128, np.int8)
    w[:, 1::2] = 127
    same(one("MatMulInteger", [x, w], {0}))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, TYPES, st.booleans())
def test_qlinear_matmul(seed: int, sizes: Any, left: str, right: str, by_column: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = random(rng, left, m, k), random(rng, right, k, n)
    w_scale, w_zero = (scales(rng, n), random(rng, right, n)) if by_column else (scales(rng), random(rng, right))
    inputs = [x, np.float32(0.01), random(rng, left), w, w_scale, w_zero, np.float32(0.05), random(rng, left)]
    same(one("QLinearMatMul", inputs, {0}))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, TYPES, st.sampled_from([(), (3,), (2, 3)]), st.booleans())
def test_qlinear_matmul_of_computed_operands(
    seed: int, sizes: Any, left: str, right: str, batch: tuple[int, ...], shared: bool
) -> None:
    """As in the attention of a quantized transformer."""
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = random(rng, left, *batch, m, k), random(rng, right, *(() if shared else batch), k, n)
    scale = np.float32(0.01 * 0.02 * 30 * np.sqrt(k + 1))
    inputs = [x, np.float32(0.01), random(rng, left), w, np.float32(0.02), random(rng, right), scale, random(rng, left)]
    near(one("QLinearMatMul", inputs, {0, 3}))


@pytest.mark.parametrize("element", ["uint8", "int8"])
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 12), (0, 12)])
def test_qlinear_softmax(element: str, axis: int, opset: int) -> None:
    rng = np.random.default_rng(opset)
    zero = np.array(np.iinfo(element).min, element)
    inputs = [random(rng, element, 2, 5, 19), np.float32(0.03), random(rng, element), np.float32(1 / 256), zero]
    near(one("QLinearSoftmax", inputs, {0}, MS, axis=axis, opset=opset))


@pytest.mark.parametrize("element", ["uint8", "int8"])
@pytest.mark.parametrize("scalar", [False, True])
def test_qlinear_where(scalar: bool, element: str) -> None:
    rng = np.random.default_rng(7)
    x, y = random(rng, element, 2, 3, 24, 24), random(rng, element) if scalar else random(rng, element, 3, 1, 24)
    steps = [np.float32(n) for n in (0.02, 0.05, 0.03)]
    inputs = [rng.random((1, 1, 24, 24)) < 0.5, x, steps[0], random(rng, element), y, steps[1], random(rng, element)]
    same(one("QLinearWhere", [*inputs, steps[2], random(rng, element)], {0, 1, 4}, MS))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, TYPES, st.booleans(), st.booleans(), st.booleans())
def test_qgemm(seed: int, sizes: Any, left: str, right: str, by_column: bool, transposed: bool, floats: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = random(rng, left, m, k), random(rng, right, *((n, k) if transposed else (k, n)))
    w_scale, w_zero = (scales(rng, n), random(rng, right, n)) if by_column else (scales(rng), random(rng, right))
    bias = rng.integers(-5000, 5000, n).astype(np.int32)
    inputs = [x, np.float32(0.01), random(rng, left), w, w_scale, w_zero, bias]
    inputs += [] if floats else [np.float32(0.05), random(rng, left)]
    same(one("QGemm", inputs, {0}, MS, transB=int(transposed), alpha=0.75))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, st.booleans(), st.booleans(), st.booleans())
def test_products_to_floats(seed: int, sizes: Any, right: str, by_column: bool, bias: bool, dynamic: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    w = random(rng, right, k, n)
    w_scale, w_zero = (scales(rng, n), random(rng, right, n)) if by_column else (scales(rng), random(rng, right))
    added = rng.standard_normal(n).astype(np.float32) if bias else None
    if dynamic:
        x = rng.standard_normal((2, m, k)).astype(np.float32)
        pair = one("DynamicQuantizeMatMul", [x, w, w_scale, w_zero, added], {0}, MS)
    else:
        inputs = [random(rng, "uint8", m, k), w, np.float32(0.02), w_scale, random(rng, "uint8"), w_zero, added]
        pair = one("MatMulIntegerToFloat", inputs, {0, 2, 4}, MS)
    np.testing.assert_allclose(pair[0][0], pair[1][0], rtol=1e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, st.booleans(), st.booleans())
def test_dynamic_products_of_two_computed_tensors(
    seed: int, sizes: Any, right: str, by_column: bool, bias: bool
) -> None:
    """The attention of a model quantized as it runs and saved by onnxruntime."""
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = rng.standard_normal((2, 3, m, k)).astype(np.float32), random(rng, right, 2, 3, k, n)
    added = rng.standard_normal(n).astype(np.float32) if bias else None
    w_scale = scales(rng, n) if by_column else scales(rng)
    got, wanted = one("DynamicQuantizeMatMul", [x, w, w_scale, random(rng, right), added], {0, 1, 2, 3}, MS)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(0, 9), min_size=1, max_size=3), TYPES)
def test_quantize_and_dequantize(seed: int, shape: list[int], element: str) -> None:
    rng = np.random.default_rng(seed)
    step, zero = np.float32(0.5), random(rng, element)
    x = (rng.integers(-600, 600, shape) / 4).astype(np.float32)  # many halves
    same(one("QuantizeLinear", [x, step, zero], {0}))
    same(one("DequantizeLinear", [random(rng, element, *shape), step, zero], {0}))


@pytest.mark.parametrize("target", ["", "generic"])
@pytest.mark.parametrize(("element", "least"), [("uint8", 0), ("int8", -128)])
def test_what_is_no_number_is_quantized_to_the_least(
    element: str, least: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As onnxruntime has it; within a vector and in what is left of a row."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.5], np.float32), 37)
    (got,), _ = one("QuantizeLinear", [x, np.float32(1), np.array(3, element)], {0})
    most = np.iinfo(element).max
    np.testing.assert_array_equal(got.astype(int), np.tile([least, most, least, most, least, 3], 37))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(0, 2), st.sampled_from(["uint8", "int8", "int32"]))
def test_dequantize_along_an_axis(seed: int, axis: int, element: str) -> None:
    rng = np.random.default_rng(seed)
    x = random(rng, element, 3, 4, 5) if element != "int32" else rng.integers(-999, 999, (3, 4, 5)).astype(np.int32)
    zero = np.zeros(x.shape[axis], element) if element == "int32" else random(rng, element, x.shape[axis])
    same(one("DequantizeLinear", [x, scales(rng, x.shape[axis]), zero], {0}, axis=axis))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(1, 40), min_size=1, max_size=3), st.sampled_from([-1.0, 0.0, 1.0]))
def test_dynamic_quantize(seed: int, shape: list[int], shift: float) -> None:
    x = (np.random.default_rng(seed).standard_normal(shape) * 3 + 9 * shift).astype(np.float32)
    same(one("DynamicQuantizeLinear", [x], {0}, count=3))
    same(one("DynamicQuantizeLinear", [np.zeros(shape, np.float32)], {0}, count=3))


@pytest.mark.parametrize("places", [[0], [3, 7], [-1], range(19)])
def test_the_range_that_is_quantized_is_that_of_numbers(places: Sequence[int]) -> None:
    x = np.linspace(-2, 5, 19, dtype=np.float32)
    x[list(places)] = np.nan
    numbers = np.where(np.isnan(x), np.float32(0), x)
    same(one("DynamicQuantizeLinear", [x], {0}, count=3))
    (got, *parts), (_, *wanted) = (one("DynamicQuantizeLinear", [each], {0}, count=3)[0] for each in (x, numbers))
    assert parts == wanted
    assert not got[list(places)].any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), TYPES, st.sampled_from(["QLinearAdd", "QLinearMul"]), st.booleans())
def test_binary_operators(seed: int, element: str, op_type: str, broadcast: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = random(rng, element, 3, 5, 7), random(rng, element, *((5, 1) if broadcast else (3, 5, 7)))
    inputs = [a, np.float32(0.02), random(rng, element), b, np.float32(0.03), random(rng, element), np.float32(0.04)]
    same(one(op_type, [*inputs, random(rng, element)], {0, 3}, MS))


@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_unary_operators(op_type: str) -> None:
    x = np.arange(256, dtype=np.uint8)
    (got,), (wanted,) = one(op_type, [x, np.float32(0.05), np.uint8(120), np.float32(1 / 256), np.uint8(3)], {0}, MS)
    difference = np.abs(got.astype(int) - wanted)
    assert difference.max() <= (1 if op_type == "QLinearSigmoid" else 0)


def test_concat() -> None:
    rng = np.random.default_rng(0)
    a, b = random(rng, "uint8", 2, 3), random(rng, "uint8", 2, 5)
    inputs = [np.float32(0.1), np.uint8(7), a, np.float32(0.1), np.uint8(7), b, np.float32(0.03), np.uint8(99)]
    same(one("QLinearConcat", inputs, {2, 5}, MS, axis=1))


@pytest.mark.parametrize("element", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 40])
@pytest.mark.parametrize("last", [0, 1])
def test_average_pool(element: str, channels: int, last: int) -> None:
    """Means are rounded once more than quotients of sums are."""
    rng = np.random.default_rng(channels)
    x = random(rng, element, 2, 9, 8, channels) if last else random(rng, element, 2, channels, 9, 8)
    inputs = [x, np.float32(0.02), random(rng, element), np.float32(0.015), random(rng, element)]
    window: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for more in ({}, {"count_include_pad": 1}):
        near(one("QLinearAveragePool", inputs, {0}, MS, channels_last=last, **window, **more))


@pytest.mark.parametrize("element", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 16, 70])
def test_the_largest_byte_of_windows_of_channels_declared_last(element: str, channels: int) -> None:
    x = random(np.random.default_rng(0), element, 2, 9, 8, channels)
    window: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    same(one("NhwcMaxPool", [x], {0}, MS, **window))


def test_images_of_any_size_whose_channels_are_declared_last() -> None:
    """Shapes follow where a model leaves them open."""
    rng = np.random.default_rng(0)
    held = {
        "s": np.float32(0.02),
        "z": np.uint8(7),
        "w": random(rng, "int8", 20, 3, 3, 3),
        "v": random(rng, "int8", 20, 1, 3, 3),
    }
    held["n"] = np.int8(0)
    make, quantized = helper.make_node, ["s", "z"]
    nodes = [
        make("QLinearConv", ["x", *quantized, "w", "s", "n", *quantized], ["a"], "a", domain=MS, channels_last=1),
        make("NhwcMaxPool", ["a"], ["b"], "b", domain=MS, kernel_shape=[2, 2], strides=[2, 2]),
        make("QLinearConv", ["b", *quantized, "v", "s", "n", *quantized], ["c"], "c", domain=MS, channels_last=1, group=20),
        make("QLinearConcat", [*quantized, "b", *quantized, "b", *quantized], ["d"], "d", domain=MS, axis=3),
        make("QLinearGlobalAveragePool", ["d", *quantized, *quantized], ["e"], "e", domain=MS, channels_last=1),
    ]  # fmt: skip
    unsized = [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", "h", "w", 3])]
    results = [helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in "ce"]
    graph = helper.make_graph(nodes, "g", unsized, results, [numpy_helper.from_array(a, n) for n, a in held.items()])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=10)
    session = onnxplug.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [len(region["nodes"]) for region in session.explain().regions] == [5]
    zero, s, z = held["n"], held["s"], held["z"]
    for shape in ((1, 13, 12, 3), (2, 9, 20, 3)):
        x = random(rng, "uint8", *shape)
        conv, pool = kernel("QLinearConv", MS), kernel("NhwcMaxPool", MS)
        b = pool(np, conv(np, x, s, z, held["w"], s, zero, s, z, channels_last=1), kernel_shape=[2, 2], strides=[2, 2])
        c = conv(np, b, s, z, held["v"], s, zero, s, z, channels_last=1, group=20)
        e = kernel("QLinearGlobalAveragePool", MS)(np, np.concatenate([b, b], 3), s, z, s, z, channels_last=1)
        got = session.run(None, {"x": x})
        np.testing.assert_array_equal(got[0], c)
        assert np.abs(got[1].astype(int) - e).max() <= 1  # the sum is exact here, rounded there


@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(last: int) -> None:
    x = random(np.random.default_rng(0), "uint8", 2, 11, 5, 6)
    inputs = [x, np.float32(0.1), np.uint8(7), np.float32(0.11), np.uint8(9)]
    (got,), (wanted,) = one("QLinearGlobalAveragePool", inputs, {0}, MS, channels_last=last)
    assert np.abs(got.astype(int) - wanted).max() <= 1  # the sum is exact here, rounded there


@pytest.mark.parametrize("exponent", [-70, -59, -20, -3, 0, 4, 30, 61])
def test_quotients_by_a_scale_round_as_a_division_does(exponent: int) -> None:
    rng, zero = np.random.default_rng(exponent + 100), np.uint8(7)
    for step in np.ldexp(np.append(rng.uniform(1, 2, 7), [1.0, 2 - 2.0**-23]), exponent).astype(np.float32):
        halves = (np.arange(-20, 270, dtype=np.float32) - np.float32(6.5)) * step
        near = np.stack([(halves.view(np.int32) + ulps).view(np.float32) for ulps in range(-3, 4)])
        with np.errstate(all="ignore"):
            x = np.append(near, np.float32([0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-45, 1e-38])).astype(np.float32)
            wanted = np.clip(np.rint(x / step) + zero, 0, 255).astype(np.uint8)
        (got,), _ = one("QuantizeLinear", [x, step, zero], {0})
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["no mask", "lengths", "keys", "past"])
@pytest.mark.parametrize("channels", [False, True])
def test_self_attention_of_eight_bits(kind: str, channels: bool) -> None:
    rng, width, heads = np.random.default_rng(3), 32, 4
    x, w = random(rng, "uint8", 2, 5, width), random(rng, "int8", width, 3 * width)
    steps = scales(rng, 3 * width) if channels else np.float32(0.01)
    zeros = (np.uint8(120), random(rng, "int8", 3 * width) if channels else np.int8(3))
    mask = {"lengths": np.array([5, 3], np.int32), "keys": np.array([[1] * 5, [1, 0, 1, 1, 0]], np.int32)}.get(kind)
    past = rng.standard_normal((2, 2, heads, 3, width // heads)).astype(np.float32) if kind == "past" else None
    bias = rng.standard_normal(3 * width).astype(np.float32)
    inputs = [x, w, bias, np.float32(0.02), steps, mask, *zeros, past]
    given = {"num_heads": heads, "unidirectional": int(kind == "past")}
    got, wanted = one("QAttention", inputs, {0, 5, 8}, MS, count=2 if kind == "past" else 1, **given)
    for ours, theirs in zip(got, wanted, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_eight_bits(segments: bool) -> None:
    rng, width = np.random.default_rng(5), 40
    ids, kinds = (rng.integers(0, n, (2, 7)).astype(np.int32) for n in (30, 2))
    tables = [random(rng, "uint8", n, width) for n in (30, 9)] + [random(rng, "uint8", 2, width) if segments else None]
    affine, mask = [random(rng, "uint8", width) for _ in range(2)], (rng.uniform(size=(2, 7)) > 0.3).astype(np.int32)
    inputs = [ids, kinds if segments else None, *tables, *affine, mask]
    inputs += [np.float32(0.01 * (1 + i)) for i in range(5)] + [np.uint8(100 + i) for i in range(5)]
    got, wanted = one("QEmbedLayerNormalization", inputs, {0, 1, 7}, MS, count=2)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1], wanted[1])


def test_scales_that_are_zero_do_not_warn_where_code_is_generated() -> None:
    """A warning would be shown to users, and where warnings are errors the node would not be generated."""
    rng = np.random.default_rng(0)
    held = {
        "s": np.float32(0.1), "none": np.float32(0), "z": np.int8(0), "w": rng.integers(-9, 9, (3, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-9, 9, (4, 2)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "none", "z"], ["c"]),
        helper.make_node("QLinearMatMul", ["x", "s", "z", "v", "s", "z", "none", "z"], ["m"]),
        helper.make_node("MatMulInteger", ["x", "v"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("QuantizeLinear", ["f", "none", "z"], ["q"]),
    ]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(nodes, {"x": rng.integers(-9, 9, (1, 3, 4, 4)).astype(np.int8)}, held, ["c", "m", "q"])
    assert not [w.message for w in seen]
