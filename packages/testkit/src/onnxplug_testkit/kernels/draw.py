"""Structures drawn by hypothesis: shapes, axes and attributes that nobody wrote down, in the newest version of their operators.

Each strategy makes legal nodes only. First options are the plain ones, so that a failing structure shrinks to a plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import defs, helper

from onnxplug_testkit.kernels.drawing import Draw
from onnxplug_testkit.kernels.own.node import B, F, N, bytes_of, waves
from onnxplug_testkit.kernels.structures import Structure

Drawn = tuple[list[np.ndarray], dict[str, Any], list[str]]
"""Inputs, attributes, and the type of each output."""
BROADCASTS_SINCE = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Sub", "Xor"), 7),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
}  # fmt: skip
"""The version from which an operator aligns shapes as NumPy does; before, its operands are alike."""
Strategy = Callable[[Draw, str], Drawn]
_strategies: dict[str, Strategy] = {}


def can_draw(domain: str, op_type: str, version: int) -> bool:
    """Whether structures of this version of an operator can be drawn."""
    return not domain and op_type in _strategies and version >= BROADCASTS_SINCE.get(op_type, 1)


def structure_of(draw: Callable[[Any], Any], op_type: str, version: int) -> Structure:
    """A structure of an operator that has a strategy, with no more than ``version`` allows; written for the newest."""
    inputs, attributes, outputs = _strategies[op_type](Draw(draw, version), op_type)
    kept = {name: helper.make_attribute(name, value) for name, value in attributes.items()}
    types = [N if array.dtype == np.int64 else B if array.dtype == bool else F for array in inputs]
    newest = defs.get_schema(op_type).since_version
    return Structure("drawn", ("", op_type, newest), kept, inputs, list(outputs), types, outputs, 0, 0, known=False)


def _enter(*op_types: str) -> Callable[[Strategy], Strategy]:
    def enter(function: Strategy) -> Strategy:
        _strategies.update(dict.fromkeys(op_types, function))
        return function

    return enter


@_enter(
    "Abs", "Acosh", "Asinh", "Atan", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "Identity", "IsNaN", "LeakyRelu", "Neg",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
def _unary(draw: Draw, op_type: str) -> Drawn:
    low = 1.25 if op_type == "Acosh" else -2.0
    return [waves(*draw.shape(), low=low)], {}, [B if op_type == "IsNaN" else F]


@_enter("Sqrt", "Log")
def _of_positive(draw: Draw, op_type: str) -> Drawn:
    return [waves(*draw.shape(), low=0.25)], {}, [F]


@_enter("Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _binary(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape()
    operands = [waves(*shape, low=0.5, high=3.0), waves(*draw.beside(shape), low=0.5, high=3.0)]
    plain = op_type in ("Add", "Sub", "Mul", "Div")
    return operands if draw.pick(True, False) else operands[::-1], {}, [F if plain else B]


@_enter("And", "Or", "Xor")
def _logical(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape()
    return [bytes_of(np.int8, *s, high=1).astype(bool) for s in (shape, draw.beside(shape))], {}, [B]


@_enter("Max", "Min", "Sum", "Mean")
def _variadic(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape()
    return (
        [waves(*shape), *(waves(*draw.beside(shape), low=-1) for _ in range(draw.pick(1, 0, 2)))],
        {},
        [F],
    )


@_enter("Where")
def _where(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape()
    chosen = bytes_of(np.int8, *draw.beside(shape), high=1).astype(bool)
    return [chosen, waves(*shape), waves(*draw.beside(shape), low=-1)], {}, [F]


@_enter(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)
def _reduce(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, sizes=(3, 2, 1, 4))
    inputs = [
        waves(*shape, low=0.5),
        *([np.array(draw.axes(len(shape)), np.int64)] if draw.pick(True, False) else []),
    ]
    return inputs, {"keepdims": draw.pick(1, 0)}, [F]


@_enter("ArgMax", "ArgMin")
def _arg(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, sizes=(3, 2, 1, 4))
    attributes = {
        "axis": draw.axis(len(shape)),
        "keepdims": draw.pick(1, 0),
        "select_last_index": draw.pick(0, 1),
    }
    return [waves(*shape)], attributes, [N]


@_enter("Softmax", "LogSoftmax", "Hardmax")
def _along(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, sizes=(3, 2, 1, 4))
    return [waves(*shape)], {"axis": draw.axis(len(shape))}, [F]


@_enter("Transpose")
def _transpose(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape()
    return [waves(*shape)], {"perm": draw(st.permutations(range(len(shape))))} if shape else {}, [F]


@_enter("Concat")
def _concat(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1)
    axis = draw.axis(len(shape))
    sizes = [draw.pick(2, 1, 0, 3) for _ in range(draw.pick(2, 1, 3))]
    at = axis % len(shape)
    return [waves(*shape[:at], size, *shape[at + 1 :], low=-size) for size in sizes], {"axis": axis}, [F]


@_enter("Split")
def _split(draw: Draw, op_type: str) -> Drawn:
    shape = list(draw.shape(1))
    axis, sizes = draw.axis(len(shape)), [draw.pick(1, 2, 0, 3) for _ in range(draw.pick(2, 1, 3))]
    shape[axis] = sum(sizes)
    return [waves(*shape), np.array(sizes, np.int64)], {"axis": axis}, [F] * len(sizes)


@_enter("Slice")
def _slice(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1)
    axes = draw.axes(len(shape))
    limits = [[draw(st.integers(-6, 6)) for _ in axes] for _ in range(2)]
    steps = [draw.pick(1, 2, -1, -2, 3) for _ in axes]
    return [waves(*shape), *(np.array(v, np.int64) for v in (*limits, axes, steps))], {}, [F]


@_enter("Gather", "GatherElements")
def _gather(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, sizes=(3, 2, 4, 1))
    axis = draw.axis(len(shape))
    wanted = draw.shape(0, 2) if op_type == "Gather" else shape
    span = shape[axis]
    return [waves(*shape), bytes_of(np.int64, *wanted, low=-span, high=span - 1)], {"axis": axis}, [F]


@_enter("Squeeze")
def _squeeze(draw: Draw, op_type: str) -> Drawn:
    shape = list(draw.shape(1))
    axes = draw.axes(len(shape))
    for axis in axes:
        shape[axis] = 1
    return [waves(*shape), np.array(axes, np.int64)], {}, [F]


@_enter("Unsqueeze")
def _unsqueeze(draw: Draw, op_type: str) -> Drawn:
    shape, more = draw.shape(0, 3), draw.pick(1, 2)
    rank = len(shape) + more
    axes = draw.turned(sorted(draw(st.permutations(range(rank)))[:more]), rank)
    return [waves(*shape), np.array(axes, np.int64)], {}, [F]


@_enter("Reshape")
def _reshape(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, sizes=(2, 3, 4, 1))
    order = draw(st.permutations(shape))
    wanted = [-1, *order[1:]] if draw.pick(False, True) else list(order)
    return [waves(*shape), np.array(wanted, np.int64)], {}, [F]


@_enter("Flatten")
def _flatten(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1)
    return [waves(*shape)], {"axis": int(draw(st.integers(-len(shape) if draw.from_the_end else 0, len(shape))))}, [F]


@_enter("Expand")
def _expand(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1)
    return [waves(*draw.beside(shape)), np.array(shape, np.int64)], {}, [F]


@_enter("Tile")
def _tile(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, 3)
    return [waves(*shape), np.array([draw.pick(2, 1, 3, 0) for _ in shape], np.int64)], {}, [F]


@_enter("Pad")
def _pad(draw: Draw, op_type: str) -> Drawn:
    shape, mode = draw.shape(1, 3, sizes=(3, 2, 4)), draw.pick("constant", "edge", "reflect")
    pads = [draw.pick(0, 1, 2 if mode != "reflect" else 0) for _ in range(2 * len(shape))]
    inputs = [waves(*shape), np.array(pads, np.int64)]
    return inputs + ([np.array(1.5, np.float32)] if mode == "constant" else []), {"mode": mode}, [F]


@_enter("CumSum")
def _cumsum(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1)
    attributes = {"exclusive": draw.pick(0, 1), "reverse": draw.pick(0, 1)}
    return [waves(*shape), np.array(draw.axis(len(shape)), np.int64)], attributes, [F]


@_enter("Trilu")
def _trilu(draw: Draw, op_type: str) -> Drawn:
    return (
        [waves(*draw.shape(2)), np.array(draw(st.integers(-4, 4)), np.int64)],
        {"upper": draw.pick(1, 0)},
        [F],
    )


@_enter("TopK")
def _top_k(draw: Draw, op_type: str) -> Drawn:
    shape = draw.shape(1, 3, sizes=(3, 2, 4))
    axis = draw.axis(len(shape))
    count = int(draw(st.integers(0, shape[axis])))
    return [waves(*shape), np.array([count], np.int64)], {"axis": axis, "largest": draw.pick(1, 0)}, [F, N]


@_enter("MatMul")
def _matmul(draw: Draw, op_type: str) -> Drawn:
    m, k, n = (draw.pick(3, 1, 2, 5, 0) for _ in range(3))
    batch = draw.shape(0, 2, sizes=(2, 1, 3))
    left = [(*batch, m, k), (k,)][draw.pick(0, 1)]
    right = [(*draw.beside(batch), k, n), (k,), (k, n)][draw.pick(0, 1, 2)]
    return [waves(*left), waves(*right, low=-1)], {}, [F]


@_enter("Gemm")
def _gemm(draw: Draw, op_type: str) -> Drawn:
    m, k, n = (draw.pick(3, 1, 2, 5, 0) for _ in range(3))
    turned = {"transA": draw.pick(0, 1), "transB": draw.pick(0, 1)}
    a, b = ((k, m) if turned["transA"] else (m, k)), ((n, k) if turned["transB"] else (k, n))
    third = [] if draw.pick(False, True) else [waves(*draw.beside((m, n)))]
    return (
        [waves(*a), waves(*b, low=-1), *third],
        {"alpha": draw.pick(1.0, 0.5), "beta": draw.pick(1.0, 0.25), **turned},
        [F],
    )


@_enter("MaxPool", "AveragePool")
def _pool(draw: Draw, op_type: str) -> Drawn:
    space = tuple(draw.pick(4, 3, 5, 1) for _ in range(draw.pick(2, 1, 3)))
    more = {"count_include_pad": draw.pick(0, 1)} if op_type == "AveragePool" else {}
    return [waves(draw.pick(1, 2), draw.pick(2, 1), *space)], {**draw.window(space), **more}, [F]


@_enter("Conv")
def _conv(draw: Draw, op_type: str) -> Drawn:
    space, group = tuple(draw.pick(4, 3, 5) for _ in range(draw.pick(2, 1))), draw.pick(1, 2)
    window = draw.window(space)
    channels, filters = group * draw.pick(1, 2), group * draw.pick(1, 2)
    weights = waves(filters, channels // group, *window["kernel_shape"], low=-1)
    bias = [] if draw.pick(False, True) else [waves(filters)]
    return [waves(draw.pick(1, 2), channels, *space), weights, *bias], {**window, "group": group}, [F]
