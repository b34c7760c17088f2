"""Products and pools whose result is a part of a concatenation, or to which a part of something larger is added: along every axis, so that
rows and pixels are unevenly spaced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, run_numpy
from onnx import helper

node = helper.make_node
Made = tuple[list[Any], dict[str, np.ndarray]]


def _floats(*shape: int) -> np.ndarray:
    return np.random.RandomState(math.prod(shape)).randn(*shape).astype(np.float32)


def _bytes(*shape: int) -> np.ndarray:
    return np.random.RandomState(math.prod(shape)).randint(-90, 90, shape).astype(np.int8)


def _quantized(operator: str, weights: np.ndarray, **attributes: Any) -> Made:
    constants = {"s": np.float32(0.03), "z": np.uint8(128), "w": weights, "ws": np.float32(0.01)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["wd"]),
        node(operator, ["d", "wd"], ["made"], **attributes),
    ]
    return nodes, constants


def _weights(shape: tuple[int, ...]) -> Made:
    return [node("MatMul", ["x", "w"], ["made"])], {"w": _floats(shape[-1], shape[-1])}


def _computed(shape: tuple[int, ...]) -> Made:
    return [node("Relu", ["w"], ["right"]), node("MatMul", ["x", "right"], ["made"])], {
        "w": _floats(shape[-1], shape[-1])
    }


def _batches(shape: tuple[int, ...]) -> Made:
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    nodes = [
        node("Transpose", ["x"], ["t"], perm=order),
        node("MatMul", ["x", "t"], ["p"]),
        node("MatMul", ["p", "x"], ["made"]),
    ]
    return nodes, {}


def _bytes_of_rows(shape: tuple[int, ...]) -> Made:
    return _quantized("MatMul", _bytes(shape[-1], shape[-1]))


def _conv(size: int, groups: int = 1) -> Callable[[tuple[int, ...]], Made]:
    def made(shape: tuple[int, ...]) -> Made:
        c = shape[1]
        return [node("Conv", ["x", "w"], ["made"], pads=[size // 2] * 4, group=groups)], {
            "w": _floats(c, c // groups, size, size)
        }

    return made


def _bytes_conv(size: int, groups: int = 1) -> Callable[[tuple[int, ...]], Made]:
    def made(shape: tuple[int, ...]) -> Made:
        c = shape[1]
        return _quantized("Conv", _bytes(c, c // groups, size, size), pads=[size // 2] * 4, group=groups)

    return made


def _pool(shape: tuple[int, ...]) -> Made:
    return [node("GlobalAveragePool", ["x"], ["made"])], {}


ROWS, IMAGE = [(2, 7, 48), (3, 2, 2, 5, 32)], [(2, 32, 12, 10)]
CASES = [
    *((make, shape) for make in (_weights, _computed, _batches, _bytes_of_rows) for shape in ROWS),
    *((make, shape) for make in (_conv(3), _conv(1), _conv(3, 32), _pool) for shape in IMAGE),
    *(
        (make, shape)
        for make in (_bytes_conv(3), _bytes_conv(5), _bytes_conv(1), _bytes_conv(3, 32))
        for shape in IMAGE
    ),
]


def _check(nodes: list[Any], constants: dict[str, np.ndarray], shape: tuple[int, ...]) -> None:
    feeds = {"x": _floats(*shape)}
    proto = model(nodes, feeds, ["y"], constants)
    (got,) = run_native(proto, feeds, native=1)
    (want,) = run_numpy(proto, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(("make", "shape", "axis"), [(m, s, axis) for m, s in CASES for axis in range(len(s))])
def test_concatenated(make: Any, shape: tuple[int, ...], axis: int) -> None:
    nodes, constants = make(shape)
    further = [
        node("Sigmoid", ["made"], ["other"]),
        node("Concat", ["made", "other"], ["both"], axis=axis),
        node("Neg", ["both"], ["y"]),
    ]
    _check(nodes + further, constants, shape)


@pytest.mark.parametrize(
    ("make", "shape", "axis"), [(m, s, axis) for m, s in CASES if m is not _pool for axis in range(len(s))]
)
def test_a_part_is_added(make: Any, shape: tuple[int, ...], axis: int) -> None:
    nodes, constants = make(shape)
    constants |= {"from": np.array([1]), "to": np.array([1 + shape[axis]]), "along": np.array([axis])}
    if shape in IMAGE and axis > 1:  # with channels last, as convolutions make it
        around = [int(axis == side) for side in (2, 3, 2, 3)]
        larger = [node("Conv", ["x", "one"], ["large"], pads=around)]
        constants["one"] = _floats(shape[1], shape[1], 1, 1)
    else:
        larger = [node("Neg", ["x"], ["whole"]), node("Tile", ["whole", "times"], ["large"])]
        constants["times"] = np.where(np.arange(len(shape)) == axis, 3, 1)
    further = [
        node("Slice", ["large", "from", "to", "along"], ["part"]),
        node("Add", ["made", "part"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    _check(nodes + larger + further, constants, shape)
