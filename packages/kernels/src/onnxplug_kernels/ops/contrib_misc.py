"""Other operators of domain ``com.microsoft``, most of them forerunners of ones that ONNX has now."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.gather import gather_nd, unique
from onnxplug_kernels.ops.grid_sample import grid_sample
from onnxplug_kernels.ops.join import pad
from onnxplug_kernels.ops.linalg import trilu
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, require_range

MS = "com.microsoft"


@op("Inverse", 1, domain=MS)
def inverse(xp: Any, x: Any) -> Any:
    """The inverses of (..., M, M) matrices; a singular one gives NaN."""
    wide = widen(xp, x)
    try:
        y = xp.linalg.inv(wide)
    except np.linalg.LinAlgError:
        flat = xp.reshape(wide, (-1, *x.shape[-2:]))
        y = xp.reshape(xp.stack([_inverse(xp, flat[i, ...]) for i in range(flat.shape[0])]), x.shape)
    return narrow(xp, y, x.dtype)


def _inverse(xp: Any, matrix: Any) -> Any:
    try:
        return xp.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return xp.full(matrix.shape, xp.nan, dtype=matrix.dtype)


@op("Trilu", 1, domain=MS, host_inputs=(1,))
def trilu_(xp: Any, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    """Trilu-14."""
    return trilu(xp, x, k, upper=upper)


@op("Unique", 1, domain=MS, portable=False)
def unique_(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """The distinct elements in order of first occurrence, each element's place there, and how often each occurs."""
    values, _, places, counts = unique(xp, x, sorted=0)
    return values, places, counts


@op("ExpandDims", 1, domain=MS, host_inputs=(1,))
def expand_dims(xp: Any, x: Any, axis: np.ndarray) -> Any:
    """x with an axis of size 1 put in; negative places count from the end of the result."""
    return xp.expand_dims(x, axis=int(axis.reshape(-1)[0]))


@op("GatherND", 1, domain=MS)
def gather_nd_(xp: Any, data: Any, indices: Any) -> Any:
    """GatherND-11."""
    return gather_nd(xp, data, indices)


@op("Pad", 1, domain=MS, host_inputs=(1, 2))
def pad_(xp: Any, x: Any, pads: np.ndarray, value: np.ndarray | None = None, *, mode: str = "constant") -> Any:
    """Pad-11."""
    return pad(xp, x, pads, value, mode=mode)


@op("GridSample", 1, domain=MS, T1=("float16", "float", "double"))
def grid_sample_(
    xp: Any, x: Any, grid: Any, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Any:
    """GridSample-16."""
    return grid_sample(xp, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@op("Range", 1, domain=MS, host_inputs=(0, 1, 2))
def range_(xp: Any, start: np.ndarray, limit: np.ndarray, delta: np.ndarray | None = None) -> Any:
    """start, start + delta, ... before limit."""
    step = 1 if delta is None else delta.item()
    if step == 0:
        raise ValueError("delta must not be 0")
    count = max(0, int(np.ceil((limit.item() - start.item()) / step)))
    return xp.asarray((start.item() + np.arange(count) * step).astype(start.dtype))


@op("NGramRepeatBlock", 1, domain=MS, portable=False)
def ngram_repeat_block(xp: Any, input_ids: Any, scores: Any, *, ngram_size: int) -> Any:
    """Scores with -inf for each token that would repeat an n-gram of the row if it came next."""
    if ngram_size < 1:
        raise Refusal(f"ngram_size is {ngram_size}, it must be positive", FAIL)
    y = np.array(scores, copy=True)
    last = input_ids.shape[1] - ngram_size + 1  # where the n-gram that the next token completes begins
    if last > 0:
        repeats = np.ones((len(input_ids), last), np.bool_)
        for step in range(ngram_size - 1):
            repeats &= input_ids[:, step : step + last] == input_ids[:, last + step, None]
        rows, starts = np.nonzero(repeats)
        y[rows, input_ids[rows, starts + ngram_size - 1]] = -np.inf
    return y


@op("CropAndResize", 1, domain=MS, host_inputs=(3,))
def crop_and_resize(
    xp: Any,
    x: Any,
    rois: Any,
    batch_indices: Any,
    crop_size: np.ndarray,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Any:
    """(regions, C, *crop_size): each region (y1, x1, y2, x2), in shares of the image's corners' distance, sampled
    corner to corner.
    """
    if mode not in ("bilinear", "nearest"):
        raise Refusal(f"Invalid mode of value {mode} specified. It should be either bilinear or nearest", FAIL)
    require_range(
        xp,
        batch_indices,
        x.shape[0],
        f"batch_indices value {{value}} at index {{at}} is out of range [0, {x.shape[0]})",
    )
    height, width = (int(n) for n in crop_size)
    values = widen(xp, x)
    images = xp.take(values, xp.astype(batch_indices, xp.int64), axis=0)
    ys, inside_y = _places(xp, rois[:, 0], rois[:, 2], height, x.shape[2], mode)
    xs, inside_x = _places(xp, rois[:, 1], rois[:, 3], width, x.shape[3], mode)
    y = _sampled(xp, _sampled(xp, images, ys, axis=2), xs, axis=3)
    inside = (inside_y[:, :, None] & inside_x[:, None, :])[:, None, :, :]
    return narrow(xp, xp.where(inside, y, xp.asarray(extrapolation_value, dtype=y.dtype)), x.dtype)


def _places(xp: Any, start: Any, end: Any, count: int, size: int, mode: str) -> tuple[Any, Any]:
    """(regions, count) positions on an axis of ``size``, clipped to it, and which of them were inside."""
    start, end = widen(xp, start)[:, None], widen(xp, end)[:, None]
    share = xp.asarray(np.linspace(0, 1, count) if count > 1 else np.full(1, 0.5), dtype=start.dtype)
    place = (start * (1 - share) + end * share) * (size - 1)
    inside = (place >= 0) & (place <= size - 1)
    place = xp.clip(xp.where(inside, place, 0.0), 0.0, float(size - 1))
    return (xp.floor(place + 0.5) if mode == "nearest" else place), inside


def _sampled(xp: Any, x: Any, place: Any, axis: int) -> Any:
    """Linear interpolation along ``axis``, at other places for each entry of axis 0."""
    low = xp.floor(place)
    whole = tuple(place.shape[1] if i == axis else n for i, n in enumerate(x.shape))
    shape = tuple(n if i in (0, axis) else 1 for i, n in enumerate(whole))

    def at(position: Any) -> Any:
        index = xp.broadcast_to(xp.reshape(xp.astype(position, xp.int64), shape), whole)
        return xp.take_along_axis(x, index, axis=axis)

    share = xp.reshape(place - low, shape)
    return at(low) * (1 - share) + at(xp.ceil(place)) * share


@op("ComplexMul", 1, domain=MS)
def complex_mul(xp: Any, a: Any, b: Any) -> Any:
    """The product of complex numbers, whose parts are the last axis."""
    return _complex_product(xp, a, b, 1)


@op("ComplexMulConj", 1, domain=MS)
def complex_mul_conj(xp: Any, a: Any, b: Any) -> Any:
    """The product with the conjugates of the second ones."""
    return _complex_product(xp, a, b, -1)


def _complex_product(xp: Any, a: Any, b: Any, sign: int) -> Any:
    if a.shape[-1:] != (2,) or b.shape[-1:] != (2,):
        raise ValueError(f"the last axes of {tuple(a.shape)} and {tuple(b.shape)} are not real and imaginary parts")
    (real, imaginary), (other, turned) = ((widen(xp, x[..., 0]), widen(xp, x[..., 1])) for x in (a, b))
    turned = sign * turned
    parts = (real * other - imaginary * turned, real * turned + imaginary * other)
    return narrow(xp, xp.stack(parts, axis=-1), a.dtype)


@op("SampleOp", 1, domain=MS)
def sample_op(xp: Any, x: Any) -> Any:
    """x: onnxruntime's example of an operator."""
    return xp.asarray(x, copy=True)
