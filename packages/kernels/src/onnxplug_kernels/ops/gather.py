"""Reading by index: Gather and its relatives, and what yields indices (OneHot, NonZero, Unique, TopK)."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.distinct import as_they_come, distinct_values, occurrences, row_keys
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.ops.join import along
from onnxplug_kernels.refusals import (
    FAIL,
    INVALID_ARGUMENT,
    Refusal,
    braced,
    out_of_bounds,
    outside,
    require_axis,
    watched,
)

PARTED = 1500
"""Elements above which parting NumPy's lines takes less than sorting them; of fewer its calls take longer."""
SEARCHED = 256
"""Elements above which NumPy finds what is not zero in less time if they are a line of truth values."""


@op("Gather", 1, 13)
def gather(xp: Any, data: Any, indices: Any, *, axis: int = 0) -> Any:
    """The slices of ``data`` along ``axis`` that ``indices`` (of any rank) name; negative ones count from the end."""
    axis = require_axis(axis, data.ndim)
    size = data.shape[axis]
    # Where nothing is taken, NumPy looks at no index.
    if 0 in data.shape and isinstance(indices, np.ndarray) and ((indices < -size) | (indices >= size)).any():
        raise out_of_bounds(indices, size)
    watched(xp, indices, -size, size)
    taken = xp.take(data, xp.reshape(indices, (-1,)), axis=axis)
    return xp.reshape(taken, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@op("GatherElements", 11, 13)
def gather_elements(xp: Any, data: Any, indices: Any, *, axis: int = 0) -> Any:
    """For each of ``indices``, the element of ``data`` at its own position with ``axis`` replaced by its value."""
    axis = require_axis(axis, data.ndim)
    if indices.ndim != data.ndim:
        raise Refusal(
            "GatherElements op: Rank of input 'data' needs to be equal to rank of input 'indices'", INVALID_ARGUMENT
        )
    beyond = [m for i, (n, m) in enumerate(zip(data.shape, indices.shape, strict=True)) if i != axis and m > n]
    if beyond:
        raise Refusal(
            "GatherElements op: 'indices' shape should have values within bounds of 'data' shape. Invalid value in indices shape "
            f"is: {beyond[0]}",
            INVALID_ARGUMENT,
        )
    watched(xp, indices, -data.shape[axis], data.shape[axis], FAIL)
    if data.ndim == 1:
        return xp.take(data, indices, axis=0)
    # Indices may cover less than data along the other axes; take_along_axis would broadcast instead.
    covered = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
    return xp.take_along_axis(data[covered], indices, axis=axis)


@op("GatherND", 11, 13)
def gather_nd(xp: Any, data: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """The slices of ``data`` that the index tuples along the last axis of ``indices`` name, within each batch."""
    depth = indices.shape[-1]
    inner = data.shape[batch_dims : batch_dims + depth]
    if depth > data.ndim - batch_dims:
        raise Refusal("last dimension of indices must not be larger than rank of input tensor")
    if tuple(indices.shape[:batch_dims]) != tuple(data.shape[:batch_dims]):
        raise Refusal(
            f"GatherND: indices {braced(indices.shape)} and data {braced(data.shape)} differ in their first {batch_dims} dimensions"
        )
    if is_string(data) and not batch_dims and depth and indices.ndim > 1:
        with suppress(IndexError):  # which is told as that of numbers, below
            return data[tuple(indices[..., i] for i in range(depth))]
    count, block = math.prod(indices.shape[:batch_dims]), math.prod(inner)
    tuples = xp.reshape(flat_positions(xp, indices, inner), (count, math.prod(indices.shape[batch_dims:-1])))
    starts = xp.reshape(xp.arange(count, dtype=xp.int64), (-1, 1)) * block
    rest = data.shape[batch_dims + depth :]
    taken = xp.take(xp.reshape(data, (count * block, *rest)), xp.reshape(tuples + starts, (-1,)), axis=0)
    return xp.reshape(taken, (*indices.shape[:-1], *rest))


def flat_positions(xp: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """Row-major positions in an array of ``shape`` of the index tuples along the last axis of ``indices``."""
    position = xp.zeros(indices.shape[:-1], dtype=xp.int64)
    for i, n in enumerate(shape):
        index = indices[..., i]
        # Joined into one position, a bad index would read a wrong element.
        watched(xp, index, -n, n)
        if isinstance(index, np.ndarray) and index.size and not -n <= index.min() <= index.max() < n:
            raise Refusal(f"invalid index found, index = {outside(index, n)}")
        position = position * n + xp.where(index < 0, index + n, index)
    return position


@op("OneHot", 9, host_inputs=(1,))
def one_hot_v9(xp: Any, indices: Any, depth: np.ndarray, values: Any, *, axis: int = -1) -> Any:
    """``values[1]`` where the index along the new ``axis`` equals that of ``indices``, ``values[0]`` elsewhere."""
    return _one_hot(xp, xp.astype(indices, xp.int64), int(depth.item()), values, axis)


@op("OneHot", 11, 28, host_inputs=(1,))
def one_hot(xp: Any, indices: Any, depth: np.ndarray, values: Any, *, axis: int = -1) -> Any:
    """As version 9, with negative ``indices`` counted from ``depth``."""
    index = xp.astype(indices, xp.int64)
    count = int(depth.item())
    return _one_hot(xp, xp.where(index < 0, index + count, index), count, values, axis)


def _one_hot(xp: Any, index: Any, depth: int, values: Any, axis: int) -> Any:
    if depth < 1:
        raise Refusal("Depth is negative.")
    if tuple(values.shape) != (2,):
        raise ValueError(f"OneHot: values {tuple(values.shape)} are not two")
    axis = require_axis(axis, index.ndim + 1)
    classes = xp.reshape(xp.arange(depth, dtype=xp.int64), (-1,) + (1,) * (index.ndim - axis))
    return xp.where(xp.expand_dims(index, axis=axis) == classes, values[1:2], values[0:1])


@op("NonZero", 9, 13)
def non_zero(xp: Any, x: Any) -> Any:
    """The indices of elements that are not zero, false or empty, one column each; those of a scalar have height 0."""
    if x.ndim == 0:
        return xp.zeros((0, xp.nonzero(xp.reshape(x, (1,)))[0].shape[0]), dtype=xp.int64)
    if is_string(x):
        x = x.astype(object)
    elif x.ndim > 1 and isinstance(x, np.ndarray) and x.size > SEARCHED:
        return _places((x.reshape(-1) != 0).nonzero()[0], x.shape)
    found = xp.nonzero(x)
    if x.ndim == 1:
        return found[0][None]
    return np.array(found) if isinstance(x, np.ndarray) else xp.stack(found)


def _places(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The indices (N, n) of places (n,) in the elements of an array of that shape (N of them) in row-major order."""
    places = np.empty((len(shape), len(flat)), np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        above = flat // shape[axis]
        np.subtract(flat, above * shape[axis], out=places[axis])
        flat = above
    places[0] = flat
    return places


@op("Unique", 11, 28, portable=False)
def unique(xp: Any, x: Any, *, axis: int | None = None, sorted: int = 1, n_outputs: int = 4) -> tuple[Any, ...]:
    """The distinct elements, or slices along ``axis``, with first positions, inverse positions and counts.

    They are ascending, or in the order of first occurrence when ``sorted`` is 0.
    """
    axis = None if axis is None else require_axis(axis, x.ndim)
    if x.ndim == 1:
        axis = None  # its slices are its elements
    keys = row_keys(np.moveaxis(x, axis, 0)) if axis is not None else x.reshape(-1)
    if n_outputs == 1 and sorted and axis is None and not is_string(x):
        return (distinct_values(keys),)
    first, inverse, counts = occurrences(keys)
    if not sorted:
        order = as_they_come(first)
        first, counts = first[order], counts[order]
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        inverse = places[inverse]
    return x.take(first, axis or 0) if axis is not None else x.reshape(-1)[first], first, inverse, counts


@op("TopK", 1)
def top_k_by_attribute(xp: Any, x: Any, *, k: int, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` greatest elements along ``axis`` in descending order, and their indices."""
    return _top_k(xp, x, k, axis, largest=True)


@op("TopK", 10, 24, host_inputs=(1,))
def top_k(xp: Any, x: Any, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Any, Any]:
    """The ``k`` greatest or smallest elements along ``axis``, best first, and their indices; NaN tops all."""
    return _top_k(xp, x, int(k.item()), axis, largest=bool(largest))


def _top_k(xp: Any, x: Any, k: int, axis: int, *, largest: bool) -> tuple[Any, Any]:
    axis = require_axis(axis, x.ndim)
    n = x.shape[axis]
    if k < 0:
        raise Refusal("value of k must not be negative")
    if k > n:
        raise Refusal(f"k argument [{k}] should not be greater than specified axis dim value [{n}]")
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiu" and 0 < 8 * k <= n and x.size > PARTED:
        turned = x.swapaxes(axis, -1)
        lines = np.ascontiguousarray(turned).reshape(-1, n)
        if (best := _parted(lines, k, largest=largest)) is not None:
            made = (lines.reshape(-1)[best], best % n)
            values, places = (v.reshape(*turned.shape[:-1], k).swapaxes(axis, -1) for v in made)
            return values, places
    best = _sorted(xp, x, axis, largest=largest)[along(axis, slice(k))]
    return xp.take_along_axis(x, best, axis=axis), best


def _sorted(xp: Any, x: Any, axis: int, *, largest: bool) -> Any:
    """The places of all elements along an axis, best first; of equal ones the first comes first."""
    if not largest:
        return xp.argsort(x, axis=axis, stable=True)
    # Reversed before and after an ascending stable sort, equal elements keep their order.
    ascending = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
    return x.shape[axis] - 1 - xp.flip(ascending, axis=axis)


def _parted(x: np.ndarray, k: int, *, largest: bool) -> np.ndarray | None:
    """The places in ``x`` (M, N), flattened, of the best ``k`` of each line, best first (M, k): only those that are not worse than a
    line's ``k``-th are sorted. None where a ``k``-th is NaN, which compares with nothing."""
    place = x.shape[1] - k if largest else k - 1
    bound = np.partition(x, place, axis=1)[:, place : place + 1]
    near = ~(x < bound) if largest else x <= bound  # NaN is among the largest
    if np.count_nonzero(near) != k * len(x):
        better = ~(x <= bound) if largest else x < bound
        tied = near & ~better
        room = k - np.count_nonzero(better, axis=1, keepdims=True)
        near = better | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room))
        if np.count_nonzero(near) != k * len(x):
            return None
    places = np.flatnonzero(near)
    order = _sorted(np, x.reshape(-1)[places].reshape(-1, k), 1, largest=largest)
    best: np.ndarray = places[order + k * np.arange(len(x))[:, None]]
    return best
