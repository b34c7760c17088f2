"""The different elements of a vector, and of slices. ``numpy.unique`` finds them too, but imports masked arrays, which takes 10 ms, and
sorts with the one algorithm that has no vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.precision import widen

Array = np.ndarray[Any, Any]

FEW = 512
"""Elements up to which NumPy's order takes less time than to make, sort and part numbers that carry their places."""


def distinct(values: Array) -> tuple[Array, Array]:
    """The elements of a vector, (n,) without NaN, in ascending order and once each, and where each stands first."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = _begins(ordered)
    return ordered[begins], order[begins]


def distinct_values(values: Array) -> Array:
    """The elements of a vector of numbers in ascending order and once each, NaN last; a zero has the sign of the first one."""
    ordered = np.sort(widen(np, values))
    found: Array = ordered[_begins(ordered)].astype(values.dtype, copy=False)
    if found.dtype.kind == "f":
        zero = found.searchsorted(0)
        if zero < len(found) and found[zero] == 0:
            found[zero] = values[(values == 0).argmax()]
    return found


def occurrences(values: Array) -> tuple[Array, Array, Array]:
    """Of a vector's different elements, in ascending order and NaN last: where each stands first; which one each element is; and how
    often each occurs. All int64."""
    if not len(values):
        return (np.empty(0, np.int64),) * 3
    keys = values.astype(object) if is_string(values) else widen(np, values)
    narrow = _narrow(keys) if len(keys) > FEW else None
    if narrow is not None:
        order, ordered = _sorted(narrow)
    else:
        order = keys.argsort(kind="stable")
        ordered = keys[order]
    begins = _begins(ordered)
    starts = begins.nonzero()[0]
    inverse = np.empty(len(order), np.int64)
    inverse[order] = begins.cumsum() - 1
    counts = np.empty(len(starts), np.int64)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = len(order) - starts[-1]
    return order[starts], inverse, counts


def as_they_come(first: Array) -> Array:
    """The order that sorts different places of a vector."""
    return _sorted(first)[0] if len(first) else first


def _sorted(narrow: Array) -> tuple[Array, Array]:
    """The stable order of whole numbers of 32 bits (int64, not empty), and the numbers in it: both are sorted as one number, which
    NumPy does with vectors as it sorts no order."""
    together = (narrow << 32) | np.arange(len(narrow))
    together.sort()
    return together & 0xFFFFFFFF, together >> 32


def _narrow(keys: Array) -> Array | None:
    """Whole numbers of 32 bits, int64, that compare as these elements do, NaN last; None where there are none such."""
    kind, size = keys.dtype.kind, keys.itemsize
    if kind == "f" and size == 4:
        unknown = keys != keys
        plain = np.where(unknown, np.float32(np.nan), keys) if unknown.any() else keys
        bits = (plain + np.float32(0)).view(np.int32)  # -0 becomes 0
        return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    if kind not in "iub":
        return None
    if size < 4 or keys.dtype == np.int32:
        return keys.astype(np.int64)
    least, most = int(keys.min()), int(keys.max())
    return (keys - keys.dtype.type(least)).astype(np.int64) if most - least < 2**31 else None


def row_keys(rows: Array) -> Array:
    """A number for each row (int64), those of equal rows the same, in the order of rows compared element by element."""
    flat = rows.reshape(len(rows), -1) if rows.size else np.zeros((len(rows), 1), np.int64)
    digits = _narrow(flat) if flat.size and flat.dtype.kind in "iub" else None
    least, most = (0, 2**31) if digits is None else (int(digits.min()), int(digits.max()))
    if digits is None or most - least >= 2**31:
        digits, base = _ranked(flat)
    else:
        digits, base = digits - least, most - least + 1
    while digits.shape[1] > 1:
        together = min(digits.shape[1], max(2, 62 // base.bit_length()))  # so many digits to the base make an int64
        places = base ** np.arange(together - 1, -1, -1)
        short = -digits.shape[1] % together
        padded = np.pad(digits, ((0, 0), (0, short))) if short else digits
        digits = padded.reshape(len(rows), -1, together) @ places
        if digits.shape[1] > 1:
            digits, base = _ranked(digits)
    return digits.reshape(-1)


def _ranked(flat: Array) -> tuple[Array, int]:
    """Which of the different elements each one is, and how many there are."""
    _, inverse, counts = occurrences(flat.reshape(-1))
    return inverse.reshape(flat.shape), max(1, len(counts))


def _begins(ordered: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where an element of a sorted vector is not the one before it; NaN equals NaN."""
    begins = np.empty(len(ordered), bool)  # ``np.ones`` takes eight times as long
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    if ordered.dtype.kind == "f" and len(ordered) and ordered[-1] != ordered[-1]:
        begins[int(ordered.searchsorted(np.nan)) + 1 :] = False
    return begins
