"""Reductions straight into the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.forms import FLOAT, INTEGER, Specs, constant_ints, given, into, normal_axis, scalar

# (input, axes from the front, keepdims) -> writing call of x and y, or None.
Reduction = Callable[[TensorSpec, tuple[int, ...], bool], Callable[..., object] | None]


def _enter(op_type: str, until: int, dtypes: frozenset[str]) -> Callable[[Reduction], Reduction]:
    """Enter a reduction in both forms: axes an attribute, and in later versions an input."""

    def enter(make: Reduction) -> Reduction:
        def bind(
            inputs: Specs,
            outputs: Specs,
            *,
            axes: Sequence[int] | None = None,
            keepdims: int = 1,
            noop_with_empty_axes: int = 0,
        ) -> Into | None:
            x = inputs[0]
            if given(inputs, 1):
                axes = constant_ints(inputs, 1)
                if axes is None:
                    return None
            if not x.shape or (not axes and noop_with_empty_axes):
                return None
            front = tuple(dict.fromkeys(normal_axis(a, len(x.shape)) for a in axes or range(len(x.shape))))
            call = make(x, front, bool(keepdims))
            if call is None or len(inputs) == 1:
                return None if call is None else Into(call)
            return Into(lambda x, axes, y: call(x, y))

        into(op_type, 1, until, dtypes=dtypes)(bind)
        return make

    return enter


def _by_ufunc(ufunc: np.ufunc) -> Reduction:
    def make(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> Callable[..., object]:
        dtype = x.dtype  # otherwise sums of small integers are made in a wider type
        return lambda x, y: ufunc.reduce(x, axes, dtype, out=y, keepdims=keepdims)

    return make


_enter("ReduceMax", 20, FLOAT | INTEGER)(_by_ufunc(np.maximum))
_enter("ReduceMin", 20, FLOAT | INTEGER)(_by_ufunc(np.minimum))
_enter("ReduceProd", 18, FLOAT | INTEGER)(_by_ufunc(np.multiply))
_enter("ReduceSum", 13, FLOAT | INTEGER)(_by_ufunc(np.add))


@_enter("ReduceMean", 18, FLOAT)
def mean(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> Callable[..., object]:
    """The mean over the axes."""
    count = scalar(math.prod(x.shape[a] for a in axes), x.dtype)

    def call(x: np.ndarray, y: np.ndarray) -> None:
        np.add.reduce(x, axes, out=y, keepdims=keepdims)
        np.divide(y, count, y)

    return call


@_enter("ReduceSumSquare", 18, FLOAT)
def sum_square(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> Callable[..., object] | None:
    """The sum of squares over the last axes."""
    rank = len(x.shape)
    if sorted(axes) != list(range(rank - len(axes), rank)):
        return None
    size = math.prod(x.shape[rank - len(axes) :])
    rows = math.prod(x.shape) // size

    def call(x: np.ndarray, y: np.ndarray) -> None:
        x = x.reshape(rows, size)
        np.vecdot(x, x, y.reshape(rows))

    return call


@_enter("ReduceL2", 18, FLOAT)
def l2(x: TensorSpec, axes: tuple[int, ...], keepdims: bool) -> Callable[..., object] | None:
    """The square root of the sum of squares over the last axes."""
    squares = sum_square(x, axes, keepdims)
    if squares is None:
        return None

    def call(x: np.ndarray, y: np.ndarray) -> None:
        squares(x, y)
        np.sqrt(y, y)

    return call


def _position(search: str, x: TensorSpec, axis: int, keepdims: int) -> Into:
    axis = normal_axis(axis, len(x.shape))
    if keepdims:
        return Into(lambda x, y: getattr(x, search)(axis, y, keepdims=True))
    return Into(lambda x, y: getattr(x, search)(axis, y))


@into("ArgMax", 1, 13, dtypes=FLOAT | INTEGER)
def argmax(
    inputs: Specs, outputs: Specs, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Into | None:
    """The position of the first largest element along the axis."""
    return None if select_last_index or not inputs[0].shape else _position("argmax", inputs[0], axis, keepdims)


@into("ArgMin", 1, 13, dtypes=FLOAT | INTEGER)
def argmin(
    inputs: Specs, outputs: Specs, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Into | None:
    """The position of the first smallest element along the axis."""
    return None if select_last_index or not inputs[0].shape else _position("argmin", inputs[0], axis, keepdims)
