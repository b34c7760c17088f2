"""Reductions, arg-reductions, cumulative operators, TopK, Unique, NonZero, softmaxes and norms along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case, Draw, strategy
from operators.values import is_float

AXES_AS_INPUT = {"ReduceSum": 13}
"""The version from which axes are an input; 18 for the others."""


@strategy(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
def reduce(d: Draw) -> Case:
    element = d.element()
    selects = d.op_type in ("ReduceMax", "ReduceMin")
    sizes = (
        (3, 2, 1, 4, 7)
        if selects or d.op_type in ("ReduceMean", "ReduceLogSum", "ReduceLogSumExp")
        else (3, 2, 1, 4, 0)
    )
    shape = d.shape(0 if d.version >= 13 else 1, sizes=sizes)
    rank = len(shape)
    axes = [a - rank if d.version >= 11 and d.flag() else a for a in range(rank) if d.pick(True, False)]
    low = 1 if d.op_type == "ReduceLogSum" or (d.op_type == "ReduceProd" and not is_float(element)) else None
    high = 2 if d.op_type == "ReduceProd" else None
    x = d.tensor(shape, element, low, high, special=selects and element != "bool")
    attributes = d.maybe(keepdims=d.pick(0, 1))
    if d.version < AXES_AS_INPUT.get(d.op_type, 18):
        return Case([x], {**attributes, **({"axes": axes} if axes else {})})
    given: np.ndarray | None = np.array(axes, np.int64)
    if not axes:
        given = d.pick(None, given)
        attributes |= d.maybe(noop_with_empty_axes=d.pick(0, 1))
    return Case([x, given], attributes)


@strategy("ArgMax", "ArgMin")
def arg_reduce(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    x = d.tensor(shape, None, 0, 3)
    x = np.round(x.astype(np.float64)).astype(x.dtype)  # ties
    attributes = d.maybe(axis=d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1))
    attributes |= d.maybe(keepdims=d.pick(0, 1))
    if d.version >= 12:
        attributes |= d.maybe(select_last_index=d.pick(0, 1))
    return Case([x], attributes)


@strategy("CumSum", "CumProd")
def cumulative(d: Draw) -> Case:
    shape = d.shape(1)
    axis = np.array(
        d.axis(len(shape)), d.pick(np.int64, np.int32) if d.cell.parameter != "T2" else np.dtype(d.element("T2"))
    )
    d.bind("T2", axis.dtype.name)
    attributes = d.maybe(exclusive=d.pick(0, 1), reverse=d.pick(0, 1))
    low, high = (1, 2) if d.op_type == "CumProd" else (None, None)
    return Case([d.tensor(shape, None, low, high), axis], attributes)


@strategy("TopK")
def top_k(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 5, 1, 4, 2))
    axis = d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1)
    k = d.integer(1, shape[axis])
    x = d.tensor(shape)
    x = np.round(x.astype(np.float64)).astype(x.dtype) if d.flag() else x  # ties: "the element with the lower index"
    attributes: dict[str, Any] = d.maybe(axis=axis) if axis in (-1, len(shape) - 1) else {"axis": axis}
    if d.version == 1:
        return Case([x], {**attributes, "k": k}, 2)
    if d.version >= 11:
        attributes |= d.maybe(largest=d.pick(1, 0))
        attributes |= {"sorted": 1} if d.flag() else {}
    return Case([x, np.array([k], np.int64)], attributes, 2)


@strategy("Unique")
def unique(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    x = d.tensor(shape, None, 0, 2)
    if d.element() not in ("string", "bool"):
        x = np.round(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)).astype(x.dtype)
    attributes = {"axis": d.axis(len(shape))} if d.pick(True, False) else {}
    attributes |= d.maybe(sorted=d.pick(1, 0) if d.element()[:7] != "complex" else 0)
    return Case([x], attributes, d.pick(4, 1, 2, 3))


@strategy("NonZero")
def non_zero(d: Draw) -> Case:
    return Case([d.tensor(d.shape(1), None, 0, 2)])


@strategy("Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    axis = d.axis(len(shape)) if d.version >= 11 else d.integer(0, len(shape) - 1)
    default = len(shape) - 1 if d.version >= 13 else 1
    attributes = {} if default < len(shape) and d.flag() else {"axis": axis}
    return Case([d.tensor(shape, None, -9, 9)], attributes)


@strategy("LpNormalization")
def lp_normalization(d: Draw) -> Case:
    shape = d.shape(1, sizes=(3, 2, 1, 4, 5))
    return Case([d.tensor(shape)], d.maybe(axis=d.axis(len(shape)), p=d.pick(2, 1)))


@strategy("MeanVarianceNormalization")
def mean_variance_normalization(d: Draw) -> Case:
    shape = tuple(d.integer(2, 4) for _ in range(4))
    return Case([d.tensor(shape)], d.maybe(axes=d.pick([0, 2, 3], [0, 1, 2, 3], [1], [2, 3])))
