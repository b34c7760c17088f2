"""Scattering windows: ConvTranspose and Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import FLOATS, INTEGERS, op
from onnxplug_kernels.precision import narrow, per_channel, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced
from onnxplug_kernels.windows import Windows, fold, windows


@op("ConvTranspose", 1, 22)
def conv_transpose(
    xp: Any,
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """The transpose of Conv: (N, C, *spatial) and (C, M/group, *kernel) to (N, M, *output)."""
    if x.ndim != w.ndim or x.ndim < 3 or x.shape[1] != w.shape[0] or x.shape[1] % group:
        raise ValueError(f"X {x.shape} and W {w.shape} do not agree for group={group}")
    kernel, rank = tuple(w.shape[2:]), x.ndim - 2
    if 0 in kernel:
        raise ValueError(f"filters of extent {braced(kernel)} have no elements")
    if kernel_shape and tuple(kernel_shape) != kernel:
        raise Refusal(
            f"kernel_shape is not compatible with W shape. kernel_shape: {braced(kernel_shape)} W: {braced(w.shape)} channels_last: 0",
            FAIL,
        )
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    begins, sizes = placement(
        x.shape[2:], kernel, strides=strides, dilations=dilations, output_padding=output_padding,
        output_shape=output_shape, pads=pads, auto_pad=auto_pad,
    )  # fmt: skip
    reach = reaches(x.shape[2:], kernel, strides, dilations)

    batch, channels = x.shape[:2]
    features = w.shape[1] * group
    weights = xp.reshape(widen(xp, w), (group, channels // group, w.shape[1] * math.prod(kernel)))
    values = xp.reshape(widen(xp, x), (batch, group, channels // group, math.prod(x.shape[2:])))
    columns = xp.matmul(xp.matrix_transpose(weights), values)
    none = (0,) * rank
    moves = Windows(kernel, strides, dilations, none, none, none, tuple(x.shape[2:]))
    room = [max(r, p + n) for r, p, n in zip(reach, begins, sizes, strict=True)]
    image = fold(xp, xp.reshape(columns, (batch, features, *kernel, *x.shape[2:])), moves, room)
    y = image[(..., *(slice(p, p + n) for p, n in zip(begins, sizes, strict=True)))]
    if b is not None:
        y = y + per_channel(xp, widen(xp, b), x.ndim, y.shape[1])
    return narrow(xp, y, x.dtype)


def reaches(
    spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Sizes of the untrimmed result."""
    return [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(spatial, strides, kernel, dilations, strict=True)]


def placement(
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> tuple[list[int], list[int]]:
    """(where the output begins in the untrimmed result, its sizes).

    ``auto_pad`` for the input's size times the strides only takes away, as in onnxruntime and onnx's inference: where windows are
    smaller than strides nothing is added behind them (the text of the specification, ConvTranspose-22, says that the size is reached)."""
    rank = len(spatial)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    reach = reaches(spatial, kernel, strides, dilations)
    more = tuple(output_padding or (0,) * rank)
    if any(not 0 <= a < max(s, d) for a, s, d in zip(more, strides, dilations, strict=True) if a):
        raise ValueError(
            f"output_padding {list(more)} is not below strides {list(strides)} or dilations {list(dilations)}"
        )
    full = [r + a for r, a in zip(reach, more, strict=True)]
    if output_shape:
        sizes = list(output_shape)[-rank:]
        if any(n >= f + step for n, f, step in zip(sizes, full, strides, strict=True)):
            raise ValueError(
                f"output_shape {sizes} is a stride of {list(strides)} or more beyond the {full} elements there are"
            )
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [min(f, n * s) for f, n, s in zip(full, spatial, strides, strict=True)]
    else:
        pads = pads if pads and auto_pad != "VALID" else (0,) * (2 * rank)
        sizes = [f - pads[i] - pads[i + rank] for i, f in enumerate(full)]
        begins = list(pads[:rank])
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(0, f - n) for f, n in zip(full, sizes, strict=True)]
        begins = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in totals]
    if min(sizes) < 1:
        raise ValueError(f"an output of {sizes} elements: padding takes it all away")
    return begins, sizes


@op("Col2Im", 18, host_inputs=(1, 2), T=(*FLOATS, *INTEGERS, "bool", "complex64", "complex128"))
def col2im(
    xp: Any,
    x: Any,
    image_shape: Any,
    block_shape: Any,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Add the columns of (N, C * prod(block), L) up in images (N, C, *image_shape)."""
    image, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    moves = windows(image, block, strides=strides, dilations=dilations, pads=pads)
    batch, rows, places = x.shape
    for axis, count in enumerate(moves.output):
        if count < 1:
            raise Refusal(f"Padded image extent is smaller than the dilated kernel for spatial dimension {axis}.")
    if rows % math.prod(block):
        raise Refusal(f"'input' dim[1] ({rows}) must be a positive multiple of prod(block_shape) ({math.prod(block)}).")
    if places != math.prod(moves.output):
        raise Refusal(
            f"'input' dim[2] ({places}) does not match the number of sliding blocks ({math.prod(moves.output)}) implied by "
            "'image_shape', 'block_shape', 'pads', 'strides', and 'dilations'."
        )
    columns = xp.reshape(widen(xp, x), (batch, rows // math.prod(block), *block, *moves.output))
    sizes = [b + n + e for b, n, e in zip(moves.begins, image, moves.ends, strict=True)]
    y = fold(xp, columns, moves, sizes)
    y = y[(..., *(slice(b, b + n) for b, n in zip(moves.begins, image, strict=True)))]
    return narrow(xp, y, x.dtype)
