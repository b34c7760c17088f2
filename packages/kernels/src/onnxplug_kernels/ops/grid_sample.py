"""Sampling by a flow field: GridSample, and AffineGrid that makes one."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.precision import from_float, is_inexact, narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced
from onnxplug_kernels.sampling import Tap, gather, inside

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
_CUBIC = -0.75
"""The slope of cubic interpolation at a distance of one pixel."""


@op("GridSample", 16, 22)
def grid_sample(
    xp: Any, x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """Interpolate (N, C, *spatial) at the places of ``grid``, (N, *output, rank).

    Coordinates span [-1, 1] and come innermost axis first.
    """
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r} with padding_mode {padding_mode!r} is not known")
    mode = _MODES[mode]
    rank = x.ndim - 2
    if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ValueError(f"GridSample: no grid of shape {tuple(grid.shape)} for an input of shape {tuple(x.shape)}")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if 0 in shape or 0 in x.shape:
        return xp.zeros(shape, dtype=x.dtype)
    places = widen(xp, grid)
    taps = []
    for axis, size in enumerate(x.shape[2:]):
        at = xp.reshape(places[..., rank - 1 - axis], (grid.shape[0], -1))
        at = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
        taps.append(_taps(xp, at, size, mode, padding_mode, bool(align_corners)))
    if mode == "nearest":
        return xp.reshape(_pick(xp, x, [axis_taps[0] for axis_taps in taps]), shape)
    values = widen(xp, x) if is_inexact(x.dtype) else xp.astype(x, xp.float64)
    y = xp.reshape(gather(xp, values, taps), shape)
    return narrow(xp, y, x.dtype) if is_inexact(x.dtype) else from_float(xp, xp.trunc(y), x.dtype)


def _pick(xp: Any, x: Any, taps: list[Tap]) -> Any:
    """One element each, zero where it lies outside; for every type."""
    y = gather(xp, x, [[Tap(tap.index)] for tap in taps])
    if taps[0].seen is None:
        return y
    seen = functools.reduce(operator.and_, (tap.seen for tap in taps))
    nothing = np.asarray("", dtype=object) if is_string(x) else xp.zeros((), dtype=x.dtype)
    return xp.where(xp.expand_dims(seen, axis=1), y, nothing)


def _taps(xp: Any, at: Any, size: int, mode: str, padding: str, aligned: bool) -> list[Tap]:
    """The elements of one axis that samples at ``at`` are made of."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if mode == "nearest":
        at = xp.round(at)
    beyond = (at < low) | (at > high)
    if padding == "border" and mode != "cubic":  # of a cubic sample the elements are moved, not the centre
        at = xp.where(beyond, xp.clip(at, 0.0, float(size - 1)), at)
    elif padding == "reflection":
        at = xp.where(beyond, _reflect(xp, at, low, high), at)
    if mode == "nearest":
        # A reflected place may lie between two elements again.
        return [_settled(xp, Tap(xp.astype(at, xp.int64), xp.ones_like(at)), size, padding, low, high)]
    first = xp.floor(at)
    upper = at - first
    if mode == "linear":
        weights = [1 - upper, upper]
    else:
        weights = [_cubic(upper + 1), _cubic_near(upper), _cubic_near(1 - upper), _cubic(2 - upper)]
    start = xp.astype(first, xp.int64) - (0 if mode == "linear" else 1)
    return [_settled(xp, Tap(start + i, w), size, padding, low, high) for i, w in enumerate(weights)]


def _settled(xp: Any, tap: Tap, size: int, padding: str, low: float, high: float) -> Tap:
    """``tap`` with its indices brought into the axis as the padding mode says."""
    if padding == "reflection":
        index = xp.astype(tap.index, tap.weight.dtype)
        mirrored = xp.where((index < low) | (index > high), _reflect(xp, index, low, high), index)
        return Tap(xp.clip(xp.astype(mirrored, xp.int64), 0, size - 1), tap.weight)
    if padding == "border":
        return Tap(xp.clip(tap.index, 0, size - 1), tap.weight)
    return inside(xp, tap, size)


def _reflect(xp: Any, at: Any, low: float, high: float) -> Any:
    """Fold the line back and forth between ``low`` and ``high``."""
    span = high - low
    if span == 0:
        return xp.full(at.shape, low, dtype=at.dtype)
    distance = xp.abs(at - low)
    turns = xp.floor(distance / span)
    rest = distance - turns * span
    return xp.where(turns % 2 == 0, low + rest, high - rest)


def _cubic(distance: Any) -> Any:
    return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _cubic_near(distance: Any) -> Any:
    return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1


def even_places(n: int, align_corners: bool) -> np.ndarray[Any, Any]:
    """The places of ``n`` pixels over [-1, 1], which are their centres' or, with ``align_corners``, reach from end to end."""
    steps = np.arange(n)
    return -1 + steps * (2 / max(1, n - 1)) if align_corners else (2 * steps + 1) / n - 1


@op("AffineGrid", 20, host_inputs=(1,))
def affine_grid(xp: Any, theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """Apply affine matrices (N, rank, rank + 1) to an even grid over [-1, 1] of the spatial part of ``size``."""
    spatial = [int(n) for n in size[2:]]
    rank = len(spatial)
    if tuple(theta.shape) != (int(size[0]), rank, rank + 1) or min(spatial, default=0) < 0:
        raise Refusal(f"theta {braced(theta.shape)} is no matrix for each image of {braced(size.tolist())}", FAIL)
    axes = []
    for axis, n in enumerate(spatial):
        line = even_places(n, bool(align_corners))
        axes.append(np.broadcast_to(line.reshape((-1,) + (1,) * (rank - axis - 1)), spatial))
    base = np.stack([*reversed(axes), np.ones(spatial)], axis=-1).reshape(math.prod(spatial), rank + 1)
    matrices = widen(xp, theta)
    grid = xp.matmul(xp.asarray(base, dtype=matrices.dtype), xp.matrix_transpose(matrices))
    return narrow(xp, xp.reshape(grid, (theta.shape[0], *spatial, rank)), theta.dtype)
