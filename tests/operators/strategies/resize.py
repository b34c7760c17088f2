"""Resampling: Resize, Upsample, GridSample, AffineGrid."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.values import is_float


def image(d: Draw, rank: int, element: str) -> tuple[tuple[int, ...], np.ndarray]:
    """A shape and contents of that rank."""
    shape = tuple(d.pick(3, 2, 1, 4, 5) for _ in range(rank))
    return shape, d.tensor(shape, element)


def plain(element: str) -> bool:
    """Whether elements can be averaged without rounding ties or overflow."""
    return is_float(element)


@strategy("Upsample")
def upsample(d: Draw) -> Case:
    element = d.element()
    names = ("nearest", "bilinear") if d.version == 1 else ("nearest", "linear")
    mode = d.pick(*names) if plain(element) else "nearest"
    _, x = image(d, 4, element)
    scales = [1.0, 1.0, d.pick(2.0, 1.0, 1.5, 3.0), d.pick(2.0, 1.0, 2.5)]
    attributes: dict[str, Any] = {"mode": mode} if mode != "nearest" or d.flag() else {}
    if d.version == 1:
        return Case([x], {**attributes, "height_scale": scales[2], "width_scale": scales[3]})
    if d.version == 7:
        return Case([x], {**attributes, "scales": scales})
    return Case([x, np.array(scales, np.float32)], attributes, fixed=frozenset({1}) if d.flag() else frozenset())


@strategy("Resize")
def resize(d: Draw) -> Case:
    element = d.element()
    modes = ("nearest", "linear", *(("cubic",) if d.version >= 11 else ()))
    mode = d.pick(*modes) if plain(element) else "nearest"
    rank = d.pick(4, 3, 2, 1) if mode == "nearest" else d.pick(2, 4, 3)
    shape, x = image(d, rank, element)
    moved = rank if mode == "nearest" else min(rank, 2)
    scales = [1.0] * (rank - moved) + [d.pick(2.0, 1.0, 0.5, 1.5, 0.75) for _ in range(moved)]
    scales = [1.0 if int(n * s) < 1 else s for n, s in zip(shape, scales, strict=True)]
    attributes: dict[str, Any] = {"mode": mode} if mode != "nearest" or d.flag() else {}
    if d.version == 10:
        return Case([x, np.array(scales, np.float32)], attributes)
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    ways += ["tf_half_pixel_for_nn"] if d.version == 11 and mode == "nearest" else []
    ways += ["half_pixel_symmetric"] if d.version >= 19 else []
    way = d.pick(*ways)
    attributes |= {"coordinate_transformation_mode": way} if way != "half_pixel" or d.flag() else {}
    if mode == "nearest":
        attributes |= d.maybe(nearest_mode=d.pick("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    if mode == "cubic":
        attributes |= d.maybe(
            cubic_coeff_a=d.pick(-0.5, -0.75), exclude_outside=d.pick(0, 1) if way != "tf_crop_and_resize" else 0
        )
    if d.version >= 18 and mode != "nearest" and way in ("half_pixel", "asymmetric") and min(shape[rank - moved :]) > 1:
        attributes |= d.maybe(antialias=d.pick(0, 1))
    axes = list(range(rank))
    if d.version >= 18 and d.flag():
        axes = axes[rank - moved :]
        attributes["axes"] = [a - rank if d.flag() else a for a in axes]
    roi = None
    if way == "tf_crop_and_resize":
        roi = np.array([0.0] * len(axes) + [1.0] * len(axes))
        inner = [i for i, a in enumerate(axes) if a >= rank - moved]
        roi[inner], roi[[i + len(axes) for i in inner]] = 0.25, d.pick(0.75, 1.0)
        attributes["extrapolation_value"] = 2.0
    by_size = d.flag()
    region = None if roi is None else roi.astype(numpy_dtype(d.element("T2")))
    empty = np.zeros(0, numpy_dtype(d.element("T2")))
    if d.version == 11:
        region = empty if region is None else region
    sizes = [max(1, int(shape[a] * scales[a])) if a >= rank - moved else shape[a] for a in axes]
    if d.version >= 18 and by_size and way != "tf_crop_and_resize" and d.flag():
        attributes["keep_aspect_ratio_policy"] = d.pick("stretch", "not_larger", "not_smaller")
        if attributes["keep_aspect_ratio_policy"] != "stretch" and (len(axes) < rank or rank > moved):
            attributes["keep_aspect_ratio_policy"] = "stretch"
    no_scales = np.zeros(0, np.float32) if d.version == 11 else None
    if d.cell.parameter == "T2" and region is None:
        region = empty
    scaled = np.array([scales[a] for a in axes], np.float32)
    # onnx's inference takes sizes of unknown length for none, hence ranked.
    return Case(
        [x, region, no_scales if by_size else scaled, np.array(sizes, np.int64) if by_size else None],
        attributes,
        ranked=True,
    )


@strategy("GridSample")
def grid_sample(d: Draw) -> Case:
    element = d.element("T1")
    rank = 2 if d.version == 16 else d.pick(2, 3)
    names = (
        ("bilinear", "nearest", "bicubic")
        if d.version == 16
        else ("linear", "nearest", *(("cubic",) if rank == 2 else ()))
    )
    mode = d.pick(*names) if plain(element) else "nearest"
    n, c = d.integer(1, 2), d.integer(1, 2)
    shape = (n, c, *(d.pick(3, 2, 4) for _ in range(rank)))
    grid_type = d.element("T2")
    grid = d.tensor((n, *(d.integer(1, 3) for _ in range(rank)), rank), grid_type, -1.4, 1.4)
    attributes = {"mode": mode} if mode not in ("linear", "bilinear") or d.flag() else {}
    attributes |= d.maybe(padding_mode=d.pick("zeros", "border", "reflection"), align_corners=d.pick(0, 1))
    return Case([d.tensor(shape, element), grid], attributes)


@strategy("AffineGrid")
def affine_grid(d: Draw) -> Case:
    rank, n = d.pick(2, 3), d.integer(1, 2)
    size = np.array([n, d.integer(1, 3), *(d.pick(3, 2, 4, 1) for _ in range(rank))], np.int64)
    return Case([d.tensor((n, rank, rank + 1)), size], d.maybe(align_corners=d.pick(0, 1)))
