"""The different elements of a vector. ``numpy.unique`` finds them too, but imports masked arrays, which takes 10 ms, and takes
twice as long for few."""

from __future__ import annotations

from typing import Any

import numpy as np


def distinct(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The elements of a vector, (n,) without NaN, in ascending order and once each, and where each stands first."""
    order, ordered, begins = _sorted(values)
    return ordered[begins], order[begins]


def occurrences(
    values: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Of a vector, (n,), with m different elements: where each of these, ascending, stands first (m,), which of them each element is
    (n,), and how often each occurs (m,), all int64. NaN is one element and the last."""
    order, ordered, begins = _sorted(values)
    if values.dtype.kind == "f" and len(values) and ordered[-1] != ordered[-1]:
        begins[ordered.searchsorted(ordered[-1]) + 1 :] = False
    (starts,) = begins.nonzero()
    inverse, counts = np.empty(len(values), np.int64), np.empty(len(starts), np.int64)
    inverse[order] = begins.cumsum() - 1
    counts[:-1], counts[-1:] = starts[1:], len(values)
    counts -= starts
    return order[starts].astype(np.int64, copy=False), inverse, counts


def _sorted(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Places in ascending order of what stands there, the elements in this order, and whether each differs from the one before."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    begins = np.empty(len(ordered), bool)  # ``np.ones`` takes eight times as long
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return order, ordered, begins
