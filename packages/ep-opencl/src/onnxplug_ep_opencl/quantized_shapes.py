"""Shapes of com.microsoft's operators on quantized tensors, which onnx does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import TensorSpec

Shape = tuple[int, ...]
_BROADCAST = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3), "QLinearWhere": (0, 1, 4)}
_SAME = frozenset({"QuantizeLinear", "DequantizeLinear", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"})
_PRODUCTS = frozenset({"MatMulIntegerToFloat", "DynamicQuantizeMatMul"})


def quantized_shape(op_type: str, attributes: Mapping[str, Any], inputs: Sequence[TensorSpec | None]) -> Shape | None:
    """The shape of an operator's result; None for other operators. ValueError where operands do not fit."""
    given = [() if spec is None else spec.shape for spec in inputs]
    if op_type in _BROADCAST:
        return np.broadcast_shapes(*(given[n] for n in _BROADCAST[op_type]))
    if op_type in _SAME:
        return given[0]
    if op_type in _PRODUCTS:
        return _product(given[0], given[1])
    if op_type == "QGemm":
        a, b = (s[::-1] if attributes.get(t, 0) else s for s, t in ((given[0], "transA"), (given[3], "transB")))
        return _product(a, b)
    if op_type == "QLinearConcat":
        parts, axis = given[2::3], attributes["axis"] % len(given[2])
        return (*parts[0][:axis], sum(part[axis] for part in parts), *parts[0][axis + 1 :])
    if op_type == "QLinearGlobalAveragePool":
        ones = (1,) * (len(given[0]) - 2)
        last = attributes.get("channels_last", 0)
        return (given[0][0], *ones, given[0][-1]) if last else (*given[0][:2], *ones)
    return None


def _product(a: Shape, b: Shape) -> Shape:
    """The shape of MatMul's result."""
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ValueError(f"{a}, {b}")
    rows, columns = () if len(a) == 1 else left[-2:-1], () if len(b) == 1 else right[-1:]
    return (*np.broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)
