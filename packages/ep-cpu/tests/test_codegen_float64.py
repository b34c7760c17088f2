"""Products, softmax, reductions and chains of float64 in native regions, to the last digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from codegen_models import model as typed_model
from codegen_models import run_native
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

node = helper.make_node
SIZE = st.integers(1, 40)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def model(
    nodes: list[Any],
    inputs: dict[str, np.ndarray],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    **types: int,
) -> ModelProto:
    """A model whose outputs are float64 but for ``types``."""
    return typed_model(nodes, inputs, outputs, constants, types=dict.fromkeys(outputs, TensorProto.DOUBLE) | types)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype == np.float64
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13 * max(1.0, float(np.abs(want).max(initial=0.0))))


@given(SIZE, st.integers(1, 300), st.integers(1, 100), st.booleans())
def test_matrices(m: int, k: int, n: int, constant: bool) -> None:
    x, w = normal(m, k), normal(k, n)
    feeds = {"x": x} if constant else {"x": x, "w": w}
    close(
        run_native(model([node("MatMul", ["x", "w"], ["y"])], feeds, ["y"], {"w": w} if constant else {}), feeds)[0],
        x @ w,
    )


@pytest.mark.parametrize(("m", "k", "n"), [(130, 3000, 50), (17, 2500, 33), (64, 5001, 16), (9, 7000, 24)])
def test_deep_products(m: int, k: int, n: int) -> None:
    x, w, bias = normal(m, k), normal(k, n), normal(n)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    proto = model(nodes, {"x": x}, ["y"], {"w": w, "b": bias})
    (got,), (alone,) = (run_native(proto, {"x": x}, threads=threads) for threads in (3, 1))
    close(got, x @ w + bias)
    np.testing.assert_array_equal(got, alone)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7,), (7,)), ((7,), (7, 5)), ((6, 7), (7,)), ((3, 6, 7), (7,)), ((2, 1, 6, 7), (3, 7, 5)), ((6, 7), (3, 7, 20)),
        ((40, 7), (7, 90)), ((0, 7), (7, 5)), ((6, 0), (0, 9)),
    ],
)  # fmt: skip
def test_ranks_and_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    feeds = {"a": normal(*a, seed=1), "b": normal(*b, seed=2)}
    close(run_native(model([node("MatMul", ["a", "b"], ["y"])], feeds, ["y"]), feeds)[0], feeds["a"] @ feeds["b"])


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("bias", [(), (20,), (6, 1), (6, 20)])
def test_gemm_and_what_follows(bias: tuple[int, ...], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    x, w, c = normal(7, 6), normal(20, 7), normal(*bias)
    nodes = [node("Gemm", ["x", "w", "c"], ["g"], alpha=0.5, beta=2.0, transA=1, transB=1), node("Tanh", ["g"], ["y"])]
    proto = model(
        [*nodes, node("Greater", ["y", "zero"], ["z"])],
        {"x": x},
        ["y", "z"],
        {"w": w, "c": c, "zero": np.zeros(1)},
        z=TensorProto.BOOL,
    )
    got, above = run_native(proto, {"x": x})
    close(got, np.tanh(0.5 * (x.T @ w.T) + 2 * c))
    np.testing.assert_array_equal(above, got > 0)


@pytest.mark.parametrize("shape", [(3, 5), (40, 3), (2, 33, 4)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_and_log_sum_exp(shape: tuple[int, ...], axis: int) -> None:
    x = 50 * normal(*shape)
    e = np.exp(x - x.max(axis, keepdims=True))
    total = e.sum(axis, keepdims=True)
    nodes = [
        node("Softmax", ["x"], ["s"], axis=axis), node("LogSoftmax", ["x"], ["l"], axis=axis),
        node("ReduceLogSumExp", ["x", "axes"], ["r"]), node("LpNormalization", ["x"], ["p"], axis=axis),
    ]  # fmt: skip
    proto = model(nodes, {"x": x}, ["s", "l", "r", "p"], {"axes": np.array([axis])})
    softmax, log, summed, normed = run_native(proto, {"x": x})
    close(softmax, e / total)
    close(log, x - x.max(axis, keepdims=True) - np.log(total))
    close(summed, np.log(total) + x.max(axis, keepdims=True))
    close(normed, x / np.sqrt((x * x).sum(axis, keepdims=True)))


@pytest.mark.parametrize("shape", [(3, 50), (40, 3), (2, 33, 4), (5, 17)])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes_that_float32_cannot_tell_apart(shape: tuple[int, ...], op: str) -> None:
    x = 1 + 1e-12 * normal(*shape)
    x[0, :2] = math.nan if shape == (5, 17) else x[0, 0]
    (got,) = run_native(
        model([node(op, ["x"], ["y"], axis=1, keepdims=0)], {"x": x}, ["y"], y=TensorProto.INT64), {"x": x}
    )
    np.testing.assert_array_equal(got, (np.argmax if op == "ArgMax" else np.argmin)(x, axis=1))


def test_a_product_as_float32() -> None:
    x, w = normal(9, 8), normal(8, 5)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Cast", ["p"], ["y"], to=1), node("Mul", ["y", "s"], ["z"])]
    proto = model(nodes, {"x": x}, ["z"], {"w": w, "s": np.full(5, 2, np.float32)}, z=TensorProto.FLOAT)
    (got,) = run_native(proto, {"x": x})
    np.testing.assert_array_equal(got, (x @ w).astype(np.float32) * 2)
