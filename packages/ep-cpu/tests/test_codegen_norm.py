"""Normalisations of generated code, as operators and as exporters write them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug_kernels.ops.norm import mean_variance_normalization

node = helper.make_node


def numbers(*shape: int, seed: int = 0, mean: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) + mean).astype(np.float32)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(-4, 3),
    st.booleans(),
    st.sampled_from([1e-5, 1e-12]),
)
def test_layer_normalization(shape: list[int], axis: int, statistics: bool, epsilon: float) -> None:
    axis %= len(shape)
    x, scale, bias = numbers(*shape), numbers(*shape[axis:], seed=1), numbers(*shape[axis:], seed=2)
    axes = tuple(range(axis, len(shape)))
    if np.prod(shape[axis:]) == 1:
        epsilon = 1e-5  # the quotient of two zeros otherwise
    outputs = ["y", "mean", "factor"] if statistics else ["y"]
    nodes = [
        node("Neg", ["x"], ["z"]),
        node("LayerNormalization", ["z", "s", "b"], outputs, axis=axis, epsilon=epsilon),
    ]
    got = run_native(model(nodes, {"x": x}, outputs, {"s": scale, "b": bias}), {"x": x})
    z = -x.astype(np.float64)
    mean, factor = z.mean(axes, keepdims=True), 1 / np.sqrt(z.var(axes, keepdims=True) + epsilon)
    # Where the variance nears the rounding of the mean, so does the error: 1 ulp of 4 times the factor.
    atol = 1e-5 + 5e-7 * float(factor.max()) * 4
    np.testing.assert_allclose(got[0], (z - mean) * factor * scale + bias, rtol=1e-4, atol=atol)
    if statistics:
        np.testing.assert_allclose(got[1], mean, rtol=1e-5)


@pytest.mark.parametrize("columns", [1, 5, 8, 31, 768, 1023])
@pytest.mark.parametrize("op", ["RMSNormalization", "SimplifiedLayerNormalization"])
def test_root_mean_square(columns: int, op: str) -> None:
    x, scale = numbers(3, 5, columns), numbers(columns, seed=1)
    nodes = [node("Neg", ["x"], ["z"]), node(op, ["z", "s"], ["y"], axis=-1, epsilon=1e-6)]
    check(model(nodes, {"x": x}, ["y"], {"s": scale}, opset=23), {"x": x})


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("total", [False, True])
def test_skip_layer_normalization(op: str, total: bool) -> None:
    x, skip, bias, gamma, beta = numbers(2, 5, 37), numbers(2, 5, 37, seed=1), *(numbers(37, seed=s) for s in (2, 3, 4))
    inputs = ["z", "k", "g", "b", "c"] if op == "SkipLayerNormalization" else ["z", "k", "g", "c"]
    outputs = ["y", "", "", "sum"] if total else ["y"]
    nodes = [node("Neg", ["x"], ["z"]), node(op, inputs, outputs, domain="com.microsoft", epsilon=1e-5)]
    constants = {"g": gamma, "b": beta, "c": bias}
    proto = model(nodes, {"x": x, "k": skip}, [name for name in outputs if name], constants)
    check(proto, {"x": x, "k": skip}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 16, 9), (2, 8, 1, 1), (2, 5, 30, 17)])
@pytest.mark.parametrize("last", [False, True])
def test_instance_normalization(shape: tuple[int, ...], last: bool) -> None:
    x, scale, bias = numbers(*shape), numbers(shape[1], seed=1), numbers(shape[1], seed=2)
    nodes = [node("Neg", ["x"], ["z"]), node("InstanceNormalization", ["z", "s", "b"], ["y"])]
    if last:
        perm = (0, len(shape) - 1, *range(1, len(shape) - 1))
        x = np.ascontiguousarray(x.transpose(np.argsort(perm)))
        nodes = [node("Transpose", ["x"], ["t"], perm=perm), node("Neg", ["t"], ["z"]), nodes[1]]
    check(model(nodes, {"x": x}, ["y"], {"s": scale, "b": bias}), {"x": x}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (1, 12, 9)])
@pytest.mark.parametrize("last", [False, True])
def test_group_normalization(shape: tuple[int, ...], last: bool) -> None:
    x, scale, bias = numbers(*shape), numbers(shape[1], seed=1), numbers(shape[1], seed=2)
    nodes = [node("Neg", ["x"], ["z"]), node("GroupNormalization", ["z", "s", "b"], ["y"], num_groups=3)]
    if last:
        perm = (0, len(shape) - 1, *range(1, len(shape) - 1))
        x = np.ascontiguousarray(x.transpose(np.argsort(perm)))
        nodes = [node("Transpose", ["x"], ["t"], perm=perm), node("Neg", ["t"], ["z"]), nodes[1]]
    check(model(nodes, {"x": x}, ["y"], {"s": scale, "b": bias}), {"x": x}, rtol=1e-4, atol=1e-5)


def _written_out(centred: bool, square: str, last: str) -> list[Any]:
    d = "d" if centred else "z"
    start = [node("ReduceMean", ["z", "axes"], ["m"]), node("Sub", ["z", "m"], ["d"])] if centred else []
    power = node("Pow", [d, "two"], ["p"]) if square == "Pow" else node("Mul", [d, d], ["p"])
    root = [node("ReduceMean", ["p", "axes"], ["v"]), node("Add", ["v", "epsilon"], ["w"]), node("Sqrt", ["w"], ["r"])]
    ends = {
        "Div": [node("Div", [d, "r"], ["q"])],
        "Reciprocal": [node("Reciprocal", ["r"], ["i"]), node("Mul", [d, "i"], ["q"])],
        "one": [node("Div", ["one", "r"], ["i"]), node("Mul", ["i", d], ["q"])],
    }
    return [*start, power, *root, *ends[last], node("Mul", ["g", "q"], ["a"])]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("last", ["Div", "Reciprocal", "one"])
def test_written_out(centred: bool, square: str, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxplug_ep_cpu.codegen.kernels.normalize import Normalize
    from onnxplug_ep_cpu.codegen.program import Program

    kernels: list[object] = []
    call = Program.call
    monkeypatch.setattr(
        Program, "call", lambda self, kernel, *a, **more: kernels.append(kernel) or call(self, kernel, *a, **more)
    )
    x, gamma = numbers(4, 7, 65), numbers(65, seed=1)
    constants = {
        "two": np.float32(2), "axes": np.array([-1]), "epsilon": np.float32(1e-5), "g": gamma, "one": np.float32(1),
    }  # fmt: skip
    proto = model([node("Neg", ["x"], ["z"]), *_written_out(centred, square, last)], {"x": x}, ["a"], constants)
    check(proto, {"x": x}, rtol=1e-4, atol=1e-5)
    assert [type(kernel).__name__ for kernel in kernels] == ["Map", "Normalize"]
    assert isinstance(kernels[1], Normalize) and kernels[1].centred == centred


def test_a_part_read_elsewhere_keeps_the_nodes_apart() -> None:
    x, gamma = numbers(4, 7, 65), numbers(65, seed=1)
    constants = {"two": np.float32(2), "axes": np.array([-1]), "epsilon": np.float32(1e-5), "g": gamma}
    proto = model([node("Neg", ["x"], ["z"]), *_written_out(True, "Pow", "Div")], {"x": x}, ["a", "r"], constants)
    check(proto, {"x": x}, rtol=1e-4, atol=1e-5)


def test_residuals_before_and_after() -> None:
    x, k = numbers(3, 40), numbers(3, 40, seed=1)
    nodes = [
        node("Add", ["x", "k"], ["h"]), node("LayerNormalization", ["h", "s", "b"], ["n"]), node("Relu", ["n"], ["r"]),
        node("Add", ["r", "k"], ["y"]),
    ]  # fmt: skip
    check(model(nodes, {"x": x, "k": k}, ["y"], {"s": numbers(40), "b": numbers(40)}), {"x": x, "k": k}, atol=1e-5)


@pytest.mark.parametrize("axes", [[0, 2, 3], [-1], [0, 1, 2, 3], [1, 3], [2, 3, -1, 2]])
def test_mean_and_variance(axes: list[int]) -> None:
    """Also of a line whose elements are all the same, of which 0 is left."""
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 7)).astype(np.float32)
    x[:, 2] = 3
    nodes = [node("MeanVarianceNormalization", ["x"], ["m"], axes=axes), node("Neg", ["m"], ["y"])]
    (got,) = run_native(model(nodes, {"x": x}, ["y"]), {"x": x})
    wide = x.astype(np.float64)
    over = tuple({axis % 4 for axis in axes})
    off = wide - wide.mean(over, keepdims=True)
    want = off / (np.sqrt((off * off).mean(over, keepdims=True)) + 1e-9)
    np.testing.assert_allclose(got, -want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean_variance_normalization(np, x, axes=axes), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5), (2, 6, 7), (1, 40, 9, 1), (2, 17, 4, 5)])
@pytest.mark.parametrize("computed", [("s", "b", "m", "v"), ("m", "v"), ("b",)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_batch_normalization_by_computed_statistics(
    shape: tuple[int, ...], computed: tuple[str, ...], dtype: Any
) -> None:
    """As Keras writes the normalisation of layers: the mean is far from zero."""
    rng = np.random.default_rng(3)
    drawn = {name: rng.standard_normal(shape[1]).astype(dtype) for name in "sbm"}
    statistics = {**drawn, "m": drawn["m"] + dtype(30), "v": np.abs(rng.standard_normal(shape[1])).astype(dtype)}
    feeds = {"x": (rng.standard_normal(shape) + 30).astype(dtype), **{name: statistics[name] for name in computed}}
    constants = {name: array for name, array in statistics.items() if name not in computed}
    nodes = [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"], epsilon=1e-3), node("Relu", ["n"], ["y"])]
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.FLOAT16
    proto = model(nodes, feeds, ["y"], constants, types={"y": kind})
    check(proto, feeds, *([] if dtype is np.float32 else [None, 2e-3, 2e-3]))
