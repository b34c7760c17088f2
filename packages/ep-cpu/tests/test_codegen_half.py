"""Floats of 16 bits in generated code: outside of a region, and float32 arithmetic inside."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from codegen_models import model, run_native, session
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.optimize import fold
from onnxplug_ep_cpu.codegen import packer
from onnxplug_ep_cpu.codegen.lower import attention_pattern, halves
from onnxplug_ep_cpu.codegen.target import host_target

node = helper.make_node


HALVES = [np.float16, ml_dtypes.bfloat16]


def session_of(nodes: list[Any], x: np.ndarray, held: dict[str, np.ndarray], outputs: list[str]) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", HALVES)
def test_a_network_of_half_precision_is_one_region(kind: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 9, 7)).astype(kind)
    held = {
        "w": rng.standard_normal((5, 3, 3, 3)) / 5,
        "b": rng.standard_normal(5),
        "m": rng.standard_normal((7, 4)) / 3,
        "scale": rng.standard_normal(4),
    }
    held = {n: a.astype(kind) for n, a in held.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="c", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("MatMul", ["r", "m"], ["y"], name="y"),
        helper.make_node("Transpose", ["r"], ["t"], name="t", perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["y", "scale"], ["n"], name="n"),
        helper.make_node("Softmax", ["n"], ["s"], name="s"),
        helper.make_node("ReduceMax", ["s", "axes"], ["z"], name="z"),
    ]
    session = session_of(nodes, x, {**held, "axes": np.array([1])}, ["y", "t", "z"])
    assert [len(region["nodes"]) for region in session.explain().regions] == [7]
    y, t, z = session.run(None, {"x": x})
    wide = {n: a.astype(np.float64) for n, a in held.items()}
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    sums = np.maximum(np.einsum("nchwij,ocij->nohw", windows, wide["w"]) + wide["b"].reshape(-1, 1, 1), 0)
    product = sums @ wide["m"]
    normal = (product - product.mean(-1, keepdims=True)) / np.sqrt(product.var(-1, keepdims=True) + 1e-5)
    e = np.exp(normal * wide["scale"])
    wanted = (product, sums.transpose(0, 2, 3, 1), (e / e.sum(-1, keepdims=True)).max(1, keepdims=True))
    for got, exact in zip((y, t, z), wanted, strict=True):
        assert got.dtype == kind
        # One rounding to 16 bits: half of their spacing relative, float32's own errors far below.
        rtol = 2**-11 if kind == np.float16 else 2**-8
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=rtol * 1.01, atol=1e-6)


@pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
def test_rounding_to_half_precision_is_not_left_out(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], name="f", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "k"], ["p"], name="p"),
        helper.make_node("Cast", ["p"], ["h"], name="h", to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], name="y", to=TensorProto.FLOAT),
    ]
    x = np.array([*np.linspace(-3, 3, 50), 6e4, 1e-7, np.inf]).astype(np.float16)
    session = session_of(nodes, x, {"k": np.float32(1.2345)}, ["y"])
    assert [sorted(region["nodes"]) for region in session.explain().regions] == [sorted("fphy")]
    (y,) = session.run(None, {"x": x})
    with np.errstate(over="ignore"):
        wanted = (x.astype(np.float32) * np.float32(1.2345)).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(y, wanted)


def test_attention_as_function_bodies_write_it_is_computed_in_float32() -> None:
    """The zero that hidden rows get is cast to the weights' type; that does not part the products from each other."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 9, 8)).astype(np.float16)
    mask = np.where(np.tri(9, dtype=bool), 0, -np.inf)
    mask[4] = -np.inf
    held = {
        "root": np.float16(0.59),
        "mask": mask.astype(np.float16),
        "zero": np.float32(0),
        "low": np.float16(-np.inf),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="t", perm=[0, 1, 3, 2]),
        helper.make_node("Mul", ["x", "root"], ["q"], name="q"),
        helper.make_node("Mul", ["t", "root"], ["k"], name="k"),
        helper.make_node("MatMul", ["q", "k"], ["s"], name="s"),
        helper.make_node("Add", ["s", "mask"], ["a"], name="a"),
        helper.make_node("Softmax", ["a"], ["p"], name="p"),
        helper.make_node("ReduceMax", ["mask", "last"], ["most"], name="most"),
        helper.make_node("Equal", ["most", "low"], ["hidden"], name="hidden"),
        helper.make_node("CastLike", ["zero", "p"], ["nought"], name="nought"),
        helper.make_node("Where", ["hidden", "nought", "p"], ["w"], name="w"),
        helper.make_node("MatMul", ["w", "x"], ["y"], name="y"),
    ]
    with mock.patch.object(attention_pattern, "attend", wraps=attention_pattern.attend) as fused:
        session = session_of(nodes, x, {**held, "last": np.array([-1])}, ["y"])
        (got,) = session.run(None, {"x": x})
    assert [sorted(region["nodes"]) for region in session.explain().regions] == [sorted("tqksapwy")]
    assert fused.call_count == 1
    wide = x.astype(np.float64)
    scores = wide @ wide.swapaxes(2, 3) * float(np.float16(0.59)) ** 2 + mask
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        want = np.where(np.arange(9)[:, None] == 4, 0, e / e.sum(-1, keepdims=True)) @ wide
    assert got.dtype == np.float16
    # One rounding to float16; before it the float32 errors that docs/numerics.md allows an attention.
    slack = 64 * np.finfo(np.float32).eps * np.abs(want).max()
    np.testing.assert_allclose(got, want, rtol=2**-11 * 1.01, atol=slack)


@pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
def test_every_half_and_every_rounding(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NumPy converts; the generic target has no instruction for it. NaN stays NaN, whichever."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    proto = model([node("Cast", ["x"], ["a"], to=TensorProto.FLOAT), node("Neg", ["a"], ["z"])], {"x": halves}, ["z"])
    (wide,) = run_native(proto, {"x": halves})
    number = ~np.isnan(halves)
    np.testing.assert_array_equal(wide[number].view(np.uint32), (-halves.astype(np.float32))[number].view(np.uint32))
    assert np.isnan(wide[~number]).all()

    rng = np.random.default_rng(1)
    x = np.concatenate([halves] * 4)
    factors = [np.full_like(halves, 0.5), np.full_like(halves, 1.5), np.full_like(halves, 2), rng.permutation(halves)]
    y = np.concatenate(factors)  # ties among subnormal numbers, among normal ones, overflow, anything
    nodes = [node("Mul", ["x", "y"], ["a"]), node("Neg", ["a"], ["z"])]
    (near,) = run_native(model(nodes, {"x": x, "y": y}, ["z"], types={"z": TensorProto.FLOAT16}), {"x": x, "y": y})
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = -(x * y)  # in float32, rounded
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(near[number].view(np.uint16), wanted[number].view(np.uint16))
    assert np.isnan(near[~number]).all()


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64, np.bool_, np.float16])
def test_casts_to_and_from_half_precision(kind: Any) -> None:
    with np.errstate(over="ignore"):
        x = np.array([[0, 1, -7, 300, 65519, 70000, 2049, 3]], np.float32).repeat(9, 0).astype(kind)
    type_ = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), node("Cast", ["h"], ["y"], to=type_)]
    proto = model(nodes, {"x": x}, ["h", "y"], types={"h": TensorProto.FLOAT16, "y": type_})
    half, back = run_native(proto, {"x": x})
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(half, x.astype(np.float16))
    fine = np.isfinite(half)
    np.testing.assert_array_equal(back[fine], half[fine].astype(kind))


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16])
def test_casts_to_and_from_bfloat16(kind: Any, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored, and rounded between two nodes of a region."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    bits = np.random.default_rng(0).integers(0, 1 << 32, (9, 70), np.uint32)
    bits[0, :8] = [0x3F808000, 0x3F818000, 0x3F818001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x00008000, 0x80000000]
    with np.errstate(all="ignore"):
        x = (bits.view(np.float32) if np.dtype(kind).kind in "fV" else bits % 100_000).astype(kind)
        short = x.astype(ml_dtypes.bfloat16)
    type_ = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16), node("Cast", ["x"], ["c"], to=TensorProto.BFLOAT16)]
    nodes += [node("Cast", ["c"], ["f"], to=TensorProto.FLOAT), node("Neg", ["f"], ["y"])]
    nodes += [node("Cast", ["b"], ["z"], to=type_)]
    types = {"b": TensorProto.BFLOAT16, "y": TensorProto.FLOAT, "z": type_}
    made, wide, back = run_native(model(nodes, {"x": x}, ["b", "y", "z"], types=types), {"x": x})
    number = ~np.isnan(short.astype(np.float32))
    np.testing.assert_array_equal(made[number].view(np.uint16), short[number].view(np.uint16))
    np.testing.assert_array_equal(wide, -short.astype(np.float32))
    assert np.isnan(made[~number].astype(np.float32)).all()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(back[number].astype(np.float64), short[number].astype(kind).astype(np.float64))


@pytest.mark.parametrize("kind", HALVES)
def test_moving_half_precision_rounds_nothing_and_mixes_with_what_is_computed(kind: Any) -> None:
    """Signalling and odd NaN patterns stay as they are where values are only moved."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 16, (6, 40, 3), np.uint16).view(kind)
    w = rng.standard_normal((50, 8)).astype(kind)
    half = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("Slice", ["r", "from", "to", "axes", "by"], ["s"]),
        node("Gather", ["w", "places"], ["g"]),
        node("Relu", ["g"], ["computed"]),
        node("Concat", ["g", "computed"], ["c"], axis=1),
    ]
    held = {
        "shape": np.array([18, 40]), "from": np.array([1]), "to": np.array([40]), "axes": np.array([1]), "by": np.array([2]),
        "w": w, "places": np.array([3, 49, -1]),
    }  # fmt: skip
    proto = model(nodes, {"x": x}, ["s", "g", "c"], held, types={"s": half, "g": half, "c": half})
    s, g, c = run_native(proto, {"x": x})
    np.testing.assert_array_equal(s.view(np.uint16), x.transpose(2, 0, 1).reshape(18, 40)[:, 1::2].view(np.uint16))
    np.testing.assert_array_equal(g, w[[3, 49, -1]])
    np.testing.assert_array_equal(c, np.concatenate([g, np.maximum(g, kind(0))], 1))


@pytest.mark.parametrize("target", ["", "avx2"])
@pytest.mark.parametrize("form", ["float16", "of float16", "of bfloat16"])
def test_weights_of_16_bits_are_held_as_they_are(form: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They make the same products, bit by bit, as the same numbers in float32; subnormal ones too."""
    if target and host_target().name not in ("avx2", "avx512"):
        pytest.skip("this processor has no AVX2")
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng = np.random.default_rng(5)
    weights = {"w": rng.standard_normal((83, 70)) / 9, "t": rng.standard_normal((1030, 70)) / 8}
    weights["w"][:5] *= 1e-5
    exact = {n: a.astype(ml_dtypes.bfloat16 if "bfloat" in form else np.float16) for n, a in weights.items()}
    widened = form.startswith("of ")
    held = {n: a.astype(np.float32) if widened else a for n, a in exact.items()}
    like = np.dtype(np.float32) if widened else exact["w"].dtype
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Gemm", ["h", "t"], ["y"], transB=1)]
    proto = model(
        nodes,
        {"x": np.zeros((1, 83), like)},
        ["y"],
        held,
        types={"y": helper.np_dtype_to_tensor_dtype(like)},
        symbolic=True,
    )
    made = []
    for least in (1, 1 << 30):
        with mock.patch.object(halves, "SMALLEST", least):
            made.append(session(proto))
            made[-1].run(None, {"x": np.ones((1, 83), like)})
    for m in (1, 3, 7, 40, 150):
        x = rng.standard_normal((m, 83)).astype(like)
        ours, wide = (s.run(None, {"x": x})[0] for s in made)
        np.testing.assert_array_equal(ours.astype(np.float32), wide.astype(np.float32))
    packed, unpacked = (s.explain().regions[0]["facts"]["packed_bytes"] for s in made)
    assert packed * 2 == unpacked


@pytest.mark.parametrize("rows", [2, 0])
def test_a_cast_of_weights_is_left_to_the_products_that_read_it(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that is too large to be folded."""
    monkeypatch.setattr(fold, "MAX_BYTES", 0)
    rng = np.random.default_rng(6)
    w, x = (rng.standard_normal((70, 70)) / 9).astype(np.float16), rng.standard_normal((rows, 70)).astype(np.float32)
    nodes = [
        node("Cast", ["w"], ["v"], to=TensorProto.FLOAT),
        node("MatMul", ["x", "v"], ["h"]),
        node("Gemm", ["h", "v"], ["y"], transB=1),
        node("Cast", ["t"], ["u"], to=TensorProto.FLOAT),
        node("MatMul", ["u", "u"], ["z"]),
    ]
    proto = model(nodes, {"x": x}, ["y", "z"], {"w": w, "t": w.T.copy()}, symbolic=True)
    with mock.patch.object(halves, "SMALLEST", 1):
        made = session(proto)
        y, z = made.run(None, {"x": x})
    assert "Cast" in {each["op_type"] for each in made.explain().nodes}
    wide = w.astype(np.float64)
    np.testing.assert_allclose(y, x @ wide @ wide.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, wide.T @ wide.T, rtol=1e-4, atol=1e-5)
    assert (made.explain().regions[0]["facts"]["packed_bytes"] > 0) == (rows > 0)


def test_which_weights_16_bits_hold() -> None:
    halves_ = np.array([0, -1, 65504, 2**-14, 2**-24, 3 * 2**-24], np.float32)
    for numbers, element in (
        (halves_, "float16"),
        (np.array([1.5, 1e38], ml_dtypes.bfloat16).astype(np.float32), "bfloat16"),
        (np.array([65536, 1 + 2**-10], np.float32), "float32"),
        (np.array([2**-25, 1 + 2**-10], np.float32), "float32"),
        (np.array([np.nan, 1 + 2**-10], np.float32), "float32"),
        (np.array([0.1], np.float32), "float32"),
    ):
        assert halves.narrowest(numbers) == element


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("kind", HALVES)
def test_filters_of_16_bits_are_widened_as_they_are_transformed(
    kind: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the same numbers in float32, bit by bit, and are nowhere held as float32 before."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((1, 128, 28, 28)).astype(kind), (rng.standard_normal((128, 128, 3, 3)) / 30).astype(kind)
    results, workspaces = [], []
    for type_ in (kind, np.float32):
        feeds = {"x": x.astype(type_)}
        element = helper.np_dtype_to_tensor_dtype(np.dtype(type_))
        proto = model(
            [node("Conv", ["x", "w"], ["y"], name="c", pads=[1] * 4)],
            feeds, ["y"], {"w": w.astype(type_)}, opset=22, types={"y": element},
        )  # fmt: skip
        made = session(proto)
        results.append(made.run(None, feeds)[0])
        assert made.explain().regions[0]["facts"]["algorithms"]["c"].startswith("Winograd")
        with mock.patch.object(packer, "aligned_zeros", wraps=packer.aligned_zeros) as taken:
            session(proto)
        workspaces.append(max(call.args[0][0] for call in taken.call_args_list))
    np.testing.assert_array_equal(results[0].view(np.uint16), results[1].astype(kind).view(np.uint16))
    assert w.nbytes <= workspaces[0] < 1.2 * w.nbytes
    assert 2 * w.nbytes <= workspaces[1]
