"""Generated code for quantized operators against the NumPy kernels: integers bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_ep_cpu.codegen import capability
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower import context
from onnxplug_ep_cpu.codegen.program import Program
from onnxplug_kernels.catalogue import catalogue

MS = "com.microsoft"


@pytest.fixture(autouse=True, scope="module")
def _single_nodes() -> Iterator[None]:
    """A light operator is a region here even by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capability, "SMALLEST", 1)
        yield


TYPES = st.sampled_from(["uint8", "int8"])


def kernel(op_type: str, domain: str = "") -> Any:
    """The NumPy kernel of an operator's newest version."""
    return max((e for e in catalogue() if (e.domain, e.op_type) == (domain, op_type)), key=lambda e: e.since).function


def run(
    nodes: list[Any], fed: dict[str, np.ndarray], held: dict[str, np.ndarray], outputs: list[str]
) -> list[np.ndarray]:
    """Outputs of a model whose nodes all run as generated code."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    taken = {name for region in session.explain().regions for name in region["nodes"]}
    assert len(taken) == len(nodes), "every node is generated code"
    return list(session.run(None, fed))


def one(op_type: str, inputs: list[Any], fed: set[int], domain: str = "", count: int = 1, **attributes: Any) -> Any:
    """(got, wanted) of one node, whose inputs at ``fed`` are not constants."""
    arrays = {f"x{i}": np.asarray(a) for i, a in enumerate(inputs) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(count)]
    node = helper.make_node(op_type, names, outputs, domain=domain, name="n", **attributes)
    parts = (
        {n: a for n, a in arrays.items() if int(n[1:]) in fed},
        {n: a for n, a in arrays.items() if int(n[1:]) not in fed},
    )
    got = run([node], *parts, outputs)
    wanted = kernel(op_type, domain)(np, *inputs, **attributes)
    return got, list(wanted) if isinstance(wanted, tuple) else [wanted]


def random(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(element)
    return rng.integers(limits.min, limits.max + 1, shape).astype(element)


def scales(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(0.001, 0.02, shape).astype(np.float32)


def same(pair: Any) -> None:
    got, wanted = pair
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    group = draw(st.sampled_from([1, 1, 2, 5]))
    depthwise = draw(st.booleans())
    return {
        "seed": draw(st.integers(0, 999)),
        "x": draw(TYPES),
        "w": draw(TYPES),
        "group": group,
        "channels": 1 if depthwise else draw(st.integers(1, 5)),
        "outputs": 1 if depthwise else draw(st.sampled_from([1, 3, 8, 17, 33])),
        "image": draw(st.tuples(st.integers(3, 9), st.integers(3, 7))),
        "batch": draw(st.integers(1, 2)),
        "kernel": draw(st.sampled_from([(1, 1), (3, 3), (2, 3)])),
        "strides": draw(st.sampled_from([[1, 1], [2, 2], [2, 1]])),
        "pads": draw(st.sampled_from([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0]])),
        "by_channel": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }


def operands(case: dict[str, Any]) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, x, its zero point, w, its zero points."""
    rng = np.random.default_rng(case["seed"])
    outputs = case["outputs"] * case["group"]
    x = random(rng, case["x"], case["batch"], case["channels"] * case["group"], *case["image"])
    w = random(rng, case["w"], outputs, case["channels"], *case["kernel"])
    zero = random(rng, case["w"], outputs) if case["by_channel"] else random(rng, case["w"])
    return rng, x, random(rng, case["x"]), w, zero


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_qlinear_conv(case: dict[str, Any]) -> None:
    rng, x, x_zero, w, w_zero = operands(case)
    w_scale = scales(rng, len(w)) if case["by_channel"] else scales(rng)
    bias = rng.integers(-5000, 5000, len(w)).astype(np.int32) if case["bias"] else None
    inputs = [x, np.float32(0.01), x_zero, w, w_scale, w_zero, np.float32(0.013), random(rng, case["x"]), bias]
    same(one("QLinearConv", inputs, {0}, group=case["group"], strides=case["strides"], pads=case["pads"]))


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


SIZES = st.tuples(
    st.sampled_from([1, 2, 7, 13]), st.sampled_from([1, 3, 16, 40, 301]), st.sampled_from([1, 5, 8, 24, 50])
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), SIZES, TYPES, TYPES, st.booleans(), st.booleans())
def test_matmul_integer(seed: int, sizes: Any, left: str, right: str, by_column: bool, computed: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    x, w = random(rng, left, 2, m, k), random(rng, right, k, n)
    w_zero = random(rng, right, n) if by_column else random(rng, right)
    same(one("MatMulInteger", [x, w, random(rng, left), w_zero], {0, 2} if computed else {0}))


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


def near(pair: Any) -> None:
    """Equal but for numbers that lay halfway between two others before they were rounded."""
    for ours, theirs in zip(*pair, strict=True):
        assert ours.dtype == theirs.dtype
        apart = np.abs(ours.astype(int) - theirs.astype(int))
        assert apart.max(initial=0) <= 1 and (apart > 0).mean() < 0.02 if apart.size else ours.shape == theirs.shape


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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(0, 9), min_size=1, max_size=3), TYPES)
def test_quantize_and_dequantize(seed: int, shape: list[int], element: str) -> None:
    rng = np.random.default_rng(seed)
    step, zero = np.float32(0.5), random(rng, element)
    x = (rng.integers(-600, 600, shape) / 4).astype(np.float32)  # many halves
    same(one("QuantizeLinear", [x, step, zero], {0}))
    same(one("DequantizeLinear", [random(rng, element, *shape), step, zero], {0}))


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


def test_global_average_pool() -> None:
    x = random(np.random.default_rng(0), "uint8", 2, 11, 5, 6)
    inputs = [x, np.float32(0.1), np.uint8(7), np.float32(0.11), np.uint8(9)]
    (got,), (wanted,) = one("QLinearGlobalAveragePool", inputs, {0}, MS)
    assert np.abs(got.astype(int) - wanted).max() <= 1  # the sum is exact here, rounded there


def test_a_chain_keeps_what_stays_inside_widened() -> None:
    """Convolution -> convolution and addition -> convolution, against the kernels one after the other."""
    rng = np.random.default_rng(1)
    x = random(rng, "uint8", 1, 6, 8, 8)
    w = [random(rng, "int8", 6, 6, 3, 3), random(rng, "int8", 6, 1, 3, 3), random(rng, "int8", 5, 6, 1, 1)]
    zero, step = np.uint8(110), np.float32(0.03)
    held = {"s": step, "z": zero, "ws": np.float32(0.002), "wz": np.int8(0), **{f"w{i}": a for i, a in enumerate(w)}}

    def node(name: str, source: str, weight: str, to: str, **attributes: Any) -> Any:
        return helper.make_node(
            "QLinearConv", [source, "s", "z", weight, "ws", "wz", "s", "z"], [to], name=name, **attributes
        )

    nodes = [
        node("a", "x", "w0", "p", pads=[1] * 4),
        node("b", "p", "w1", "q", pads=[1] * 4, group=6),
        helper.make_node("QLinearAdd", ["p", "s", "z", "q", "s", "z", "s", "z"], ["r"], domain=MS, name="c"),
        node("d", "r", "w2", "y"),
    ]
    conv = kernel("QLinearConv")
    rest = (np.float32(0.002), np.int8(0), step, zero)
    p = conv(np, x, step, zero, w[0], *rest, pads=[1] * 4)
    q = conv(np, p, step, zero, w[1], *rest, pads=[1] * 4, group=6)
    r = kernel("QLinearAdd", MS)(np, p, step, zero, q, step, zero, step, zero)
    (got,) = run(nodes, {"x": x}, held, ["y"])
    np.testing.assert_array_equal(got, conv(np, r, step, zero, w[2], *rest))


@pytest.mark.parametrize("reader", ["PRelu", "Add"])
def test_what_is_computed_of_a_quantized_product_is_quantized_by_division(reader: str) -> None:
    """A quarter of, or a half added to, small multiples of the step lies halfway between two others, where a reciprocal errs."""
    rng = np.random.default_rng(1)
    step, zero = np.float32(0.07298215), np.int8(0)
    held = {
        "s": step, "z": zero, "xs": np.float32(0.05), "w": random(rng, "int8", 32, 16, 1, 1), "ws": np.float32(0.0026),
        "quarter": np.full((32, 1, 1), 0.25, np.float32), "half": step * np.float32(0.5),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(reader, ["d", "quarter" if reader == "PRelu" else "half"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    x = random(rng, "int8", 1, 16, 20, 20)
    (got,) = run(nodes, {"x": x}, held, ["y"])
    q, _ = run(nodes, {"x": x}, held, ["q", "y"])
    d = q * step
    r = np.where(d < 0, d * np.float32(0.25), d) if reader == "PRelu" else d + held["half"]
    np.testing.assert_array_equal(got, np.clip(np.rint(r / step), -128, 127).astype(np.int8))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([16, 32, 100, 300]),
    st.sampled_from([1, 8, 20, 48]),
    st.sampled_from([2, 4, 4, 8]),
    st.sampled_from([16, 32, 128]),
    st.sampled_from(["none", "packed", "floats"]),
    st.booleans(),
)
def test_matmul_nbits(seed: int, m: int, k: int, n: int, bits: int, block: int, points: str, bias: bool) -> None:
    rng, blocks = np.random.default_rng(seed), -(-k // block)
    x = rng.standard_normal((2, m, k)).astype(np.float32)
    w, step = random(rng, "uint8", n, blocks, block * bits // 8), scales(rng, n, blocks)
    zeros = {
        "none": None,
        "packed": random(rng, "uint8", n, -(-blocks * bits // 8)),
        "floats": rng.uniform(0, 2**bits, (n, blocks)).astype(np.float32),
    }[points]
    added = rng.standard_normal(n).astype(np.float32) if bias else None
    inputs = [x, w, step, zeros, None, added]
    (got,), (wanted,) = one("MatMulNBits", inputs, {0}, MS, K=k, N=n, bits=bits, block_size=block)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * k)


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


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(2, 16), (4, 32), (4, 48), (4, 256), (8, 64), (8, 128)])
def test_few_rows_times_weights_of_few_bits_are_as_exact_as_floats(bits: int, block: int, points: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(bits + block), (3, 6 * block, 40)
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.integers(-3, 3, (m, k // block)).repeat(block, 1)).astype(np.float32)
    x[0, :block] = 0
    x[1, block : 2 * block] = 0x7FFFFF / 2.0**23 * 2.0**90  # every digit at its largest
    x[2, :block] = -1e-30
    w, step = random(rng, "uint8", n, k // block, block * bits // 8), scales(rng, n, k // block)
    zeros = random(rng, "uint8", n, -(-k // block * bits // 8)) if points else None
    (got,), _ = one("MatMulNBits", [x, w, step, zeros], {0}, MS, K=k, N=n, bits=bits, block_size=block)
    fields = (w[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)).reshape(n, k // block, block)
    point: Any = 2 ** (bits - 1)
    if zeros is not None:
        point = (zeros[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)).reshape(n, -1, 1)
        point = point[:, : k // block].astype(int)
    exact = ((fields.astype(int) - point) * step[..., None].astype(np.float64)).reshape(n, k).T
    bound = np.abs(x).astype(np.float64) @ np.abs((fields * step[..., None].astype(np.float64)).reshape(n, k).T)
    assert np.all(np.abs(got - x.astype(np.float64) @ exact) <= 8 * np.finfo(np.float32).eps * (bound + 1e-35))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_all_columns(value: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    x[1, 40] = value
    w, step = random(rng, "uint8", 20, 2, 16), scales(rng, 20, 2)
    (got,), _ = one("MatMulNBits", [x, w, step], {0}, MS, K=64, N=20, bits=4, block_size=32)
    assert np.isfinite(got[0]).all()
    assert not np.isfinite(got[1]).any()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([32, 96, 320]),
    st.sampled_from([1, 8, 20, 48]),
    st.sampled_from([16, 32]),
    st.integers(0, 1),
)
def test_matmul_bnb4(seed: int, m: int, k: int, n: int, block: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [
        rng.standard_normal((2, m, k)).astype(np.float32), random(rng, "uint8", n * k // 2), scales(rng, n * k // block)
    ]  # fmt: skip
    (got,), (wanted,) = one("MatMulBnb4", inputs, {0}, MS, K=k, N=n, quant_type=kind, block_size=block)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6 * k)


def _qdq(name: str, source: str, to: str, step: str, zero: str) -> list[Any]:
    return [
        helper.make_node("QuantizeLinear", [source, step, zero], [f"{name}_q"], name=f"{name}_q"),
        helper.make_node("DequantizeLinear", [f"{name}_q", step, zero], [to], name=f"{name}_dq"),
    ]


@settings(max_examples=30, deadline=None)
@given(convolutions(), st.sampled_from(["Relu", "Add"]))
def test_convolution_between_dequantizations(case: dict[str, Any], after: str) -> None:
    """Sums of integers: what comes out is at most one step away, where a float sum was rounded to the other side."""
    rng, x, x_zero, w, _ = operands(case)
    w, outputs = w.view(np.int8), len(w)
    step, w_scale = np.float32(0.02), scales(rng, outputs)
    held = {
        "s": step, "z": x_zero, "w": w, "ws": w_scale, "wz": np.zeros(outputs, np.int8),
        "b": rng.integers(-5000, 5000, outputs).astype(np.int32), "bs": step * w_scale, "ys": np.float32(0.4), "yz": np.uint8(90),
    }  # fmt: skip
    conv = helper.make_node(
        "Conv", ["xd", "wd", *(["bd"] if case["bias"] else [])], ["c"], name="c", group=case["group"],
        strides=case["strides"], pads=case["pads"],
    )  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xd"], name="xd"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="wd", axis=0),
        *([helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], name="bd", axis=0)] if case["bias"] else []),
        conv,
        helper.make_node(after, ["c", "c"] if after == "Add" else ["c"], ["a"], name="a"),
        *_qdq("y", "a", "y", "ys", "yz"),
    ]
    (got,) = run(nodes, {"x": x}, held, ["y"])
    wide = {n: np.asarray(a, np.float64) for n, a in held.items()}
    image = (x.astype(np.float64) - float(x_zero)) * float(step)
    weights = w * wide["ws"].reshape(-1, 1, 1, 1)
    bias = wide["b"] * wide["bs"] if case["bias"] else None
    sums = kernel("Conv")(np, image, weights, bias, group=case["group"], strides=case["strides"], pads=case["pads"])
    sums = sums * 2 if after == "Add" else np.maximum(sums, 0)
    wanted = (np.clip(np.round(sums / 0.4) + 90, 0, 255) - 90) * 0.4
    difference = np.abs(got - wanted)
    assert difference.max(initial=0) < 0.41 and (difference > 0.01).mean() < 0.05


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), TYPES, st.sampled_from([1, 5, 16]), st.booleans())
def test_a_quantized_residual_is_added_by_the_convolution(seed: int, element: str, channels: int, relu: bool) -> None:
    """The result of a convolution is quantized before the residual is added, but not written: one loop less. The residual is
    written as bytes."""
    rng = np.random.default_rng(seed)
    x = random(rng, "uint8", 1, channels, 6, 5)
    w, v = random(rng, "int8", 2, 19, channels, 1, 1)
    zero, point = np.asarray(3, element), np.asarray(-3 if element == "int8" else 130, element)
    held = {
        "s": np.float32(0.02), "z": np.uint8(100), "w": w, "v": v, "ws": np.float32(0.01), "cs": np.float32(0.1), "cz": zero,
        "os": np.float32(0.05), "oz": point, "ys": np.float32(0.15),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xd"], name="xd"),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], name="wd"),
        helper.make_node("DequantizeLinear", ["v", "ws"], ["vd"], name="vd"),
        helper.make_node("Conv", ["xd", "vd"], ["o"], name="o"),
        *_qdq("o", "o", "od", "os", "oz"),
        helper.make_node("Conv", ["xd", "wd"], ["c"], name="c"),
        *_qdq("c", "c", "cd", "cs", "cz"),
        helper.make_node("Add", ["cd", "od"], ["a"], name="a"),
        *([helper.make_node("Relu", ["a"], ["r"], name="r")] if relu else []),
        helper.make_node("QuantizeLinear", ["r" if relu else "a", "ys", "cz"], ["y"], name="y"),
    ]
    loops: list[ex.Expr] = []
    results, call = set(), Program.call

    def noted(program: Program, kernel: Any, *arguments: Any, **options: Any) -> None:
        results.add(getattr(kernel, "result", None))
        call(program, kernel, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "write_map", lambda program, target, expr, *rest: loops.append(expr))
        patch.setattr(Program, "call", noted)
        (got,) = run(nodes, {"x": x}, held, ["y"])
    assert not loops and element in results and "float32" not in results
    limits = np.iinfo(element)

    def convolved(filters: np.ndarray, step: float, zero: int) -> np.ndarray:
        sums = np.einsum("nchw,oc->nohw", x.astype(np.float64) - 100, filters[:, :, 0, 0].astype(np.float64)) * 0.0002
        return (np.clip(np.rint(sums / step) + zero, limits.min, limits.max) - zero) * step

    total = convolved(w, 0.1, int(zero)) + convolved(v, 0.05, int(point))
    total = np.maximum(total, 0) if relu else total
    wanted = np.clip(np.rint(total / 0.15) + int(zero), limits.min, limits.max)
    difference = np.abs(got - wanted)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.02, "one step, where float32 rounds to the other side"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), SIZES, st.sampled_from(["MatMul", "Gemm"]), st.booleans())
def test_matrix_products_between_dequantizations(seed: int, sizes: Any, op_type: str, transposed: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    transposed = transposed and op_type == "Gemm"
    x, w = random(rng, "uint8", m, k), random(rng, "int8", *((n, k) if transposed else (k, n)))
    w_scale, bias = scales(rng, n), rng.standard_normal(n).astype(np.float32)
    held = {"s": np.float32(0.02), "z": np.uint8(100), "w": w, "ws": w_scale, "b": bias}
    product = helper.make_node(
        op_type,
        ["xd", "wd", *(["b"] if op_type == "Gemm" else [])],
        ["y"],
        name="p",
        **({"transB": 1} if transposed else {}),
    )
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xd"], name="xd"),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], name="wd", axis=0 if transposed else 1),
        product,
    ]
    (got,) = run(nodes, {"x": x}, held, ["y"])
    right = w.astype(np.float64) * (w_scale[:, None] if transposed else w_scale)
    wanted = (x.astype(np.float64) - 100) * 0.02 @ (right.T if transposed else right)
    np.testing.assert_allclose(got, wanted + (bias if op_type == "Gemm" else 0), rtol=1e-5, atol=1e-4)
