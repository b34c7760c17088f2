"""Writing by index: Scatter and its relatives. All but TensorScatter need NumPy's assignment by index array."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.ops.join import along
from onnxplug_kernels.precision import is_half
from onnxplug_kernels.refusals import FAIL, Refusal, require_axis

_REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@op("Scatter", 9, 11, portable=False)
@op("ScatterElements", 11, 18, portable=False)
def scatter_elements(
    xp: Any, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
    """``data`` with each of ``updates`` put or reduced into its own position with ``axis`` replaced by its index."""
    axis = require_axis(axis, data.ndim)
    if updates.shape != indices.shape:
        raise ValueError(f"ScatterElements: updates of shape {updates.shape} for indices of shape {indices.shape}")
    where: list[np.ndarray] = [indices]
    if data.ndim > 1:
        where = list(np.indices(indices.shape, sparse=True))
        where[axis] = indices
    return _scatter(data, tuple(where), updates, reduction)


@op("ScatterND", 11, 18, portable=False)
def scatter_nd(
    xp: Any, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none"
) -> np.ndarray:
    """``data`` with slices of ``updates`` put or reduced into the index tuples along the last axis of ``indices``."""
    if updates.shape != (*indices.shape[:-1], *data.shape[indices.shape[-1] :]):
        raise ValueError(f"ScatterND: {updates.shape} updates for {indices.shape} indices of {data.shape} elements")
    if not indices.shape[-1]:  # tuples of no indices name the whole, each time
        whole: np.ndarray = _scatter(data[None], (np.zeros(indices.shape[:-1], np.int64),), updates, reduction)[0]
        return whole
    return _scatter(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _scatter(data: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    if reduction == "none":
        # A fixed-width string array would cut longer updates off.
        result = data.astype(object) if is_string(data) else data.copy()
        result[where] = updates
        return result
    if reduction not in _REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}")
    work = np.dtype(np.float32) if is_half(data.dtype) else data.dtype
    result = data.astype(work)
    _REDUCTIONS[reduction].at(result, where, updates.astype(work, copy=False))
    return result.astype(data.dtype, copy=False)


@op("TensorScatter", 24, host_inputs=(2,))
def tensor_scatter(
    xp: Any,
    past_cache: Any,
    update: Any,
    write_indices: np.ndarray | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Any:
    """``past_cache`` with ``update`` written along ``axis`` from each sample's write index on; mode circular wraps."""
    axis = require_axis(axis, past_cache.ndim)
    if axis == 0:
        raise ValueError("TensorScatter: axis must not be 0, the batch dimension")
    if mode not in ("linear", "circular"):
        raise ValueError(f"TensorScatter: unknown mode {mode!r}")
    present = xp.asarray(past_cache, copy=True)
    size, length = past_cache.shape[axis], update.shape[axis]
    starts = [0] * past_cache.shape[0] if write_indices is None else write_indices.tolist()
    for sample, start in enumerate(starts):
        start = start % size if mode == "circular" and size else start
        fits = min(length, size - start)
        if start < 0:
            raise Refusal(f"TensorScatter: write_indices[{sample}] = {start} is negative", FAIL)
        if length > size:
            raise Refusal(
                f"TensorScatter: update sequence_length ({length}) exceeds max_sequence_length ({size})", FAIL
            )
        if fits < length and mode == "linear":
            raise Refusal(
                f"TensorScatter linear mode: write_indices[{sample}] + sequence_length ({start} + {length}) exceeds "
                f"max_sequence_length ({size})",
                FAIL,
            )
        cache, new = present[along(0, sample)], update[along(0, sample)]
        cache[along(axis - 1, slice(start, start + fits))] = new[along(axis - 1, slice(fits))]
        cache[along(axis - 1, slice(length - fits))] = new[along(axis - 1, slice(fits, length))]
    return present
