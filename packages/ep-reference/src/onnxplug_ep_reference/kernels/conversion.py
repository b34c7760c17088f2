"""Cast and CastLike between all of ONNX's types: onnx.reference leaves out what NumPy and ml_dtypes do not convert at once, and rounds
twice on the way to types of few bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_cast, op_cast_like

_FLOAT8 = frozenset(
    {TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ}
)
_E8M0_BIAS, _E8M0_NAN = 127, 255


def cast_to(x: np.ndarray, to: int, saturate: Any = True, round_mode: str = "up") -> np.ndarray:
    """``x`` as element type ``to`` by Cast's tables; integers beyond a type's range lose their higher bits."""
    if to == TensorProto.STRING:
        return _plain(x).astype(np.str_)
    dtype, wide = tensor_dtype_to_np_dtype(to), _plain(x)
    if wide.dtype.kind in "OUST":
        wide = _numbers(wide, dtype)
    if dtype.kind == "c" or wide.dtype.kind == "c":
        return wide.astype(dtype)
    if to == TensorProto.FLOAT8E8M0:
        return _powers_of_two(wide, bool(saturate), round_mode).view(dtype)
    if dtype.isbuiltin == 1:
        return wide.astype(dtype)
    if _is_float(dtype):
        wide = _to_odd(wide)
        if to in _FLOAT8 and saturate:
            limit = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
            wide = np.clip(wide, -limit, limit)
    elif wide.dtype.kind == "f":
        wide = np.trunc(wide).astype(np.int64)
    return wide.astype(dtype)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or "float" in dtype.name


def _plain(x: np.ndarray) -> np.ndarray:
    """``x`` in a type of NumPy's own that has all its numbers."""
    if x.dtype.isbuiltin == 1:
        return x
    return x.astype(np.float32 if _is_float(x.dtype) else np.int32)


def _numbers(texts: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """What texts spell: truth values, integers of up to 64 bits (two's complement of larger ones), or doubles."""
    words = [str(text).strip() for text in texts.reshape(-1)]
    if dtype == np.bool_:
        named = {"true": 1.0, "false": 0.0}
        return np.array([named.get(w.lower(), w) for w in words], object).astype(np.float64).reshape(texts.shape)
    if _is_float(dtype) or dtype.kind == "c":
        return np.array([float(w) for w in words], np.float64).reshape(texts.shape)
    return np.array([_whole(w) % 2**64 for w in words], np.uint64).reshape(texts.shape)


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        return math.trunc(float(word))


def _to_odd(wide: np.ndarray) -> np.ndarray:
    """In float32, cut off, the last bit set where something was lost: what is rounded to fewer bits from there is rounded once."""
    if wide.dtype.kind in "iu" and wide.dtype.itemsize == 8:
        low = wide & wide.dtype.type(0xFFF)  # beyond 53 bits these say no more than that they are there
        large = np.abs(wide.astype(np.float64)) >= 2.0**53
        wide = np.where(large & (low != 0), wide - low + wide.dtype.type(1 << 11), wide)
    exact = wide.astype(np.float64)
    single = exact.astype(np.float32)
    lost = np.isfinite(exact) & (single.astype(np.float64) != exact)
    cut = np.where(np.abs(single) > np.abs(exact), np.nextafter(single, np.float32(0)), single)
    return np.where(lost, (cut.view(np.uint32) | np.uint32(1)).view(np.float32), single)


def _powers_of_two(wide: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """The codes of the magnitudes in float8e8m0."""
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode {round_mode!r} is none of up, down, nearest")
    single = np.abs(_to_odd(wide))
    fraction, exponent = np.frexp(single.astype(np.float64))
    above = {"up": fraction > 0.5, "down": np.zeros(wide.shape, bool), "nearest": fraction >= 0.75}[round_mode]
    code = exponent.astype(np.int64) - 1 + above + _E8M0_BIAS
    code = np.where(fraction == 0, -1, np.where(np.isinf(single), _E8M0_NAN, code))
    if saturate:
        code = np.clip(code, 0, _E8M0_NAN - 1)
    outside = np.isnan(single) | (code < 0) | (code >= _E8M0_NAN)
    return np.where(outside, _E8M0_NAN, code).astype(np.uint8)


class _Cast(OpRun):
    def _run(self, x: np.ndarray, **told: Any) -> tuple[np.ndarray]:
        return (cast_to(x, told["to"], told.get("saturate", True), told.get("round_mode") or "up"),)


class _CastLike(OpRun):
    def _run(self, x: np.ndarray, like: np.ndarray, **told: Any) -> tuple[np.ndarray]:
        to = TensorProto.STRING if like.dtype.kind in "OUST" else np_dtype_to_tensor_dtype(like.dtype)
        return (cast_to(x, to, told.get("saturate", True), told.get("round_mode") or "up"),)


def _corrected(run: type[OpRun], classes: Sequence[type[OpRun]]) -> dict[type[OpRun], type[OpRun]]:
    """A class for each, by its name, by which onnx finds its version's attributes."""
    return {
        each: type(each.__name__, (run,), {"__module__": __name__, "op_domain": each.op_domain}) for each in classes
    }


CONVERSIONS: Mapping[type[OpRun], type[OpRun]] = {
    **_corrected(_Cast, (op_cast.Cast_1, op_cast.Cast_19, op_cast.Cast_24, op_cast.Cast_25)),
    **_corrected(_CastLike, (op_cast_like.CastLike_15, op_cast_like.CastLike_19, op_cast_like.CastLike_25)),
}
"""What takes the place of which class."""
