"""Operators of onnx.reference that are put right here rather than declined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import (
    op_flatten,
    op_gemm,
    op_log_softmax,
    op_lp_pool,
    op_negative_log_likelihood_loss,
    op_non_max_suppression,
    op_one_hot,
    op_pad,
    op_slice,
    op_softmax_cross_entropy_loss,
    op_softsign,
    op_squeeze,
    op_unsqueeze,
)
from onnx.reference.ops.op_pool_common import CommonPool

from onnxplug_ep_reference.kernels.conversion import CONVERSIONS


class Flatten(op_flatten.Flatten):
    """An axis outside of the tensor is an error: slicing the shape there would make one row of everything."""

    def _run(self, x: np.ndarray, axis: int | None = None) -> tuple[np.ndarray]:
        axis = self.axis if axis is None else axis  # type: ignore[attr-defined]
        if not -x.ndim <= axis <= x.ndim:
            raise ValueError(f"axis {axis} is outside of a tensor of {x.ndim} dimensions")
        return (x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))),)


class Gemm_6(op_gemm.Gemm_6):
    """C is multiplied with beta, whether it is broadcast or not."""

    def _run(  # type: ignore[override]
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray, broadcast: int | None = None, **told: Any
    ) -> tuple[np.ndarray]:
        shape = a.shape[1 if told["transA"] else 0], b.shape[0 if told["transB"] else 1]
        if not broadcast and c.shape != shape:
            raise ValueError(f"C has shape {c.shape}, the product {shape}, and nothing is to be broadcast")
        found: tuple[np.ndarray] = super()._run(a, b, c, **told, broadcast=1)  # type: ignore[no-untyped-call]
        return found


class Gemm_7(op_gemm.Gemm_7):
    """Whole factors of integers are integers: floats would round results of more than 53 bits."""

    def _run(  # type: ignore[override]
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray | None = None,
        alpha: Any = None,
        beta: Any = None,
        **told: Any,
    ) -> tuple[np.ndarray]:
        if a.dtype.kind in "iu" and float(alpha).is_integer() and float(beta).is_integer():
            alpha, beta = (np.array(int(factor)).astype(a.dtype) for factor in (alpha, beta))
        found: tuple[np.ndarray] = super()._run(a, b, c, alpha, beta, **told)  # type: ignore[no-untyped-call]
        return found


def _log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """x - max - log(sum(exp(x - max))): the logarithm of what softmax gives is -inf where that has become zero."""
    shifted = x - x.max(axis=axis, keepdims=True)
    found: np.ndarray = (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(x.dtype)
    return found


class LogSoftmax(op_log_softmax.LogSoftmax):
    """Not by way of Softmax."""

    def _run(self, X: np.ndarray, axis: int | None = None) -> tuple[np.ndarray]:
        return (_log_softmax(X, self.axis if axis is None else axis),)  # type: ignore[attr-defined]


class LpPool(op_lp_pool.LpPool):
    """Sums of what a window covers: the average times the window's size counts what ceil_mode adds beyond the edge."""

    def _run(  # type: ignore[override]
        self, x: np.ndarray, p: int = 2, count_include_pad: None = None, **window: Any
    ) -> tuple[np.ndarray]:
        found: tuple[np.ndarray] = CommonPool._run(self, "LPPOOL", 1, x, p=p, **window)  # type: ignore[no-untyped-call]
        return (found[0].astype(x.dtype),)


class NonMaxSuppression(op_non_max_suppression.NonMaxSuppression):
    """The limits may be scalars or left out, and the number of boxes below zero: then there are none, of any overlap."""

    def _run(  # type: ignore[override]
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        most: np.ndarray | None = None,
        overlap: np.ndarray | None = None,
        least: np.ndarray | None = None,
        **told: Any,
    ) -> tuple[np.ndarray]:
        lists = [np.reshape(np.float32(0) if overlap is None else overlap, -1)]
        if least is not None:
            lists.append(np.reshape(least, -1))
        count = np.maximum(np.reshape(np.int64(0) if most is None else most, -1), 0)
        found: tuple[np.ndarray] = super()._run(boxes, scores, count, *lists, **told)  # type: ignore[no-untyped-call]
        return found


class OneHot(op_one_hot.OneHot):
    """``depth`` may be a tensor of one element too, which newer NumPys do not make a Python number of."""

    def _run(
        self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int | None = None
    ) -> tuple[np.ndarray]:
        found: tuple[np.ndarray] = super()._run(indices, np.reshape(depth, ()), values, axis)  # type: ignore[no-untyped-call]
        return found


def _cropped(data: np.ndarray, pads: np.ndarray, axes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The tensor without what negative pads take away, and the other pads."""
    along = range(data.ndim) if axes is None else [int(axis) for axis in axes]
    begins, ends = (np.minimum(part, 0) for part in np.split(np.asarray(pads), 2))
    kept = [slice(None)] * data.ndim
    for axis, begin, end in zip(along, begins, ends, strict=True):
        kept[axis] = slice(-begin, data.shape[axis] + end)
    return data[tuple(kept)], np.maximum(pads, 0)


class Pad_11(op_pad.Pad_11):
    """Negative pads take elements away."""

    def _run(
        self, data: np.ndarray, pads: np.ndarray, constant_value: Any = None, mode: str | None = None
    ) -> tuple[np.ndarray]:
        data, pads = _cropped(data, pads, None)
        found: tuple[np.ndarray] = super()._run(data, pads, constant_value, mode)  # type: ignore[no-untyped-call]
        return found


class Pad_18(op_pad.Pad_18):
    """The same along some axes."""

    def _run(
        self,
        data: np.ndarray,
        pads: np.ndarray,
        constant_value: Any = None,
        axes: np.ndarray | None = None,
        mode: str | None = None,
    ) -> tuple[np.ndarray]:
        data, pads = _cropped(data, pads, axes)
        found: tuple[np.ndarray] = super()._run(data, pads, constant_value, axes, mode)  # type: ignore[no-untyped-call]
        return found


class Slice_10(op_slice.Slice_10):
    """With a negative step a start before the first element is the first element; NumPy takes it for the end of the way."""

    def _run(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        axes: np.ndarray | None = None,
        steps: np.ndarray | None = None,
    ) -> tuple[np.ndarray]:
        if steps is not None and data.ndim:
            along = range(np.size(starts)) if axes is None else axes
            sizes = np.array([data.shape[axis] for axis in along], np.int64)
            starts = np.where((steps < 0) & (starts < -sizes), -sizes, starts)
        found: tuple[np.ndarray] = super()._run(data, starts, ends, axes, steps)  # type: ignore[no-untyped-call]
        return found


class SoftmaxCrossEntropyLoss(op_softmax_cross_entropy_loss.SoftmaxCrossEntropyLoss):
    """The negative log likelihood of LogSoftmax, not by way of Softmax."""

    def _run(  # type: ignore[override]
        self, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None, **told: Any
    ) -> tuple[np.ndarray, ...]:
        scores = _log_softmax(x, 1)
        if weight is None and told.get("ignore_index") == -1:  # with weights alone the function knows it
            weight = np.ones(x.shape[1], x.dtype)
        judge: Any = op_negative_log_likelihood_loss._compute_negative_log_likelihood_loss
        (loss,) = judge(scores, target, weight, **told)
        return (loss, scores) if len(self.onnx_node.output) == 2 else (loss,)


class Softsign(op_softsign.Softsign):
    """x / (1 + |x|), of scalars too, for which NumPy's functions give no array to write on."""

    def _run(self, X: np.ndarray) -> tuple[np.ndarray]:
        return (np.asarray(X / (1 + np.abs(X))).astype(X.dtype),)


class Squeeze_11(op_squeeze.Squeeze_11):
    """All axes at once: taking them one after the other moves those counted from the end."""

    def _run(self, data: np.ndarray, axes: list[int] | None = None) -> tuple[np.ndarray]:
        given = self.axes if axes is None else axes  # type: ignore[attr-defined]
        return (np.squeeze(data, axis=tuple(given) if given else None),)


class Unsqueeze_11(op_unsqueeze.Unsqueeze_11):
    """All axes at once, for the same reason."""

    def _run(self, data: np.ndarray, axes: list[int] | None = None) -> tuple[np.ndarray]:
        given = self.axes if axes is None else axes  # type: ignore[attr-defined]
        return (np.expand_dims(data, tuple(given)),)


CORRECTED: Mapping[type[OpRun], type[OpRun]] = {
    **CONVERSIONS,
    op_flatten.Flatten: Flatten,
    op_gemm.Gemm_6: Gemm_6,
    op_gemm.Gemm_7: Gemm_7,
    op_log_softmax.LogSoftmax: LogSoftmax,
    op_lp_pool.LpPool: LpPool,
    op_non_max_suppression.NonMaxSuppression: NonMaxSuppression,
    op_one_hot.OneHot: OneHot,
    op_pad.Pad_11: Pad_11,
    op_pad.Pad_18: Pad_18,
    op_slice.Slice_10: Slice_10,
    op_softmax_cross_entropy_loss.SoftmaxCrossEntropyLoss: SoftmaxCrossEntropyLoss,
    op_softsign.Softsign: Softsign,
    op_squeeze.Squeeze_11: Squeeze_11,
    op_unsqueeze.Unsqueeze_11: Unsqueeze_11,
}
"""What takes the place of which class."""
