"""Conversions between element types and linear quantization."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug.contract.types import ELEMENT_NAMES, numpy_dtype
from operators.case import Case
from operators.oracle import oracle
from operators.values import element_name, is_float, limits


def _has_text(case: Case) -> bool:
    return "tensor(string)" in (case.types["T1"], case.types["T2"]) or case.types["T2"] == "tensor(float8e8m0)"


def power_of_two(values: np.ndarray, round_mode: str, saturate: bool) -> np.ndarray:
    """Numbers as float8e8m0: the power of two above, below or nearest; what is out of range at the end of it, or NaN."""
    out = np.full(values.shape, np.nan)
    for at in np.ndindex(values.shape):
        size = abs(float(values[at]))
        if size == 0 or math.isinf(size):
            exponent = -999 if size == 0 else 999
        elif math.isnan(size):
            continue
        else:
            low = math.frexp(size)[1] - 1
            share = size / 2.0**low
            exponent = low + (share > 1 if round_mode == "up" else share >= 1.5 if round_mode == "nearest" else 0)
        if saturate or -127 <= exponent <= 127:
            out[at] = 2.0 ** min(max(exponent, -127), 127)
    return out.astype(numpy_dtype("float8e8m0"))


def _from_text(text: str, target: str) -> Any:
    if is_float(target):
        return float(text.lower().replace("inf", "infinity"))
    return bool(float(text)) if target == "bool" else int(text)


def rounded(values: Any, target: str, saturate: bool = True) -> np.ndarray:
    """Float64 numbers as a float type; beyond its range the float8 types saturate when told."""
    dtype = numpy_dtype(target)
    values = np.asarray(values, np.float64)
    if saturate and "float8e" in target:
        most = float(ml_dtypes.finfo(dtype).max)
        values = np.clip(values, -most, most)
    return values.astype(np.float32).astype(dtype)


@oracle(
    "Cast",
    sentence="casting from string in plain and scientific representations is supported, +INF and NaN in any case; plain representation to string",
    wrong=_has_text,
)
@oracle(
    "CastLike",
    sentence="The operator casts the elements of a given input tensor to the data type of the second",
    wrong=_has_text,
)
def cast(case: Case, x: list[Any]) -> Any:
    data, target = case.inputs[0], element_name(case.types["T2"])
    if target == "string":
        plain = (
            data
            if data.dtype == object
            else data.astype(np.int64 if data.dtype.kind == "b" or not _floating(case) else np.float64)
        )
        return np.array([str(v) for v in plain.ravel().tolist()], object).reshape(data.shape)
    if target == "float8e8m0":
        numbers = [float(v.lower() if isinstance(v, str) else v) for v in data.ravel().tolist()]
        mode, saturate = case.attributes.get("round_mode", "up"), bool(case.attributes.get("saturate", 1))
        return power_of_two(np.array(numbers).reshape(data.shape), mode, saturate)
    if data.dtype != object:
        return (data.astype(np.float64) if _floating(case) else _whole(data)).astype(numpy_dtype(target))
    numbers = [_from_text(v, target) for v in data.ravel().tolist()]
    if not is_float(target):
        return np.array(numbers, np.int64).astype(numpy_dtype(target)).reshape(data.shape)
    return rounded(np.array(numbers, np.float64).reshape(data.shape), target, bool(case.attributes.get("saturate", 1)))


def _whole(data: np.ndarray) -> np.ndarray:
    """Integers and bools in a type that holds them all."""
    return data.astype(np.uint64 if data.dtype == np.uint64 else np.int64)


def _floating(case: Case) -> bool:
    return is_float(element_name(case.types["T1"]))


def spread(values: np.ndarray, case: Case, shape: tuple[int, ...]) -> np.ndarray:
    """A scale or zero point for every element."""
    axis, block = case.attributes.get("axis", 1), case.attributes.get("block_size", 0)
    if values.ndim == 0:
        return values
    if block:
        return np.take(np.repeat(values, block, axis), range(shape[axis]), axis)
    return values.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


def _open(case: Case) -> bool:
    """Whether the version says nothing of the precision of the division, which is ONNX Runtime's then."""
    return case.version < 23


def _other_precision(case: Case) -> bool:
    return case.inputs[0].dtype != case.inputs[1].dtype or (_open(case) and case.inputs[1].dtype.itemsize < 4)


@oracle(
    "QuantizeLinear",
    sentence="The type of y_scale determines the precision of the division operation between x and y_scale, unless precision is specified",
    wrong=_other_precision,
)
def quantize_linear(case: Case, x: list[Any]) -> Any:
    data, scale, zero = [*case.inputs, None][:3]
    target = element_name(case.types["T3" if "T3" in case.types else "T2"])
    precision = case.attributes.get("precision")
    divide = numpy_dtype(ELEMENT_NAMES[precision]) if precision else scale.dtype
    if _open(case) or divide.name not in ("float16", "bfloat16", "float32"):
        divide = np.dtype(np.float32)
    quotient = (data.astype(divide) / spread(scale.astype(divide), case, data.shape)).astype(np.float64)
    shift = 0.0 if zero is None else spread(zero.astype(np.float64), case, data.shape)
    if is_float(target):
        return rounded(quotient + shift, target, bool(case.attributes.get("saturate", 1)))
    return np.clip(np.rint(quotient) + shift, *limits(target))
