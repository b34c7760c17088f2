"""Generated code for quantized operators one behind the other, and for floats between quantizations: bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from quantized_models import MS, SIZES, TYPES, convolutions, kernel, operands, random, run, scales

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower import context
from onnxplug_ep_cpu.codegen.program import Program

pytestmark = pytest.mark.usefixtures("single_nodes")


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


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), TYPES, st.sampled_from(["Add", "Mul"]), st.booleans())
def test_two_dequantized_tensors_of_uint8_are_combined_as_the_operator_of_quantized_ones_does(
    seed: int, element: str, op_type: str, broadcast: bool
) -> None:
    """So does onnxruntime, which makes one of the other; of int8 it computes in floats."""
    rng = np.random.default_rng(seed)
    a, b = random(rng, element, 2, 3, 40), random(rng, element, *((3, 1) if broadcast else (2, 3, 40)))
    held = {n: np.float32(rng.choice([0.02, 0.03, 0.04])) for n in "stu"} | {n: random(rng, element) for n in "xyz"}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "x"], ["c"], name="c"),
        helper.make_node("DequantizeLinear", ["b", "t", "y"], ["d"], name="d"),
        helper.make_node(op_type, ["c", "d"], ["e"], name="e"),
        helper.make_node("QuantizeLinear", ["e", "u", "z"], ["f"], name="f"),
    ]
    (got,) = run(nodes, {"a": a, "b": b}, held, ["f"])
    s, t, u, x, y, z = (held[n] for n in "stuxyz")
    if element == "uint8":
        wanted = kernel(f"QLinear{op_type}", MS)(np, a, s, x, b, t, y, u, z)
    else:
        left, right = (kernel("DequantizeLinear")(np, *each) for each in ((a, s, x), (b, t, y)))
        wanted = kernel("QuantizeLinear")(np, left + right if op_type == "Add" else left * right, u, z)
    np.testing.assert_array_equal(got, wanted)


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


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("element", ["uint8", "int8"])
def test_scales_of_half_precision(element: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of halves, quantized as one of floats is; weights by column, in blocks of four bits, and by tensor."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng, half = np.random.default_rng(5), np.float16
    x, zero = rng.standard_normal((5, 64)).astype(half), random(rng, element)
    steps = scales(rng, 40).astype(half)
    fours = rng.integers(-8, 8, (64, 40))
    held = {"s": half(0.02), "z": zero, "w": random(rng, "int8", 64, 40), "t": steps, "v": fours.astype(ml_dtypes.int4)}
    held |= {"u": scales(rng, 2, 40).astype(half)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="a"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="b"),
        helper.make_node("DequantizeLinear", ["w", "t"], ["f"], name="c", axis=1),
        helper.make_node("MatMul", ["d", "f"], ["y"], name="e"),
        helper.make_node("DequantizeLinear", ["v", "u"], ["g"], name="h", axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "g"], ["k"], name="i"),
        helper.make_node("QuantizeLinear", ["k", "t"], ["l"], name="j", axis=1),
    ]
    q, y, k, by_column = run(nodes, {"x": x}, held, ["q", "y", "k", "l"])
    assert y.dtype == k.dtype == half
    rounded = kernel("QuantizeLinear")(np, x.astype(np.float32), np.float32(held["s"]), zero)
    np.testing.assert_array_equal(q, rounded)
    wanted = ((rounded.astype(float) - zero) * float(held["s"])) @ (held["w"] * steps.astype(float))
    np.testing.assert_allclose(y, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
    wanted = x.astype(float) @ (fours * np.repeat(held["u"], 32, 0).astype(float))
    np.testing.assert_allclose(k, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
    counted = (wanted / steps.astype(float)).round().clip(0, 255)
    assert np.abs(by_column - counted).max() <= np.abs(wanted / steps.astype(float)).max() * 2e-3 + 1
