"""MaxpoolWithMask of domain ``com.microsoft``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import FAIL, Refusal
from onnxplug_kernels.windows import windows

MS = "com.microsoft"


@op("MaxpoolWithMask", 1, domain=MS, T=("float",))
def max_pool_with_mask(
    xp: Any,
    x: Any,
    mask: Any,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Any:
    """The greatest element of each window of (N, C, *spatial), in which a run along the last axis ends where ``mask`` is 0.

    That is how onnxruntime does it, for whose use alone the operator is: the first element of an image counts whatever its mask (not
    along a line alone), a window of which nothing is left has the lowest float, and image i is masked
    by the elements of ``mask`` from i * size modulo its channels on.
    """
    if not kernel_shape:
        raise ValueError("Attribute kernel_shape must be specified")
    spatial = x.shape[2:]
    if mask.ndim != x.ndim:
        text = "Mask and input must have the same number of dimensions. Got mask dims:"
        raise Refusal(f"{text} {mask.ndim} input dims: {x.ndim}", FAIL)
    for axis in range(2, x.ndim):
        if mask.shape[axis] != x.shape[axis]:
            sizes = f"mask={mask.shape[axis]} input={x.shape[axis]}"
            raise Refusal(f"Mask and input spatial dimensions mismatch at dimension {axis}: {sizes}", FAIL)
    images, masks = x.shape[0] * x.shape[1], mask.shape[0] * mask.shape[1]
    if masks < 1:
        raise Refusal("Mask N and C dimensions must be greater than 0", FAIL)
    moves = windows(spatial, kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad, ceil_mode=0)
    size = math.prod(spatial)
    starts = (xp.arange(images) * size) % masks
    places = xp.reshape(starts[:, None] + xp.arange(size)[None, :], (-1,))
    seen = xp.take(xp.reshape(mask != 0, (-1,)), places, axis=0)
    if moves.rank > 1:
        seen = seen | (xp.arange(images * size) % size == 0)
    least = float(xp.finfo(x.dtype).min)
    lowest, values = xp.asarray(least, dtype=x.dtype), moves.pad(xp, x, least)
    # Padding has no elements: it neither counts nor ends a run.
    open_ = moves.pad(xp, xp.reshape(seen, x.shape), True)
    best, run = None, None
    for position in moves.positions():
        here = open_[moves.index(position)]
        run = here if run is None or position[-1] == 0 else run & here
        found = xp.where(run, values[moves.index(position)], lowest)
        best = found if best is None else xp.maximum(best, found)
    return best
