"""Normalisation of one axis into a distribution: Softmax, LogSoftmax, Hardmax."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.arithmetic import in_float32
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.legacy import over_matrix
from onnxplug_kernels.refusals import require_axis


@op("Softmax", 13)
@in_float32
def softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """exp(x) divided by its sum along the axis."""
    if 0 in x.shape:
        return xp.empty_like(x)
    y = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    y /= xp.sum(y, axis=axis, keepdims=True)
    return y


@op("LogSoftmax", 13)
@in_float32
def log_softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """The logarithm of softmax along the axis."""
    if 0 in x.shape:
        return xp.empty_like(x)
    y = x - xp.max(x, axis=axis, keepdims=True)
    y -= xp.log(xp.sum(xp.exp(y), axis=axis, keepdims=True))
    return y


@op("Hardmax", 13)
def hardmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """1 at the first largest element along the axis, 0 elsewhere."""
    if 0 in x.shape:
        return xp.empty_like(x)
    axis = require_axis(axis, x.ndim)
    places = xp.reshape(xp.arange(x.shape[axis]), (-1,) + (1,) * (x.ndim - axis - 1))
    return xp.astype(places == xp.argmax(x, axis=axis, keepdims=True), x.dtype)


for _op_type, _function in (("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)):
    op(_op_type, 1, 11)(over_matrix(_function))
