"""Experimental operators of ONNX's first releases, withdrawn since, which onnxruntime still runs: old converters of Core ML wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.contrib_fused import activate
from onnxplug_kernels.ops.join import slice_


@op("Affine", 1)
def affine(xp: Any, x: Any, *, alpha: float = 1.0, beta: float = 0.0) -> Any:
    """alpha * x + beta."""
    return activate(xp, x, "Affine", (alpha, beta))


@op("ParametricSoftplus", 1)
def parametric_softplus(xp: Any, x: Any, *, alpha: float, beta: float) -> Any:
    """alpha * log(1 + exp(beta * x))."""
    return activate(xp, x, "ParametricSoftplus", (alpha, beta))


@op("ScaledTanh", 1)
def scaled_tanh(xp: Any, x: Any, *, alpha: float, beta: float) -> Any:
    """alpha * tanh(beta * x)."""
    return activate(xp, x, "ScaledTanh", (alpha, beta))


@op("Scale", 1)
def scale_(xp: Any, x: Any, *, scale: float = 1.0) -> Any:
    """scale * x."""
    return scale * x


@op("ImageScaler", 1)
def image_scaler(xp: Any, x: Any, *, bias: Sequence[float], scale: float = 1.0) -> Any:
    """scale * x + bias of each channel, for x (N, C, H, W)."""
    if x.ndim != 4 or len(bias) != x.shape[1]:
        raise ValueError(
            f"the input is {x.shape}, with {len(bias)} numbers in bias; it must be (N, C, H, W) with one for each channel"
        )
    return scale * x + xp.reshape(xp.asarray(bias, dtype=x.dtype), (-1, 1, 1))


@op("Crop", 1)
def crop(xp: Any, x: Any, *, border: Sequence[int], scale: Sequence[int] = ()) -> Any:
    """x (N, C, H, W) without its ``border``, left, top, right and bottom; with ``scale`` that many rows and columns behind the left and
    top border instead."""
    if x.ndim != 4 or len(border) != 4:
        raise ValueError(f"the input is {x.shape}, border {list(border)}; they must have four dimensions and numbers")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    end_row, end_column = (top + scale[0], left + scale[1]) if len(scale) > 0 else (height - bottom, width - right)
    if not (0 <= top < end_row <= height and 0 <= left < end_column <= width):
        raise ValueError(
            f"rows {top} to {end_row} and columns {left} to {end_column} are not inside an image of {height} x {width}"
        )
    return x[:, :, top:end_row, left:end_column]


@op("DynamicSlice", 1, host_inputs=(1, 2, 3))
def dynamic_slice(xp: Any, x: Any, starts: Any, ends: Any, axes: Any = None) -> Any:
    """Slice with steps of one, whose limits were inputs before Slice's were."""
    return slice_(xp, x, starts, ends, axes)
