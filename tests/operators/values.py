"""Random contents of tensors, by element type."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug.contract.types import numpy_dtype

HALVES = ("float16", "bfloat16")
FLOATS = ("float", "double", *HALVES)
WORDS = ("", "a", "b", "abc", "Hello", "mixed Case", "ünïcødé", "42", "-1.5", "the", "x y z", "日本")


def element_name(type_: str) -> str:
    """``float`` for ``tensor(float)``."""
    return type_[type_.rindex("(") + 1 : type_.index(")")] if "(" in type_ else type_


def is_float(element: str) -> bool:
    """Floating types of every width."""
    return "float" in element or element == "double"


@functools.cache
def limits(element: str) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    info = ml_dtypes.iinfo(numpy_dtype(element))  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def random(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    element: str,
    low: float | None = None,
    high: float | None = None,
    *,
    special: bool = False,
) -> np.ndarray:
    """An array of ``element`` between the bounds (default: small numbers)."""
    dtype = numpy_dtype(element)
    if element == "string":
        return np.array([WORDS[i] for i in rng.integers(0, len(WORDS), int(np.prod(shape)))], object).reshape(shape)
    if element == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if is_float(element) or element.startswith("complex"):
        low, high = -4 if low is None else low, 4 if high is None else high
        found: Any = rng.uniform(low, high, shape)
        if element.startswith("complex"):
            found = found + 1j * rng.uniform(low, high, shape)
        if element == "float8e8m0":
            found = np.exp2(rng.integers(-3, 4, shape))  # powers of two only
        with np.errstate(all="ignore"):
            array = np.asarray(found).astype(dtype)
        return _sprinkled(rng, array, _special_floats(element)) if special else array
    least, greatest = limits(element)
    low = max(least, -8 if low is None else int(low))
    high = min(greatest, 8 if high is None else int(high))
    array = rng.integers(low, high + 1, shape, np.int64 if low < 0 else np.uint64).astype(dtype)
    return _sprinkled(rng, array, (0, 1, least, greatest, greatest - 1)) if special else array


def _special_floats(element: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, -2.5)
    return (*found, 1e30, -1e-30, 3e-39) if element in ("float", "double", "bfloat16") else found


def _sprinkled(rng: np.random.Generator, array: np.ndarray, options: tuple[Any, ...]) -> np.ndarray:
    """``array`` with some elements replaced."""
    flat = array.reshape(-1)
    for index in np.flatnonzero(rng.random(flat.size) < 0.3):
        with np.errstate(all="ignore"):
            flat[index] = np.asarray(options[rng.integers(len(options))]).astype(array.dtype)
    return flat.reshape(array.shape)
