"""Conversions between element types as Cast's text has them, worked out number by number: each result is the nearest of its type.

Types of up to 16 bits are looked up among the midpoints between their numbers, so that nothing is rounded twice on the way. Python compares
integers and floats exactly.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.kernels.compare import is_floating

CONVERTS = frozenset({"Cast", "CastLike"})
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_E8M0_BIAS, _E8M0_NAN = 127, 255
_FINITE = frozenset({"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"})
"""Types without infinities and NaN, of which Cast's text does not say what is out of range."""
_TIES = 16
"""Midpoints that are tried of one pair."""
_KEPT = 40
"""Leading bits of an integer that say how it is rounded to 24 or fewer, if the last of them tells whether others follow."""
Number = int | float


class Conversion:
    """A session of one such node, in the form oracles are called."""

    def __init__(self, made: onnx.ModelProto) -> None:
        graph, node = made.graph, made.graph.node[0]
        told = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self._input, self._saturate = node.input[0], bool(told.get("saturate", 1))
        self._mode = told.get("round_mode", b"up").decode()
        self._dtype = numpy_dtype(ELEMENT_NAMES[graph.output[0].type.tensor_type.elem_type])

    @staticmethod
    def takes(made: onnx.ModelProto) -> bool:
        """Whether the node converts real numbers or texts that it is fed."""
        node = made.graph.node[0]
        if node.domain or node.op_type not in CONVERTS or node.input[0] not in {v.name for v in made.graph.input}:
            return False
        codes = [v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output)]
        return not any(ELEMENT_NAMES.get(code, "complex").startswith("complex") for code in codes)

    def run(self, names: None, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, as a session gives them."""
        x = feeds[self._input]
        if x.dtype.hasobject and self._dtype.hasobject:
            return [x.astype(str).astype(object)]
        return [_converted(_numbers(x), self._dtype, self._saturate, self._mode).reshape(x.shape)]

    def admit(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """With what has no defined result replaced by something that has."""
        x = feeds[self._input]
        if self._dtype.hasobject:
            return dict(feeds)
        flat = [_admitted(number, x.dtype, self._dtype, self._mode == "up") for number in _numbers(x)]
        texts = [str(int(n)) if isinstance(n, float) and n.is_integer() else str(n) for n in flat]
        kept = np.array(texts, object) if x.dtype.hasobject else _array(flat, x.dtype)
        return {**feeds, self._input: kept.reshape(x.shape)}


def corners(rng: np.random.Generator, x: np.ndarray, target: np.dtype) -> np.ndarray:
    """An array like ``x`` of numbers at the edges of both types, and about midpoints between numbers of ``target``."""
    source, found = x.dtype, list[Any]()
    if source.hasobject:
        found = ["0", "1", "-7", "1000", "127"]
        found += ["3.14", "1e-5", "1E8", "INF", "+inf", "-INF", "NaN"] if is_floating(target) else []
        found += ["2147483647", "9223372036854775807", "-9223372036854775808"] if target.kind in "iu" else []
    elif (source.itemsize == 1 and source != np.int8 and source != np.uint8) or source == np.bool_:
        found = _all_of(source)
    elif is_floating(source):
        found = [0.0, -0.0, 1.0, -1.0, -0.7, 2.5, -2.5, 300.0, 6e4, 65519.0, 65520.0, -65536.0, 1e-30, -1e-30]
        found += [math.inf, -math.inf, math.nan, 2.0**31 - 128, 2.0**53 + 2, -(2.0**63), 2.0**63 - 2**39]
        about = _ties(rng, target)
        with np.errstate(over="ignore"):
            beside = np.array(about).astype(source)
        found += [*about, *np.nextafter(beside, source.type(np.inf)), *np.nextafter(beside, source.type(0))]
        found += [n * (1 + s * 2.0**-40) for n in about for s in (1, -1)] if source == np.float64 else []
    else:
        least, greatest = _limits(source)
        powers = [2**k + d for k in (3, 4, 7, 8, 15, 16, 24, 31, 32, 53, 63) for d in (-1, 0, 1)]
        found = [0, least, greatest, *powers, *(-n for n in powers), *rng.integers(least, greatest, 8, source).tolist()]
        found += [int(n) + d for n in _ties(rng, target) if math.isfinite(n) and n == int(n) for d in (-1, 0, 1)]
        found = [n for n in found if least <= n <= greatest]
    with np.errstate(all="ignore"):
        made = _array(found, source)
    return np.resize(rng.permutation(made), x.size).reshape(x.shape)


def _ties(rng: np.random.Generator, target: np.dtype) -> list[float]:
    """Some midpoints between numbers of a floating type, the last one, behind which it ends, among them."""
    if not is_floating(target) or target.itemsize > 4 or target == _E8M0:
        return []
    if target == np.float32:
        return [
            float((1 + rng.integers(0, 2**23) * 2.0**-23 + 2.0**-24) * 2.0**e) for e in rng.integers(-90, 90, _TIES)
        ]
    middles = _middles(target)
    picked = [middles[i] for i in rng.integers(0, len(middles), _TIES)]
    return [middles[-1], -middles[-1], middles[0], *(n if i % 2 else -n for i, n in enumerate(picked))]


def _all_of(dtype: np.dtype) -> list[Number]:
    """Every number of a type of one byte."""
    if dtype == np.bool_:
        return [0, 1]
    if not is_floating(dtype):
        least, greatest = _limits(dtype)
        return list(range(least, greatest + 1))
    bits = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(dtype.name, 8)
    found: list[Number] = np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float64).tolist()
    return found


def _numbers(x: np.ndarray) -> list[Number]:
    flat = x.reshape(-1)
    if x.dtype.hasobject:
        return [int(text) if text.lstrip("+-").isdigit() else float(text) for text in map(str, flat)]
    wide: np.ndarray = flat
    if x.dtype.kind not in "iu":
        wide = flat.astype(np.float64 if is_floating(x.dtype) else np.int64)
    found: list[Number] = wide.tolist()
    return found


def _array(numbers: Sequence[Any], dtype: np.dtype) -> np.ndarray:
    """Numbers that ``dtype`` has, in an array of it."""
    if dtype.hasobject or dtype.kind in "iu" or is_floating(dtype):
        return np.array(numbers, dtype) if dtype.isbuiltin == 1 else np.array(numbers, np.float64).astype(dtype)
    return np.array(numbers, np.int8).astype(dtype)


def _limits(dtype: np.dtype) -> tuple[int, int]:
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _admitted(number: Number, source: np.dtype, target: np.dtype, upwards: bool) -> Number:
    """``number`` where it has a defined result, else its magnitude where that has, else one."""
    if _is_defined(number, target, upwards):
        return number
    held = source.hasobject or is_floating(source) or source == np.bool_ or abs(number) <= _limits(source)[1]
    return abs(number) if held and _is_defined(abs(number), target, upwards) else 1


def _is_defined(number: Number, target: np.dtype, upwards: bool) -> bool:
    if target == np.bool_ or (is_floating(target) and target != _E8M0 and target.name not in _FINITE):
        return True
    if target == _E8M0:
        return number != number or (number == math.inf and upwards) or 2.0**-_E8M0_BIAS <= number <= 2.0**_E8M0_BIAS
    if target.name in _FINITE:
        return abs(number) <= float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
    least, greatest = _limits(target)
    return isinstance(number, int) or (math.isfinite(number) and least <= math.trunc(number) <= greatest)


def _converted(numbers: Sequence[Number], dtype: np.dtype, saturate: bool, mode: str) -> np.ndarray:
    if dtype.hasobject:
        return np.array([str(n) for n in numbers], object)
    if dtype == np.bool_:
        return np.array([n != 0 for n in numbers], bool)
    if dtype == _E8M0:
        return np.array([_power_of_two(n, saturate, mode) for n in numbers], np.uint8).view(dtype)
    if is_floating(dtype) and dtype.itemsize > 2:
        with np.errstate(over="ignore"):
            return np.array([float(_shortened(n) if dtype == np.float32 else n) for n in numbers], np.float64).astype(
                dtype
            )
    if is_floating(dtype):
        codes = [_nearest(n, dtype, saturate) for n in numbers]
        return np.array(codes, np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype)
    least, greatest = _limits(dtype)
    span = greatest - least + 1
    return _array([(math.trunc(n) - least) % span + least for n in numbers], dtype)


def _shortened(number: Number) -> Number:
    """An integer of few bits that is rounded as ``number`` is."""
    spare = number.bit_length() - _KEPT if isinstance(number, int) else 0
    if spare <= 0:
        return number
    kept, lost = divmod(abs(int(number)), 1 << spare)
    return (kept | bool(lost)) << spare if number > 0 else -((kept | bool(lost)) << spare)


@functools.cache
def _middles(dtype: np.dtype) -> list[float]:
    """Midpoints between each number from zero on and the next, whose codes count up; the last one is to the number which would follow."""
    bits = 3 if dtype.name == "float4_e2m1fn" else 5 if dtype.name in _FINITE else dtype.itemsize * 8 - 1
    codes = np.arange(2**bits).astype(np.uint8 if dtype.itemsize == 1 else np.uint16)
    with np.errstate(invalid="ignore"):
        numbers = codes.view(dtype).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    following = np.append(numbers[1:], 2 * numbers[-1] - numbers[-2])
    middles: list[float] = ((numbers + following) / 2).tolist()
    return middles


def _nearest(number: Number, dtype: np.dtype, saturate: bool) -> int:
    """The code of the nearest number, of two the even one; of NaN, infinities and what is out of range by Cast's tables."""
    middles, name = _middles(dtype), dtype.name
    sign = 1 << (3 if name == "float4_e2m1fn" else 5 if name in _FINITE else dtype.itemsize * 8 - 1)
    negative, turned = math.copysign(1, number) < 0, name.endswith("fnuz")
    nan = sign if turned else 2 * sign - 1
    if number != number:
        return nan
    code = bisect_left(middles, abs(number))
    if code < len(middles) and middles[code] == abs(number):
        code += code % 2
    if code >= len(middles):
        if saturate and name.startswith("float8"):
            code = len(middles) - 1
        elif name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"):
            return nan
        else:
            code = len(middles)  # infinity is behind the largest
    return code + sign * (negative and not (turned and code == 0))


def _power_of_two(number: Number, saturate: bool, mode: str) -> int:
    """The code of the power of two that a positive number is rounded to."""
    if number != number or (number == math.inf and not saturate):
        return _E8M0_NAN
    if number == math.inf:
        return _E8M0_NAN - 1
    fraction, exponent = math.frexp(_shortened(number))  # in [0.5, 1)
    above = {"up": fraction > 0.5, "down": False, "nearest": fraction >= 0.75}[mode]
    return exponent - 1 + above + _E8M0_BIAS
