"""Resampling of images: every output pixel a weighted sum of input pixels, channels-last."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported, attributes
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.pool import pooled
from onnxplug_ep_cpu.codegen.lower.support import rank, typed
from onnxplug_ep_cpu.codegen.tensor import channels_last
from onnxplug_kernels.interpolation import coordinates, nearest, weighted

_MOST = 1 << 24
"""Table entries; beyond it the tables would cost more than the operator."""


def _supports(node: NodeView) -> str | None:
    if node.since_version < 11:
        return "only its newer versions are generated"
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return "cropping is not generated"
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "keeping the aspect ratio is not generated"
    known = "the rank is not known" if rank(node.inputs[0]) < 3 else None
    return known or typed(node.inputs[0]) or typed(node.outputs[0])


@lowering("Resize", supports=_supports)
def resize(b: Lowering, node: NodeView) -> None:
    """Nearest, linear and cubic interpolation of the spatial dimensions."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    given, made = b.shape(x), b.shape(y)
    factors = _factors(b, node, given, made)
    if given[:2] != made[:2] or factors[:2] != [1.0, 1.0]:
        raise Unsupported("only images are resampled")
    source = b.channels_last(x)
    table, weights = np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    for axis in range(2, len(given)):
        indices, shares = _axis(node, given[axis], made[axis], factors[axis])
        steps = (indices * source.strides[axis]).astype(np.int32)
        if len(table) * table.shape[1] * steps.size > _MOST:
            raise Unsupported("the image is too large to be resampled by tables")
        rows = len(table) * len(steps)
        table = (table[:, None, :, None] + steps[None, :, None, :]).reshape(rows, -1)
        weights = (weights[:, None, :, None] * shares[None, :, None, :]).reshape(rows, -1)
    pooled(b, source, b.output(y, channels_last(len(made))), table, np.ascontiguousarray(weights, np.float32))


def _factors(b: Lowering, node: NodeView, given: tuple[int, ...], made: tuple[int, ...]) -> list[float]:
    """The scale of every dimension."""
    scales = b.constant(node.inputs[2] if len(node.inputs) > 2 else None)
    axes = [a % len(given) for a in node.attributes.get("axes", range(len(given)))]
    factors = [1.0] * len(given)
    for i, axis in enumerate(axes):
        exact = made[axis] / given[axis] if given[axis] else 1.0
        factors[axis] = float(scales[i]) if scales is not None and scales.size else exact
    return factors


def _axis(node: NodeView, size: int, output: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """(input element, weight) of each tap of each output element along an axis."""
    a = attributes(
        node, antialias=0, coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0,
        mode="nearest", nearest_mode="round_prefer_floor",
    )  # fmt: skip
    if output == size and factor == 1.0:
        return np.arange(size)[:, None], np.ones((size, 1))
    if size == 0 or output == 0:
        return np.zeros((output, 1), np.int64), np.zeros((output, 1))
    at = coordinates(a["coordinate_transformation_mode"], size, output, factor)
    if a["mode"] == "nearest":
        indices = nearest(at, size, a["nearest_mode"]).indices
        return indices, np.ones(indices.shape)
    how = weighted(
        at, size, a["mode"], cubic_coeff_a=a["cubic_coeff_a"], exclude_outside=bool(a["exclude_outside"]),
        stretch=max(1.0, 1 / factor) if a["antialias"] else 1.0,
    )  # fmt: skip
    assert how.weights is not None
    return how.indices, how.weights
