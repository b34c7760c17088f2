"""Shapes of values, and arrays whose rows are the trips of a loop: scan inputs and outputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from onnxplug.contract.types import TensorType, numpy_dtype
from onnxplug.graph.value import Value

_SHAPE = attrgetter("shape")


def shapes_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """The shape of each value, None of what has none."""
    try:
        return tuple(map(_SHAPE, values))
    except AttributeError:
        return tuple([getattr(x, "shape", None) for x in values])


def lengthened(rows: np.ndarray, count: int) -> np.ndarray:
    """``rows`` with zeros, or empty strings, after them."""
    blank = np.full((count - rows.shape[0], *rows.shape[1:]), "" if rows.dtype.kind in "OU" else 0, rows.dtype)
    return np.concatenate([rows, blank])


def axis_moved(array: np.ndarray, source: int, target: int) -> np.ndarray:
    """The array with one axis elsewhere."""
    return array if source == target else array.transpose(_order(array.ndim, source, target))


@functools.lru_cache(maxsize=256)
def _order(rank: int, source: int, target: int) -> tuple[int, ...]:
    """Which axis is where then: the shape of an array whose axis ``n`` is of size ``n`` tells."""
    return np.moveaxis(np.empty(range(rank)), source, target).shape


def dense(values: Sequence[Any]) -> list[Any]:
    """The values with arrays row-major and without gaps."""
    return [v if not isinstance(v, np.ndarray) or v.flags.c_contiguous else v.copy(order="C") for v in values]


def of_dense_rows(array: np.ndarray) -> np.ndarray:
    """The array with each row row-major and without gaps."""
    return array if array.flags.c_contiguous or array[0, ...].flags.c_contiguous else array.copy(order="C")


NoRows = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of rows of which there are none."""


def no_rows(value: Value) -> NoRows:
    """How rows of a value would be, as far as its type tells."""
    type_ = value.type
    element, shape = (type_.element, type_.shape) if isinstance(type_, TensorType) else ("float", None)
    return (0, *(d if isinstance(d, int) else 0 for d in shape or ())), numpy_dtype(element)


def stack_rows(columns: Sequence[list[Any]], without: Sequence[NoRows]) -> list[np.ndarray]:
    """Rows as arrays; ``without`` says what each is without rows."""
    if not columns or not columns[0]:
        return [np.empty(shape, dtype) for shape, dtype in without]
    return [np.stack(rows) for rows in columns]
