"""DeformConv: convolution whose kernel elements are displaced, each by its own offset at each place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, per_channel, widen
from onnxplug_kernels.sampling import gather, linear_taps
from onnxplug_kernels.windows import windows


@op("DeformConv", 19, 22)
def deform_conv(
    xp: Any,
    x: Any,
    w: Any,
    offset: Any,
    b: Any = None,
    mask: Any = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Convolve linear samples of ``x`` taken at the displaced places; what lies outside ``x`` is zero.

    ``offset`` is (N, offset groups * prod(kernel) * rank, *output); ``mask``, without the rank, multiplies the samples.
    """
    kernel, rank = tuple(w.shape[2:]), x.ndim - 2
    moves = windows(x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads)
    batch, channels = x.shape[:2]
    elements, places = math.prod(kernel), math.prod(moves.output)
    if tuple(offset.shape) != (batch, offset_group * elements * rank, *moves.output):
        raise ValueError(f"offset {offset.shape} does not go with an output of {moves.output} and a kernel of {kernel}")
    values, weights = widen(xp, x), widen(xp, w)
    moved = xp.reshape(widen(xp, offset), (batch * offset_group, elements, rank, *moves.output))
    taps = []
    for axis in range(rank):
        home = xp.arange(moves.output[axis], dtype=moved.dtype) * moves.strides[axis] - moves.begins[axis]
        home = xp.reshape(home, (-1,) + (1,) * (rank - axis - 1))
        reach = xp.arange(kernel[axis], dtype=moved.dtype) * moves.dilations[axis]
        reach = xp.reshape(reach, (-1,) + (1,) * (rank - axis - 1))
        reach = xp.reshape(xp.broadcast_to(reach, kernel), (elements, *(1,) * rank))
        at = xp.reshape(moved[:, :, axis, ...] + home + reach, (batch * offset_group, elements * places))
        taps.append(linear_taps(xp, at, x.shape[2 + axis]))
    shared = xp.reshape(values, (batch * offset_group, channels // offset_group, *x.shape[2:]))
    columns = xp.reshape(gather(xp, shared, taps), (batch, offset_group, channels // offset_group, elements, places))
    if mask is not None:
        columns = columns * xp.reshape(widen(xp, mask), (batch, offset_group, 1, elements, places))
    columns = xp.reshape(columns, (batch, group, channels // group * elements, places))
    y = xp.matmul(xp.reshape(weights, (group, w.shape[0] // group, -1)), columns)
    y = xp.reshape(y, (batch, w.shape[0], *moves.output))
    if b is not None:
        y += per_channel(xp, widen(xp, b), y.ndim, y.shape[1])
    return narrow(xp, y, x.dtype)
