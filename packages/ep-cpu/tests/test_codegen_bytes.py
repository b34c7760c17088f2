"""Quantized data that stays bytes: moved, joined, pooled and looked up in tables, bit for bit as the NumPy kernels have it."""

from __future__ import annotations

import math
import platform
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, run_native, run_numpy, session
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.kernels.bytemap import ByteMap
from onnxplug_ep_cpu.codegen.kernels.map import Map
from onnxplug_ep_cpu.codegen.kernels.pool import Pool
from onnxplug_ep_cpu.codegen.lower import loops, pool, qdq
from onnxplug_ep_cpu.codegen.target import host_target

TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16}
MS = "com.microsoft"
TARGETS = pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
elements = st.sampled_from(["uint8", "int8"])


def numbers(element: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(element)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, element, endpoint=True)


def undo(source: str, made: str, scale: str = "s", zero: str = "z") -> Any:
    return helper.make_node("DequantizeLinear", [source, scale, zero], [made], name=f"{made}_d")


def redo(source: str, made: str, scale: str = "s", zero: str = "z") -> Any:
    return helper.make_node("QuantizeLinear", [source, scale, zero], [made], name=f"{made}_q")


def parameters(element: str, zero: int = 7, scale: float = 0.03) -> dict[str, np.ndarray]:
    return {"s": np.float32(scale), "z": np.array(zero, element)}


def same(proto: Any, feeds: dict[str, np.ndarray]) -> None:
    for got, wanted in zip(run_native(proto, feeds), run_numpy(proto, feeds), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


# ---- moves


MOVES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Transpose": ([], {"perm": [0, 2, 1, 3]}),
    "Reshape": (["flat"], {}),
    "Flatten": ([], {}),
    "Unsqueeze": (["one"], {}),
    "Slice": (["starts", "ends", "axes", "steps"], {}),
    "Gather": (["places"], {"axis": 1}),
    "Split": (["sizes"], {"axis": 2}),
}
HELD = {
    "flat": np.array([0, -1]), "one": np.array([1]), "starts": np.array([1, -1]), "ends": np.array([9, -9]),
    "axes": np.array([2, 3]), "steps": np.array([2, -1]), "places": np.array([[2, 0], [0, -1]]), "sizes": np.array([1, 3]),
}  # fmt: skip


@pytest.mark.parametrize("move", list(MOVES))
@pytest.mark.parametrize("again", [0.03, 0.05])
def test_what_is_moved_are_bytes(move: str, again: float) -> None:
    """By the same numbers nothing is computed at all; floats are never written."""
    further, attributes = MOVES[move]
    x = numbers("uint8", 2, 3, 4, 5)
    outputs = ["m", "n"] if move == "Split" else ["m"]
    nodes = [
        undo("x", "f"),
        helper.make_node(move, ["f", *further], outputs, name="m", **attributes),
        redo("m", "y", "t"),
    ]
    held = {**parameters("uint8"), "t": np.float32(again), **{name: HELD[name] for name in further}}
    proto = model(nodes, {"x": x}, ["y"], held, types={"y": TensorProto.UINT8})
    made = []
    with mock.patch.object(loops, "Map", side_effect=lambda *a: made.append(Map(*a)) or made[-1]):
        (got,) = run_native(proto, {"x": x})
    np.testing.assert_array_equal(got, run_numpy(proto, {"x": x})[0])
    assert not any(kernel.result == "float32" for kernel in made)
    assert again != 0.03 or all(kernel.copies for kernel in made)


@given(elements, st.integers(-100, 127), st.floats(1e-30, 1e30), st.integers(0, 99))
def test_dequantized_and_quantized_again_is_the_same(element: str, zero: int, scale: float, seed: int) -> None:
    x = numbers(element, 300, seed=seed)
    held = parameters(element, abs(zero) if element == "uint8" else zero, scale)
    nodes = [undo("x", "f"), helper.make_node("Identity", ["f"], ["g"], name="g"), redo("g", "y")]
    same(model(nodes, {"x": x}, ["y"], held, types={"y": TYPES[element]}), {"x": x})


def test_rows_of_a_quantized_table() -> None:
    """Only rows that are wanted are dequantized."""
    table, places = numbers("int8", 50, 6), np.array([[3, 49], [-1, 0]])
    nodes = [
        undo("w", "f"),
        helper.make_node("Gather", ["f", "i"], ["g"], name="g"),
        helper.make_node("Neg", ["g"], ["y"]),
    ]
    same(model(nodes, {"i": places}, ["y"], {"w": table, **parameters("int8", 3)}), {"i": places})


# ---- tables


FUNCTIONS = ("Sigmoid", "Tanh", "HardSwish", "Relu", "Erf", "Abs", "Softplus")


def function(op_type: str, element: str, made: str, x: np.ndarray) -> Any:
    held = {**parameters(element, 9), "t": np.float32(0.02), "u": np.array(11, made)}
    nodes = [undo("x", "f"), helper.make_node(op_type, ["f"], ["g"], name="g"), redo("g", "y", "t", "u")]
    return model(nodes, {"x": x}, ["y"], held, types={"y": TYPES[made]})


@TARGETS
@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_a_function_of_bytes_is_a_table(op_type: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results as without one, for every byte."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for element, made in (("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
        x = np.tile(np.arange(256, dtype=np.uint8), 40)[:9999].view(element)
        proto = function(op_type, element, made, x)
        with mock.patch.object(loops, "ByteMap", wraps=ByteMap) as kernel:
            (got,) = run_native(proto, {"x": x})
        assert kernel.call_count == 1 or (target == "generic" and op_type in ("Relu", "Abs"))
        with mock.patch.object(loops, "_tabled", return_value=False):
            np.testing.assert_array_equal(got, run_native(proto, {"x": x})[0])


@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 40), elements, st.integers(0, 9))
def test_tables_of_rows_with_gaps(rows: int, columns: int, gap: int, element: str, seed: int) -> None:
    """Vectors, what they leave, and rows shorter than a vector."""
    x = numbers(element, rows, columns + gap, seed=seed)
    held = {**parameters(element, 9), "b": np.array([gap]), "e": np.array([columns + gap]), "a": np.array([1])}
    nodes = [
        undo("x", "f"), helper.make_node("Slice", ["f", "b", "e", "a"], ["h"], name="h"),
        helper.make_node("Sigmoid", ["h"], ["g"], name="g"), redo("g", "y"),
    ]  # fmt: skip
    proto = model(nodes, {"x": x}, ["y"], held, types={"y": TYPES[element]})
    with mock.patch.object(
        loops, "_map_time", lambda target, expr, operands, size: size * 100.0 if size != 256 else 0.0
    ):
        (got,) = run_native(proto, {"x": x})
    with mock.patch.object(loops, "_tabled", return_value=False):
        np.testing.assert_array_equal(got, run_native(proto, {"x": x})[0])


def test_tables_of_any_size() -> None:
    """One session, sizes for which a table pays and for which it does not."""
    nodes = [undo("x", "f"), helper.make_node("Relu", ["f"], ["g"], name="g"), redo("g", "y", "s", "u")]
    held, x = {**parameters("uint8", 90), "u": np.uint8(3)}, numbers("uint8", 3, 5)
    proto = model(nodes, {"x": x}, ["y"], held, types={"y": TensorProto.UINT8}, symbolic=True)
    ours, numpy = session(proto), session(proto, codegen=False)
    for shape in ((3, 5), (10, 1000), (11, 1001), (1, 20), (90, 31), (90, 33), (10, 1000), (500, 8), (0, 4)):
        x = numbers("uint8", *shape)
        np.testing.assert_array_equal(ours.run(None, {"x": x})[0], numpy.run(None, {"x": x})[0])


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="assembles code for x86")
@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids"])
def test_wider_vectors_look_up_as_well(cpu: str) -> None:
    """What such a processor would run; it is assembled here, not run."""
    target = replace(host_target(), name="avx512", cpu=cpu, features="", lanes=16, registers=32)
    text = Compiler(target, None).assembly(ByteMap())
    assert text.count("vpshufb") == 2 * 16 and "zmm" in text


# ---- concatenation


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.sampled_from([0.03, 0.05])), min_size=1, max_size=4), elements,
    st.integers(0, 9),
)  # fmt: skip
def test_parts_of_any_scale(parts: list[tuple[int, bool, float]], element: str, seed: int) -> None:
    """Parts as they came or out of a convolution, by their own numbers."""
    x = numbers(element, 2, 8, 5, 6, seed=seed)
    held = {**parameters(element), "o": np.int8(0)}
    nodes, fed = [], {"x": x}
    for n, (channels, product, scale) in enumerate(parts):
        held |= {f"s{n}": np.float32(scale), f"z{n}": np.array(7, element)}
        if product:
            held[f"w{n}"] = numbers("int8", channels, 8, 1, 1, seed=seed + n)
            names = ["x", "s", "z", f"w{n}", "s", "o", f"s{n}", f"z{n}"]
            nodes.append(helper.make_node("QLinearConv", names, [f"c{n}"], name=f"c{n}"))
        else:
            fed[f"c{n}"] = numbers(element, 2, channels, 5, 6, seed=seed + n)
        nodes.append(undo(f"c{n}", f"f{n}", f"s{n}", f"z{n}"))
    nodes.append(helper.make_node("Concat", [f"f{n}" for n in range(len(parts))], ["g"], name="g", axis=1))
    nodes.append(redo("g", "y"))
    same(model(nodes, fed, ["y"], held, types={"y": TYPES[element]}), fed)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_products_joined_along_any_axis(axis: int) -> None:
    x = numbers("uint8", 3, 4, 16)
    held = {
        **parameters("uint8"),
        "t": np.float32(0.9),
        "w": numbers("int8", 16, 12),
        "v": np.float32(0.01),
        "o": np.int8(0),
    }
    nodes = [undo("x", "f"), undo("w", "g", "v", "o"), helper.make_node("MatMul", ["f", "g"], ["a"], name="a")]
    nodes += [helper.make_node("Concat", ["a", "f2"], ["c"], name="c", axis=axis), undo("e", "f2"), redo("c", "y", "t")]
    nodes[3], nodes[4] = nodes[4], nodes[3]
    fed = {"x": x, "e": numbers("uint8", 3, 4, 12, seed=1)}
    proto = model(nodes, fed, ["y"], held, types={"y": TensorProto.UINT8})
    (got,), (wanted,) = run_native(proto, fed), run_numpy(proto, fed)
    assert np.abs(got.astype(int) - wanted).max() <= 1  # floats are summed in another order there


# ---- the largest of windows


@TARGETS
@pytest.mark.parametrize("channels", [1, 5, 16, 40, 100])
def test_largest_bytes_of_windows(channels: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for element in ("uint8", "int8"):
        x = numbers(element, 2, channels, 7, 6)
        plain = helper.make_node("MaxPool", ["x"], ["y"], name="p", **attributes)
        same(model([plain], {"x": x}, ["y"], types={"y": TYPES[element]}), {"x": x})
        nodes = [undo("x", "f"), helper.make_node("MaxPool", ["f"], ["g"], name="p", **attributes), redo("g", "y")]
        proto = model(nodes, {"x": x}, ["y"], parameters(element), types={"y": TYPES[element]})
        with mock.patch.object(pool, "Pool", wraps=Pool) as kernel:
            (got,) = run_native(proto, {"x": x})
        assert [call.args[3] for call in kernel.call_args_list] == [element]
        np.testing.assert_array_equal(got, run_numpy(proto, {"x": x})[0])


def test_a_negative_scale_turns_the_order() -> None:
    """The largest float is that of the smallest byte."""
    x = numbers("uint8", 1, 16, 6, 6)
    nodes = [undo("x", "f"), helper.make_node("MaxPool", ["f"], ["g"], name="p", kernel_shape=[2, 2]), redo("g", "y")]
    same(model(nodes, {"x": x}, ["y"], parameters("uint8", 7, -0.03), types={"y": TensorProto.UINT8}), {"x": x})


# ---- blends


def resized(
    element: str, shape: tuple[int, ...], sizes: tuple[int, ...], pooled: bool, **attributes: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    """A model that resizes bytes to ``sizes``; what is pooled before lies channels-last."""
    x = numbers(element, *shape)
    nodes = [helper.make_node("MaxPool", ["x"], ["p"], name="p", kernel_shape=[1] * (len(shape) - 2))] if pooled else []
    nodes.append(helper.make_node("Resize", ["p" if pooled else "x", "", "", "n"], ["y"], name="r", **attributes))
    return model(nodes, {"x": x}, ["y"], {"n": np.array(sizes)}, types={"y": TYPES[element]}), {"x": x}


@TARGETS
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((2, 3, 7, 20), (14, 40)), ((1, 40, 8, 6), (4, 3)), ((1, 5, 3, 4), (24, 64)), ((1, 2, 20), (80,)), ((1, 3, 4, 4, 20), (8, 2, 40))],
)  # fmt: skip
def test_bytes_are_blended_and_cut_down(
    shape: tuple[int, ...], sizes: tuple[int, ...], pooled: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By powers of two, whose sums are exact."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for element in ("uint8", "int8"):
        for attributes in (
            {"mode": "linear"},
            {},
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ):
            same(*resized(element, shape, (*shape[:2], *sizes), pooled, **attributes))


@given(
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from(["half_pixel", "align_corners"]),
)
def test_bytes_of_any_size_are_blended_in_float32(sizes: list[int], pooled: bool, how: str) -> None:
    """Roundings may leave a sum right below an integer."""
    proto, fed = resized(
        "uint8", (1, 3, *sizes[:2]), (1, 3, *sizes[2:]), pooled, mode="linear", coordinate_transformation_mode=how
    )
    (got,), (wanted,) = run_native(proto, fed), run_numpy(proto, fed)
    apart = np.abs(got.astype(int) - wanted)
    assert apart.max() <= 1 and (apart > 0).mean() < 0.05


@given(
    st.lists(st.integers(1, 40), min_size=4, max_size=4), st.booleans(), st.sampled_from(["uint8", "int8"]),
    st.sampled_from([("linear", 1), ("cubic", 0), ("cubic", 1)]),
)  # fmt: skip
def test_bytes_of_many_pixels_are_rounded(sizes: list[int], pooled: bool, element: str, how: tuple[str, int]) -> None:
    """Roundings may leave a sum right beside a half."""
    proto, fed = resized(element, (1, 3, *sizes[:2]), (1, 3, *sizes[2:]), pooled, mode=how[0], antialias=how[1])
    (got,), (wanted,) = run_native(proto, fed), run_numpy(proto, fed)
    apart = np.abs(got.astype(int) - wanted.astype(int))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.05


def test_an_image_of_bytes_whose_channels_are_declared_last() -> None:
    same(*resized("uint8", (2, 6, 7, 20), (2, 12, 14, 20), False, mode="linear"))


@pytest.mark.parametrize("attributes", [{}, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}])
def test_picked_bytes_are_dequantized_behind_that(attributes: dict[str, Any]) -> None:
    x = numbers("uint8", 1, 20, 6, 5)
    nodes = [undo("x", "f"), helper.make_node("Resize", ["f", "", "n"], ["g"], name="r", **attributes), redo("g", "y")]
    held = {**parameters("uint8"), "n": np.array([1, 1, 3, 2], np.float32)}
    proto = model(nodes, {"x": x}, ["y"], held, types={"y": TensorProto.UINT8})
    made = []
    with mock.patch.object(loops, "Map", side_effect=lambda *a: made.append(Map(*a)) or made[-1]):
        same(proto, {"x": x})
    assert all(kernel.copies for kernel in made)


# ---- sixteen bits, shared weights


@pytest.mark.parametrize("element", ["uint16", "int16"])
@pytest.mark.parametrize("domain", ["", MS])
def test_sixteen_bits(element: str, domain: str) -> None:
    """Data of 16 bits between floats: one step at most from what floats in another order are rounded to."""
    x, w = numbers(element, 1, 8, 9, 9), numbers("int8", 12, 8, 3, 3)
    zero = 30000 if element == "uint16" else 0
    held = {**parameters(element, zero, 0.0001), "w": w, "t": np.float32(0.01), "o": np.int8(0)}
    held |= {"u": np.float32(0.001), "v": np.array(zero, element)}
    nodes = [
        undo("x", "f"), undo("w", "g", "t", "o"), helper.make_node("Conv", ["f", "g"], ["c"], name="c", pads=[1] * 4),
        redo("c", "y", "u", "v"),
    ]  # fmt: skip
    for node in nodes:
        if node.op_type != "Conv":
            node.domain = domain
    proto = model(nodes, {"x": x}, ["y"], held, types={"y": TYPES[element]})
    (got,), (wanted,) = run_native(proto, {"x": x}, native=3), run_numpy(proto, {"x": x})
    assert len(np.unique(wanted)) > 500
    assert np.abs(got.astype(int) - wanted).max() <= 1


@TARGETS
@pytest.mark.parametrize("element", ["int16", "uint16"])
@pytest.mark.parametrize("scale", [0.001, 1.0, 1e-42, math.inf])
def test_shifted_numbers_of_sixteen_bits(
    element: str, scale: float, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves go to even before the zero point is added; what is no number is the least integer."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    x, near = numbers(element, 4000), np.random.default_rng(0).integers(-140000, 140000, 4000).astype(np.float32) / 2
    for zero in (np.iinfo(element).min, 333, np.iinfo(element).max):
        held = parameters(element, zero, scale)
        same(model([undo("x", "y")], {"x": x}, ["y"], held), {"x": x})
        with np.errstate(all="ignore"):
            fed = {
                "x": np.append(near * np.float32(scale), np.array([np.nan, np.inf, -np.inf, 3e38, -0.0], np.float32))
            }
        proto = model([redo("x", "y")], fed, ["y"], held, types={"y": TYPES[element]})
        same(proto, fed)
        assert run_numpy(proto, fed)[0][-5] == np.iinfo(element).min


@pytest.mark.parametrize("element", list(TYPES))
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_several_scales(element: str, axis: int) -> None:
    rng, shape = np.random.default_rng(0), (3, 5, 7)
    zeros, x = numbers(element, shape[axis], seed=1), numbers(element, *shape)
    held = {"s": rng.uniform(0.001, 1, shape[axis]).astype(np.float32), "z": zeros}
    fed = {"x": (rng.standard_normal(shape) * 999).astype(np.float32)}
    redone, undone = redo("x", "y"), undo("x", "y")
    for node in (redone, undone):
        node.attribute.append(helper.make_attribute("axis", axis))
    same(model([redone], fed, ["y"], held, types={"y": TYPES[element]}), fed)
    same(model([undone], {"x": x}, ["y"], held), {"x": x})


@pytest.mark.parametrize("other", ["Conv", "Neg"])
def test_weights_of_several_products(other: str) -> None:
    """A detector's head on two levels multiplies integers; where a reader wants floats, so do all."""
    rng = np.random.default_rng(0)
    fed = {"x": numbers("uint8", 1, 16, 6, 6), "e": numbers("uint8", 1, 16, 3, 3, seed=1)}
    held = {
        **parameters("uint8"), "w": numbers("int8", 12, 16, 3, 3), "t": rng.uniform(0.001, 0.01, 12).astype(np.float32),
        "o": np.zeros(12, np.int8), "b": rng.integers(-999, 999, 12).astype(np.int32),
        "bt": rng.uniform(0.001, 0.01, 12).astype(np.float32),
    }  # fmt: skip
    nodes = [
        undo("x", "f"), undo("e", "g"), helper.make_node("DequantizeLinear", ["w", "t", "o"], ["wf"], name="w", axis=0),
        helper.make_node("DequantizeLinear", ["b", "bt"], ["bf"], name="b", axis=0),
        helper.make_node("Conv", ["f", "wf", "bf"], ["y"], name="c", pads=[1] * 4),
        helper.make_node("Conv", ["g", "wf", "bf"], ["v"], name="d", pads=[1] * 4) if other == "Conv"
        else helper.make_node("Neg", ["wf"], ["v"], name="d"),
    ]  # fmt: skip
    proto = model(nodes, fed, ["y", "v"], held)
    with mock.patch.object(qdq, "_lower", side_effect=qdq._lower) as lowered:
        got = run_native(proto, fed)
    assert lowered.call_count == (2 if other == "Conv" else 0)
    for ours, wanted in zip(got, run_numpy(proto, fed), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5 * math.sqrt(16 * 9))
