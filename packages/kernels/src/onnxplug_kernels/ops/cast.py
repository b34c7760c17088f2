"""Conversions between element types."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import (
    FLOAT8,
    SUB_BYTE_INTEGERS,
    ElementType,
    dtype_in,
    element_type,
    integer_range,
    is_string,
    numpy_dtype,
)
from onnxplug_kernels.refusals import Refusal

# Exponent bias and greatest exponent code of float8e8m0; the code after it is NaN.
_E8M0_BIAS, _E8M0_GREATEST, _E8M0_NAN = 127, 254, 255


@op("Cast", 1)
def cast_to_name(xp: Any, x: Any, *, to: str) -> Any:
    """``x`` as the element type of the given name ("FLOAT", "INT64")."""
    return cast_to(xp, x, ElementType[to.upper()])


@op("Cast", 6, 28)
def cast(xp: Any, x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """``x`` as element type ``to``; ``saturate`` and ``round_mode`` rule float8 results (ONNX, Cast-28)."""
    return cast_to(xp, x, to, saturate=bool(saturate), round_mode=round_mode)


@op("CastLike", 15, 25)
def cast_like(xp: Any, x: Any, target_type: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """``x`` as the element type of ``target_type``."""
    if isinstance(target_type, np.ndarray):
        return cast_to(xp, x, element_type(target_type.dtype), saturate=bool(saturate), round_mode=round_mode)
    return xp.astype(x, target_type.dtype)


@op("BitCast", 26, portable=False)
def bit_cast(xp: Any, x: np.ndarray, *, to: int) -> np.ndarray:
    """The bits of ``x`` read as element type ``to``, which must be as wide."""
    source, target = element_type(x.dtype), numpy_dtype(to)
    if ElementType.STRING in (source, to) or _bits(source) != _bits(to):
        raise ValueError(f"BitCast from {source.name} to {ElementType(to).name}: not numbers of the same width")
    if to == ElementType.BOOL:
        return np.not_equal(x.view(np.uint8), 0)
    return x.view(target)


def _bits(code: int) -> int:
    packed = {ElementType.FLOAT4E2M1: 4, ElementType.FLOAT6E2M3: 6, ElementType.FLOAT6E3M2: 6, **SUB_BYTE_INTEGERS}
    return packed.get(ElementType(code), 8 * numpy_dtype(code).itemsize)


def cast_to(xp: Any, x: Any, to: int, *, saturate: bool = True, round_mode: str = "up") -> Any:
    """``x`` as element type ``to``, converted as Cast does. Strings and ml_dtypes' types need NumPy arrays."""
    if is_string(x):
        return _from_strings(x, to, saturate, round_mode)
    if to == ElementType.STRING:
        return _to_strings(x)
    if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
        dtype = numpy_dtype(to)
        if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 4):
            return x.astype(dtype)  # warns of nothing
    with np.errstate(over="ignore", invalid="ignore"):
        if to in FLOAT8:
            return to_float8(x, to, saturate=saturate)
        if to == ElementType.FLOAT8E8M0:
            return to_float8e8m0(x, saturate=saturate, round_mode=round_mode)
        dtype = dtype_in(xp, to)
        return xp.astype(_sticky(x) if _is_narrow(dtype) else _builtin(x), dtype)


def _builtin(x: Any) -> Any:
    """``x`` in a type of NumPy that holds its values exactly: ml_dtypes' types do not all convert among themselves."""
    if not isinstance(x, np.ndarray) or x.dtype.isbuiltin == 1:
        return x
    return x.astype(np.float32 if integer_range(element_type(x.dtype)) is None else np.int32)


def _is_narrow(dtype: Any) -> bool:
    """Whether it is one of ml_dtypes' floats, to which NumPy converts by way of float32."""
    return isinstance(dtype, np.dtype) and dtype.isbuiltin != 1 and integer_range(element_type(dtype)) is None


def _sticky(x: Any) -> Any:
    """``x`` in float32 at most, rounded to odd: rounded once more, to fewer bits, it is what ``x`` would be rounded to at once (Boldo and
    Melquiond, 2008, doi 10.1109/TC.2007.70819)."""
    x = _builtin(x)
    if not isinstance(x, np.ndarray) or x.dtype.itemsize < 4 or x.dtype == np.float32:
        return x
    wide = _exact(x)
    single = wide.astype(np.float32)
    inexact = (single.astype(np.float64) != wide) & ~np.isnan(wide) & ~np.isinf(wide)
    beyond = np.abs(single) > np.abs(wide)
    odd = np.where(beyond, np.nextafter(single, np.float32(0)), single).view(np.uint32) | np.uint32(1)
    return np.where(inexact, odd.view(np.float32), single)


def _exact(x: np.ndarray) -> np.ndarray:
    """``x`` in float64; integers of more than 53 bits rounded to odd, as in ``_sticky``."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        lost = x & x.dtype.type(0xFFF)
        large = np.abs(x.astype(np.float64)) >= 2.0**53
        x = np.where(large & (lost != 0), x - lost + x.dtype.type(0x800), x)
    return x.astype(np.float64)


def to_float8(x: np.ndarray, to: int, *, saturate: bool) -> np.ndarray:
    """``x`` rounded to even in a float8 type; what is out of range becomes its greatest value, else NaN or infinity."""
    dtype = numpy_dtype(to)
    x = _sticky(x)
    if saturate:
        import ml_dtypes

        limit = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        x = np.clip(x.astype(np.float32), -limit, limit)
    return np.asarray(x).astype(dtype)


def to_float8e8m0(x: np.ndarray, *, saturate: bool, round_mode: str) -> np.ndarray:
    """The magnitude of ``x`` as a power of two from 2**-127 to 2**127 (zero is out of range, as is infinity)."""
    fraction, exponent = np.frexp(np.abs(_exact(_builtin(x))))
    # fraction is in [0.5, 1): the powers around x are 2**(exponent - 1) and 2**exponent.
    threshold = {"up": fraction > 0.5, "down": np.zeros(x.shape, np.bool_), "nearest": fraction >= 0.75}
    if round_mode not in threshold:
        raise ValueError(f"unknown round_mode {round_mode!r}")
    code = exponent.astype(np.int64) - 1 + threshold[round_mode] + _E8M0_BIAS
    code = np.where(fraction == 0, -1, np.where(np.isinf(fraction), _E8M0_NAN, code))
    if saturate:
        code = np.clip(code, 0, _E8M0_GREATEST)
    outside = np.isnan(fraction) | (code < 0) | (code > _E8M0_GREATEST)
    return np.where(outside, _E8M0_NAN, code).astype(np.uint8).view(numpy_dtype(ElementType.FLOAT8E8M0))


def _from_strings(x: np.ndarray, to: int, saturate: bool, round_mode: str) -> Any:
    if to == ElementType.STRING:
        return x.astype(object)
    words = x.reshape(-1).tolist()
    require_plain(words)
    try:
        values = _numbers(words, to)
    except ValueError as error:
        raise Refusal(str(error)) from None
    if x.ndim != 1:
        values = values.reshape(x.shape)
    if element_type(values.dtype) == to:
        return values
    return cast_to(np, values, to, saturate=saturate, round_mode=round_mode)


def _numbers(words: list[str], to: int) -> np.ndarray:
    if to == ElementType.BOOL:
        return np.array([_truth(w) for w in words], np.bool_)
    if integer_range(to) is not None:
        return _integers(words)
    if to == ElementType.FLOAT:
        return np.array(array("f", map(float, words)))  # rounds without a word of what overflows
    return np.array(list(map(float, words)), np.float64)


def require_plain(words: Sequence[str]) -> None:
    """Refusal for a text that Python reads as a number and ONNX does not (Cast-25 has plain and scientific notation): digits of other
    scripts, and digits grouped by underscores."""
    together = "".join(words)
    if not together.isascii() or "_" in together:
        wrong = next(word for word in words if not word.isascii() or "_" in word)
        raise Refusal(f"could not convert string to a number: {wrong!r}")


def _integers(words: list[str]) -> np.ndarray:
    try:
        return np.array(list(map(int, words)), np.int64)
    except (ValueError, OverflowError):
        # Modulo 2**64 as in a cast between integers; the cast to the final type drops further bits.
        found = [_integer(w) for w in words]
        if wide := next((n for n in found if not -(2**63) <= n < 2**64), None):
            raise ValueError(f"{wide} has no place in 64 bits") from None
        return np.array([n % 2**64 for n in found], np.uint64)


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"'{word}' is no integer") from None
        return int(value)


def _truth(word: str) -> bool:
    named = {"true": True, "false": False}.get(word.strip().lower())
    return float(word) != 0 if named is None else named


def _to_strings(x: np.ndarray) -> np.ndarray:
    x = np.asarray(_builtin(x))
    if x.dtype.kind == "b":
        words = ["1" if each else "0" for each in x.reshape(-1).tolist()]
    elif x.dtype.kind in "iu":
        words = list(map(str, x.reshape(-1).tolist()))
    else:
        exact = np.float64 if x.dtype == np.float64 else np.float32
        values = x.reshape(-1).astype(exact)
        words = list(map("%.8g".__mod__, values.tolist()))
        again = np.array(array("d" if exact is np.float64 else "f", map(float, words)))
        for at in np.flatnonzero((again != values) | np.isinf(values)).tolist():
            words[at] = _decimal(float(values[at]), exact)
    made = np.array(words, object)
    return made if x.ndim == 1 else made.reshape(x.shape)


def _decimal(value: float, exact: type[np.floating[Any]]) -> str:
    """ONNX Runtime's text of a float (8 digits), with more digits where those would read back as another value."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "INF" if value > 0 else "-INF"
    texts = (f"{value:.{digits}g}" for digits in (8, 9, 15, 16, 17))
    return next(text for text in texts if exact(text) == value)
