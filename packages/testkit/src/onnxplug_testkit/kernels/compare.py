"""One result against what is expected: shape, type, special values, and the error in units of what the operator is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import SparseTensor
from onnxplug_testkit.check import fail
from onnxplug_testkit.kernels.precision import Precision
from onnxplug_testkit.kernels.sparse import places, refilled

SELDOM = 8
"""Of so many elements one may be rounded to the other side, where that is rare."""


_TRUTHS = {"true": 1, "false": 0}


def compare(got: Any, expected: Any, rule: Precision, *, magnitude: Any = None, slack: float = 1) -> float:
    """The worst error in ULP (of the expected value, of the sum or of the scale, by the rule's kind); CheckFailed when the rule is
    broken. ``magnitude``: see ``Oracle.magnitude``. ``slack`` widens the bound, for an oracle that rounds more than once."""
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            fail("kernels.values", f"a list of {len(expected)} is expected, {got!r} given")
        return max((compare(g, e, rule, slack=slack) for g, e in zip(got, expected, strict=True)), default=0.0)
    if isinstance(expected, dict) or expected is None:
        if not _same(got, expected):
            fail("kernels.values", f"{expected!r} is expected, {got!r} given")
        return 0.0
    given, wanted = np.asarray(got), np.asarray(expected)
    if _kind(given) != _kind(wanted):
        fail("kernels.dtype", f"{wanted.dtype} is expected, {given.dtype} given")
    if given.dtype.kind in "UST":
        fail("kernels.dtype", f"strings are given as {given.dtype}; arrays of text hold objects of type str")
    if given.shape != wanted.shape:
        fail("kernels.shape", f"shape {wanted.shape} is expected, {given.shape} given")
    if rule.kind == "random" or not wanted.size:
        return 0.0
    if is_floating(wanted.dtype) or wanted.dtype.kind == "c":
        return _floats(given, wanted, rule, magnitude, slack)
    if wanted.dtype.kind in "OUST":
        for a, b in zip(map(str, given.ravel()), map(str, wanted.ravel()), strict=True):
            if a != b and not (rule.numeric and _spell_alike(a, b)):
                fail("kernels.values", f"{a!r} is given, {b!r} expected")
        return 0.0
    if wanted.dtype == np.bool_:
        given, wanted = given.view(np.uint8), wanted.view(np.uint8)
        if given.max() > 1 and not rule.bits:
            fail("kernels.values", "a truth value is held as a byte that is neither 0 nor 1")
        given, wanted = given != 0, wanted != 0
    return _integers(given, wanted, rule)


def is_floating(dtype: np.dtype) -> bool:
    """Floating types of every width, those of ml_dtypes included."""
    return dtype.kind == "f" or "float" in dtype.name


def _kind(array: np.ndarray) -> str:
    return "string" if array.dtype.kind in "OUST" else array.dtype.name


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(
            np.allclose(a[k], b[k], rtol=1e-5) if not isinstance(b[k], str) else a[k] == b[k] for k in b
        )
    return bool(a == b)


def _spell_alike(a: str, b: str) -> bool:
    try:
        x, y = (float(_TRUTHS.get(text.lower(), text)) for text in (a, b))
        return bool(np.isclose(x, y, rtol=1e-3, equal_nan=True))
    except ValueError:
        return False


def _integers(given: np.ndarray, wanted: np.ndarray, rule: Precision) -> float:
    difference = (
        np.abs(given.astype(np.float64) - wanted.astype(np.float64)) if rule.step else (given != wanted).astype(float)
    )
    worst = float(difference.max())
    off = np.count_nonzero(difference)
    if rule.seldom and off > max(1, difference.size // SELDOM):
        _differ(
            "kernels.values",
            given,
            wanted,
            int(difference.argmax()),
            f"{off} of {difference.size} elements are a step off",
        )
    if worst > rule.step:
        _differ("kernels.values", given, wanted, int(difference.argmax()), f"{worst:g} steps off")
    return worst


def _floats(given: np.ndarray, wanted: np.ndarray, rule: Precision, magnitude: Any, slack: float) -> float:
    if wanted.dtype.kind == "c":
        half = np.dtype(np.float32 if wanted.dtype == np.complex64 else np.float64)
        return max(
            _floats(part(given).astype(half), part(wanted).astype(half), rule, magnitude, slack)
            for part in (np.real, np.imag)
        )
    a, b = given.astype(np.float64), wanted.astype(np.float64)
    odd = ~np.isfinite(b)
    unlike = odd & ~((np.isnan(a) & np.isnan(b)) | (a == b)) | (~odd & ~np.isfinite(a))
    if unlike.any():
        _differ("kernels.special_values", given, wanted, int(unlike.argmax()), "NaN and infinities must agree")
    if rule.zeros and rule.kind in ("exact", "rounded"):
        flipped = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
        if flipped.any():
            _differ("kernels.signed_zero", given, wanted, int(flipped.argmax()), "the sign of zero is lost")
    a, b = np.where(odd, 0, a), np.where(odd, 0, b)
    unit = _unit(b, wanted.dtype, rule, magnitude)
    error = np.where(a == b, 0, np.abs(a - b) / unit)
    worst = float(error.max())
    if worst > rule.ulp * slack:
        _differ(
            "kernels.values",
            given,
            wanted,
            int(error.argmax()),
            f"{worst:.3g} ULP off, {rule.kind} allows {rule.ulp * slack:g}",
        )
    return worst


def _unit(wanted: np.ndarray, dtype: np.dtype, rule: Precision, magnitude: Any) -> np.ndarray:
    """One ULP at each element."""
    dtype = np.dtype(np.float32) if rule.single and dtype == np.float64 else dtype
    eps, least = ulp_of(dtype)
    if rule.kind == "scale":
        top = max(float(np.abs(wanted).max()), float(magnitude) if rule.of_inputs and magnitude is not None else 0.0)
        return np.full(wanted.shape, max(top * eps, rule.least * eps, least))
    own = ulps(wanted, dtype)
    if rule.kind == "sum" and magnitude is not None:
        bound = np.nan_to_num(np.asarray(magnitude).astype(np.float64), nan=np.inf)
        own = np.maximum(own, np.abs(bound) * eps)
    return own


def ulps(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The distance from each value to its neighbour in ``dtype``."""
    eps, least = ulp_of(dtype)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.abs(values)))
    unit: np.ndarray = np.maximum(np.exp2(np.where(values == 0, -2000, exponent)) * eps, least)
    return unit


def ulp_of(dtype: np.dtype) -> tuple[float, float]:
    """Machine epsilon and smallest positive value of a floating type."""
    import ml_dtypes

    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.eps), float(info.smallest_subnormal)


def _differ(check: str, given: np.ndarray, wanted: np.ndarray, flat: int, text: str) -> None:
    at = tuple(int(i) for i in np.unravel_index(flat, wanted.shape))
    fail(
        check,
        f"element {list(at)} of {wanted.dtype}{list(wanted.shape)} is {given[at]!r}, expected {wanted[at]!r}: {text}",
    )


def snapshot(values: Sequence[Any]) -> list[Any]:
    """Deep copies of feeds or results, to be compared later by ``unchanged``."""
    return [_copied(v) for v in values]


def unchanged(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether values have the same bits as in a snapshot."""
    return all(_identical(a, b) for a, b in zip(before, after, strict=True))


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, SparseTensor):
        return refilled(value, value.values().copy())
    return value.copy() if isinstance(value, np.ndarray | dict) else value


def _identical(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_identical, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return all(map(_identical, (a.values(), *places(a)), (b.values(), *places(b))))
    return bool(a == b)
