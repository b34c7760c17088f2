"""A convolution of channels-last arrays for which cuDNN has no plan: columns and a matrix product."""

from __future__ import annotations

from typing import Any

from onnxplug_ep_cuda.conv.problem import Convolution
from onnxplug_kernels.convolution import convolve
from onnxplug_kernels.ops.conv_transpose import conv_transpose, reaches
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.windows import windows


def by_columns(xp: Any, conv: Convolution, x: Any, w: Any, bias: Any, residual: Any) -> Any:
    """``conv`` of x (N, *spatial, C) and w (K, *window, C); the result, in the layout of x. Halves are rounded once, at the end."""
    last = x.ndim - 1
    images, weights = (xp.permute_dims(widen(xp, a), (0, last, *range(1, last))) for a in (x, w))
    added = None if bias is None else widen(xp, bias)
    y = _transposed(xp, conv, images, weights, added) if conv.transposed else _plain(xp, conv, images, weights, added)
    y = xp.permute_dims(y, (0, *range(2, last + 1), 1))
    if residual is not None:
        y = y + widen(xp, residual)
    if conv.clip is not None:
        low, high = conv.clip.low, conv.clip.high
        y = y if low is None else xp.maximum(y, xp.asarray(low, dtype=y.dtype))
        y = y if high is None else xp.minimum(y, xp.asarray(high, dtype=y.dtype))
    return narrow(xp, y, x.dtype)


def _plain(xp: Any, conv: Convolution, x: Any, w: Any, bias: Any) -> Any:
    pads = (*conv.begins, *conv.ends)
    moves = windows(conv.x[2:], conv.w[2:], strides=conv.strides, dilations=conv.dilations, pads=pads)
    return convolve(xp, x, w, moves, conv.groups, bias)


def _transposed(xp: Any, conv: Convolution, x: Any, w: Any, bias: Any) -> Any:
    reach = reaches(conv.x[2:], conv.w[2:], conv.strides, conv.dilations)
    beyond = [max(0, n + b - r) for r, b, n in zip(reach, conv.begins, conv.y[2:], strict=True)]
    return conv_transpose(
        xp, x, w, bias, strides=conv.strides, dilations=conv.dilations, group=conv.groups, output_padding=beyond,
        pads=(*conv.begins, *conv.ends),
    )  # fmt: skip
