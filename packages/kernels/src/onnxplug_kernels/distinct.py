"""The different elements of a vector. ``numpy.unique`` finds them too, but imports masked arrays, which takes 10 ms."""

from __future__ import annotations

from typing import Any

import numpy as np


def distinct(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The elements of a vector, (n,) without NaN, in ascending order and once each, and where each stands first."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return ordered[begins], order[begins]
