"""A convolution of channels-last arrays for which cuDNN has no plan: columns and a matrix product."""

from __future__ import annotations

from typing import Any

from onnxplug_ep_cuda.conv.problem import Convolution
from onnxplug_kernels.convolution import convolve
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.windows import windows


def by_columns(xp: Any, conv: Convolution, x: Any, w: Any, bias: Any, residual: Any) -> Any:
    """``conv`` of x (N, H, W, C) and w (K, R, S, C); the result, in the layout of x. Halves are rounded once, at the end."""
    pads = (*conv.begins, *conv.ends)
    moves = windows(conv.x[2:], conv.w[2:], strides=conv.strides, dilations=conv.dilations, pads=pads)
    images, weights = (xp.permute_dims(widen(xp, a), (0, 3, 1, 2)) for a in (x, w))
    y = convolve(xp, images, weights, moves, conv.x[1] // conv.w[1], None if bias is None else widen(xp, bias))
    y = xp.permute_dims(y, (0, 2, 3, 1))
    if residual is not None:
        y = y + widen(xp, residual)
    if conv.clip is not None:
        low, high = conv.clip.low, conv.clip.high
        y = y if low is None else xp.maximum(y, xp.asarray(low, dtype=y.dtype))
        y = y if high is None else xp.minimum(y, xp.asarray(high, dtype=y.dtype))
    return narrow(xp, y, x.dtype)
