"""Conversions between element types and linear quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy
from operators.strategies.matmul import scale
from operators.values import is_float, limits, random


def castable(d: Draw, source: str, target: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of ``source`` whose conversion to ``target`` is defined: floats in the range of an integer type, strings that are numbers."""
    whole = not is_float(target) and target not in ("bool", "string") and not target.startswith("complex")
    low, high = (-100, 100)
    if whole:
        low, high = (max(limits(target)[0], low), min(limits(target)[1], high))
    if source == "string":
        texts = (
            [str(v) for v in (0, 1, 2, 3)]
            if whole or target == "bool"
            else ["1", "-2.5", "1e3", "0.125", "-INF", "NaN", "+INF"]
        )
        if target == "string":
            return random(d.rng, shape, "string")
        return np.array([texts[i] for i in d.rng.integers(0, len(texts), int(np.prod(shape)))], object).reshape(shape)
    if is_float(source):
        if target == "string":
            numbers = d.rng.choice([0.5, 1.5, -0.5], shape) if source != "float8e8m0" else np.full(shape, 0.5)
            return numbers.astype(numpy_dtype(source))
        edge = is_float(target) and d.flag()
        if source == "float8e8m0":
            return np.exp2(d.rng.integers(0 if whole else -3, 1 if whole else 4, shape)).astype(numpy_dtype(source))
        return random(
            d.rng, shape, source, low, high, special=edge and source in ("float", "double", "float16", "bfloat16")
        )
    special = not is_float(target) and source not in ("bool",)
    return random(
        d.rng,
        shape,
        source,
        *((low, high) if not whole or target in ("int2", "uint2", "int4", "uint4") else (None, None)),
        special=special and target not in ("int2", "uint2", "int4", "uint4", "string"),
    )


def rounding(d: Draw, target: str) -> dict[str, Any]:
    """Attributes that rule conversions to float8."""
    attributes = d.maybe(saturate=d.pick(1, 0)) if "saturate" in d.schema.attributes and "float8" in target else {}
    if "round_mode" in d.schema.attributes and target == "float8e8m0":
        attributes |= d.maybe(round_mode=d.pick("up", "down", "nearest"))
    return attributes


@strategy("Cast")
def cast(d: Draw) -> Case:
    source, target = d.element("T1"), d.element("T2")
    if d.version == 1:
        return Case([castable(d, source, target, d.shape())], {"to": _NAMES.get(target, target.upper())})
    return Case([castable(d, source, target, d.shape())], {"to": ELEMENT_CODES[target], **rounding(d, target)})


_NAMES: dict[str, str] = {}


@strategy("CastLike")
def cast_like(d: Draw) -> Case:
    source, target = d.element("T1"), d.element("T2")
    return Case([castable(d, source, target, d.shape()), d.tensor((1,), target)], rounding(d, target))


def granularity(d: Draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of scales and zero points, and the attributes that say what they are for."""
    kinds = ["tensor"] + (["axis"] if d.version >= 13 else []) + (["block"] if d.version >= 21 else [])
    kind = d.pick(*kinds)
    if kind == "tensor" or len(shape) < 2:
        return (), {}
    axis = d.axis(len(shape))
    at = axis % len(shape)
    if kind == "axis":
        return shape[at : at + 1], {"axis": axis} if axis != 1 or d.flag() else {}
    size = d.integer(1, shape[at])
    blocks = -(-shape[at] // size)
    return (*shape[:at], blocks, *shape[at + 1 :]), {"axis": axis, "block_size": size}


@strategy("QuantizeLinear")
def quantize_linear(d: Draw) -> Case:
    shape = d.shape(0, 4, sizes=(3, 2, 1, 4))
    given, attributes = granularity(d, shape)
    parameters = {c.type_param_str for c in d.schema.type_constraints}
    x_type = d.element("T1")
    if "T3" in parameters:
        scale_type, target = d.element("T2"), d.element("T3")
    else:
        scale_type, target = x_type if d.version >= 19 else "float", d.element("T2")
    if d.version == 19 or (d.version == 21):
        scale_type = x_type
    scales = scale(d, given, scale_type) if is_float(scale_type) else d.tensor(given, scale_type, 1, 4)
    if scale_type == "float8e8m0":
        scales = np.exp2(d.rng.integers(-2, 3, given)).astype(numpy_dtype(scale_type))
    x = d.tensor(shape, x_type, -40, 40)
    zero = None
    if target != "uint8" or d.pick(True, False):
        if d.version >= 21 and d.flag():
            attributes["output_dtype"] = ELEMENT_CODES[target]
        else:
            zero = np.zeros(given, numpy_dtype(target)) if is_float(target) else d.tensor(given, target, -2, 3)
    if is_float(target) and "float8" in target and d.version >= 19:
        attributes |= d.maybe(saturate=d.pick(1, 0))
    if d.version >= 23 and d.flag():
        attributes["precision"] = 1
    out = "T3" if "T3" in parameters else "T2"
    d.bind(out, target)
    types = {"in1": f"tensor({scale_type})"} if d.version >= 19 and "T3" not in parameters else {}
    return Case([x, np.asarray(scales), None if zero is None else np.asarray(zero)], attributes, types=types)


@strategy("DequantizeLinear")
def dequantize_linear(d: Draw) -> Case:
    shape = d.shape(0, 4, sizes=(3, 2, 1, 4))
    given, attributes = granularity(d, shape)
    parameters = {c.type_param_str for c in d.schema.type_constraints}
    source = d.element("T" if "T" in parameters else "T1")
    scale_type = d.element("T2") if "T2" in parameters else "float"
    if "T3" in parameters:
        if d.cell.parameter != "T3" and scale_type != "float8e8m0" and d.flag():
            d.bind("T3", scale_type)
        else:
            attributes["output_dtype"] = ELEMENT_CODES[d.element("T3")]
    scales = (
        np.exp2(d.rng.integers(-2, 3, given)).astype(numpy_dtype(scale_type))
        if scale_type == "float8e8m0"
        else scale(d, given, scale_type)
    )
    zero = None
    if source != "int32" and d.pick(True, False):
        zero = np.zeros(given, numpy_dtype(source)) if is_float(source) else d.tensor(given, source, -2, 3)
    return Case(
        [d.tensor(shape, source, -100, 100), np.asarray(scales), None if zero is None else np.asarray(zero)], attributes
    )


@strategy("DynamicQuantizeLinear")
def dynamic_quantize_linear(d: Draw) -> Case:
    low, high = d.pick((-4, 4), (1, 9), (-9, -1))
    return Case([d.tensor(d.shape(1, sizes=(3, 2, 1, 4)), None, low, high)], {}, 3)
