"""Generated code for weights of few bits: MatMulNBits and MatMulBnb4 against the NumPy kernels and float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from quantized_models import MS, one, random, run, scales

import onnxplug
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.digits import multiplies
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_kernels.ops.contrib_matmul import nbits_weights

pytestmark = pytest.mark.usefixtures("single_nodes")


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


@pytest.mark.parametrize("target", ["", "avx2"])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(2, 16), (2, 128), (4, 16), (4, 32), (4, 256), (8, 32)])
@pytest.mark.parametrize("rows", [1, 8, 19])
def test_operands_are_rounded_to_bytes_where_accuracy_level_4_lets_them(
    bits: int, block: int, rows: int, points: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By blocks, to the 127th part of the largest number, as onnxruntime rounds them; no row goes unwritten."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng, k, n = np.random.default_rng(bits + block), 4 * block, 40
    x = (rng.standard_normal((rows, k)) * 10.0 ** rng.integers(-3, 3, (rows, 4)).repeat(block, 1)).astype(np.float32)
    x[0, :block] = 0
    w, step = random(rng, "uint8", n, 4, block * bits // 8), scales(rng, n, 4)
    zeros = random(rng, "uint8", n, bits * 4 // 8) if points else None
    given: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block}
    (got,), _ = one("MatMulNBits", [x, w, step, zeros], {0}, MS, **given, accuracy_level=4)
    chosen = host_target(target)
    if multiplies(quad_form(chosen), bits):
        blocks = x.reshape(rows, 4, block)
        largest = np.abs(blocks).max(-1, keepdims=True)
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        x = (np.rint(blocks * inverse) * (largest / np.float32(127))).reshape(rows, k)
    weights = nbits_weights(np, w, step, zeros, columns=n, depth=k, block_size=block, bits=bits).astype(np.float64).T
    np.testing.assert_allclose(got, x @ weights, rtol=1e-4, atol=1e-6 * (np.abs(x) @ np.abs(weights)).max())


def test_zero_points_that_are_floats_leave_operands_as_they_are() -> None:
    """onnxruntime rounds none beside them at any accuracy level."""
    rng = np.random.default_rng(0)
    x, w, step = rng.standard_normal((9, 128)).astype(np.float32), random(rng, "uint8", 40, 4, 16), scales(rng, 40, 4)
    points = (rng.random((40, 4)) * 15).astype(np.float32)
    given: dict[str, Any] = {"K": 128, "N": 40, "bits": 4, "block_size": 32, "accuracy_level": 4}
    (got,), (wanted,) = one("MatMulNBits", [x, w, step, points], {0}, MS, **given)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("level", [0, 4])
def test_what_is_no_number_reaches_all_columns(value: float, level: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    x[1, 40] = value
    w, step = random(rng, "uint8", 20, 2, 16), scales(rng, 20, 2)
    given: dict[str, Any] = {"K": 64, "N": 20, "bits": 4, "block_size": 32, "accuracy_level": level}
    (got,), _ = one("MatMulNBits", [x, w, step], {0}, MS, **given)
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


@pytest.mark.parametrize("element", ["int2", "uint2", "int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n", "block"),
    [(1, 64, 40, 32), (3, 96, 70, 16), (33, 128, 5, 64), (2, 192, 70, 96), (1, 320, 40, 160), (2, 96, 40, 24)],
)
def test_weights_dequantized_in_blocks_stay_as_they_are(
    element: str, zeros: bool, m: int, k: int, n: int, block: int
) -> None:
    rng = np.random.default_rng(k)
    bits = int(element.lstrip("uint"))
    low, high = (0, 2**bits) if element[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    kind = (
        helper.np_dtype_to_tensor_dtype(np.dtype(element)) if "8" in element else getattr(TensorProto, element.upper())
    )
    codes, points = rng.integers(low, high, (k, n)), rng.integers(low, high, (k // block, n))
    steps = rng.uniform(0.01, 0.02, (k // block, n)).astype(np.float32)
    held = [
        helper.make_tensor("w", kind, codes.shape, codes.reshape(-1)),
        helper.make_tensor("z", kind, points.shape, points.reshape(-1)),
        numpy_helper.from_array(steps, "s"),
    ]
    operands = ["w", "s", "z"] if zeros else ["w", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", operands, ["f"], "d", axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "f"], ["y"], "m"),
        helper.make_node("DequantizeLinear", operands, ["g"], "e", axis=0, block_size=block),
        helper.make_node("Gather", ["g", "i"], ["h"], "r"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, m, k]), helper.make_tensor_value_info("i", TensorProto.INT64, [3])],
        [helper.make_empty_tensor_value_info(name) for name in "yh"],
        held,
    )  # fmt: skip
    opset, ir = (25, 13) if bits == 2 else (21, 10)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    session = onnxplug.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert {name for region in session.explain().regions for name in region["nodes"]} == {"d", "m", "e", "r"}
    x, i = rng.standard_normal((2, m, k)).astype(np.float32), np.array([k - 1, 0, 5])
    weights = (codes - (np.repeat(points, block, 0) if zeros else 0)) * np.repeat(steps, block, 0).astype(np.float64)
    product, rows = session.run(None, {"x": x, "i": i})
    np.testing.assert_allclose(product, x @ weights, rtol=1e-4, atol=1e-5 * np.abs(x @ weights).max())
    np.testing.assert_allclose(rows, weights[i], rtol=1e-6)


@pytest.mark.parametrize("element", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("points", [None, "tensor", "column"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 8192, 40), (3, 96, 70), (33, 128, 5), (2, 30, 7)])
def test_weights_with_one_scale_for_a_column_or_for_all(
    element: str, points: str | None, m: int, k: int, n: int
) -> None:
    """As torch exports what was quantized by channel: no blocks, and for Gemm the other way round."""
    rng = np.random.default_rng(k)
    many, kind = 2 ** int(element.lstrip("uint")), getattr(TensorProto, element.upper())
    low = 0 if element[0] == "u" else -many // 2
    codes, wide = rng.integers(low, low + many, (k, n)), (n,) if points == "column" else ()
    zeros, steps = rng.integers(low, low + many, wide), np.asarray(rng.uniform(0.01, 0.02, wide), np.float32)
    held = [
        helper.make_tensor("w", kind, (k, n), codes.reshape(-1)),
        helper.make_tensor("v", kind, (n, k), codes.T.reshape(-1)),
        helper.make_tensor("z", kind, wide, np.reshape(zeros, -1)),
        numpy_helper.from_array(steps, "s"),
        numpy_helper.from_array(bias := rng.standard_normal(n).astype(np.float32), "b"),
    ]
    numbers = ["s", "z"] if points else ["s"]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", *numbers], ["f"], "d", axis=1),
        helper.make_node("MatMul", ["x", "f"], ["y"], "m"),
        helper.make_node("DequantizeLinear", ["v", *numbers], ["g"], "e", axis=0),
        helper.make_node("Gemm", ["x", "g", "b"], ["h"], "r", transB=1),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])]
    graph = helper.make_graph(nodes, "g", given, [helper.make_empty_tensor_value_info(name) for name in "yh"], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxplug.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert {name for region in session.explain().regions for name in region["nodes"]} == {"d", "m", "e", "r"}
    x = rng.standard_normal((m, k)).astype(np.float32)
    wanted = x @ ((codes - (zeros if points else 0)) * steps.astype(np.float64))
    for product, more in zip(session.run(None, {"x": x}), (0, bias), strict=True):
        np.testing.assert_allclose(product, wanted + more, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("points", [False, True])
def test_one_scale_of_weights_of_several_shapes(points: bool) -> None:
    """Equal initializers may be one: what is made of it for a matrix does not fit the others, nor the same one transposed."""
    rng = np.random.default_rng(9)
    x, held = rng.standard_normal((2, 64)).astype(np.float32), {"s": np.float32(0.02), "z": np.uint8(3)}
    held |= {"w": random(rng, "uint8", 64, 32), "v": random(rng, "uint8", 32, 512), "u": random(rng, "uint8", 512, 512)}
    nodes, wanted, last = [], x.astype(np.float64), "x"
    for at, (name, transposed) in enumerate((("w", 0), ("v", 0), ("u", 1), ("u", 0))):
        operands = [name, "s", "z"] if points else [name, "s"]
        nodes.append(helper.make_node("DequantizeLinear", operands, [f"f{at}"], f"d{at}"))
        kind, given = ("Gemm", {"transB": 1}) if transposed else ("MatMul", {})
        nodes.append(helper.make_node(kind, [last, f"f{at}"], [last := f"y{at}"], f"m{at}", **given))
        floats = (held[name] - np.float64(3 if points else 0)) * 0.02
        wanted = wanted @ (floats.T if transposed else floats)
    (got,) = run(nodes, {"x": x}, held, [last])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("transposed", [False, True])
def test_gemm_with_weights_in_blocks(transposed: bool) -> None:
    rng = np.random.default_rng(4)
    x, w, s = rng.standard_normal((3, 64)).astype(np.float32), random(rng, "int8", 64, 40), scales(rng, 2, 40)
    held = {"w": w.T.copy() if transposed else w, "s": s.T.copy() if transposed else s, "b": scales(rng, 3, 1)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], "d", axis=int(transposed), block_size=32),
        helper.make_node("Gemm", ["x", "f", "b"], ["y"], "m", transB=int(transposed)),
    ]
    (got,) = run(nodes, {"x": x}, held, ["y"])
    wanted = x @ (w * np.repeat(s, 32, 0).astype(np.float64)) + held["b"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("op_type", ["MatMulNBits", "MatMul", "Gather"])
def test_equal_scales_of_several_weights_go_with_the_zero_points_of_each(op_type: str) -> None:
    """Equal initializers may be one, as tools that make files smaller leave them."""
    rng, (m, k, n, block) = np.random.default_rng(5), (6, 64, 40, 32)
    codes = [random(rng, "uint8", k, n) for _ in range(2)]
    points = [random(rng, "uint8", k // block, n) for _ in range(2)]
    steps = scales(rng, k // block, n)
    x, i = rng.standard_normal((m, k)).astype(np.float32), np.array([1, 40])
    held, nodes, wanted = {"s": steps, "i": i}, [], []
    for at, (w, z) in enumerate(zip(codes, points, strict=True)):
        if op_type == "Gather":  # of one tensor, dequantized by different zero points
            w = codes[0]
        floats = (w - np.repeat(z, block, 0).astype(np.float64)) * np.repeat(steps, block, 0)
        wanted.append(floats[i] if op_type == "Gather" else x @ floats)
        if op_type == "MatMulNBits":
            held |= {"s": steps.T.copy(), f"w{at}": w.T.reshape(n, -1, block).copy(), f"z{at}": z.T.copy()}
            given = {"domain": MS, "K": k, "N": n, "bits": 8, "block_size": block}
            nodes.append(helper.make_node(op_type, ["x", f"w{at}", "s", f"z{at}"], [f"y{at}"], f"m{at}", **given))
            continue
        held |= {f"w{at}": w, f"z{at}": z}
        source = "w0" if op_type == "Gather" else f"w{at}"
        floats_of = [source, "s", f"z{at}"], [f"f{at}"]
        nodes.append(helper.make_node("DequantizeLinear", *floats_of, f"d{at}", axis=0, block_size=block))
        read = [f"f{at}", "i"] if op_type == "Gather" else ["x", f"f{at}"]
        nodes.append(helper.make_node(op_type, read, [f"y{at}"], f"m{at}"))
    nodes.append(helper.make_node("Add", ["y0", "y1"], ["y"], "a"))  # all in one region
    (got,) = run(nodes, {"x": x}, held, ["y"])
    np.testing.assert_allclose(got, sum(wanted), rtol=1e-4, atol=1e-4 * np.abs(sum(wanted)).max())


def test_one_scale_for_all_blocks_is_not_read_as_one_for_each() -> None:
    rng, (m, k, n) = np.random.default_rng(6), (2, 64, 40)
    x, w = rng.standard_normal((m, k)).astype(np.float32), random(rng, "uint8", k, n)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], "d", axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "f"], ["y"], "m"),
    ]
    (got,) = run(nodes, {"x": x}, {"w": w, "s": np.full((1, 1), 0.02, np.float32)}, ["y"])
    np.testing.assert_allclose(got, x @ (w * 0.02), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(2, 16), (2, 64), (4, 16), (4, 32), (4, 128), (8, 16), (8, 0)])
def test_rows_of_few_bits(bits: int, block: int, points: bool, kind: Any) -> None:
    rng, (rows, width) = np.random.default_rng(bits + block), (9, 256)
    blocks = width // (block or width)
    table, step = random(rng, "uint8", rows, width * bits // 8), scales(rng, rows, blocks)
    zeros = random(rng, "uint8", rows, -(-blocks * bits // 8)) if points else None
    places = np.array([[0, 3, -1], [8, 9, -10]], kind)  # the last two are outside
    given: dict[str, Any] = {"bits": bits, "block_size": block, "quantize_axis": 1}
    (got,), (wanted,) = one("GatherBlockQuantized", [table, places, step, zeros], {1}, MS, **given)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("width", "block"), [(256, 32), (64, 16), (96, 32)])
def test_rows_of_numbers_of_four_bits(
    width: int, block: int, kind: Any, points: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As onnxruntime's quantizer of weights writes them."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng, low, blocks = np.random.default_rng(3), -8 if kind is ml_dtypes.int4 else 0, -(-width // block)
    table, step = rng.integers(low, low + 16, (9, width)).astype(kind), scales(rng, 9, blocks)
    zeros = rng.integers(low, low + 16, (9, blocks)).astype(kind) if points else None
    places = np.array([[0, 3, -1], [8, 9, -10]])
    given: dict[str, Any] = {"block_size": block, "quantize_axis": 1}
    (got,), (wanted,) = one("GatherBlockQuantized", [table, places, step, zeros], {1}, MS, **given)
    np.testing.assert_array_equal(got, wanted)
