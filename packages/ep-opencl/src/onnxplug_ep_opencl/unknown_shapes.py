"""Shapes that follow from operands although onnx's inference says otherwise, or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug.contract import TensorSpec
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal

Given = Sequence[TensorSpec | None]
FAILING = frozenset({"ArgMax", "ArgMin", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MatMul", "PRelu", "Split"})
"""Operators of which the CPU provider says Fail where operands do not go together."""


def misfit(op_type: str, shapes: Sequence[Sequence[int] | None]) -> Refusal:
    """What is raised for operands that do not go together."""
    status = FAIL if op_type in FAILING else INVALID_ARGUMENT
    return Refusal(f"shapes of the operands do not fit: {shapes}", status)


def _joined(attributes: Mapping[str, Any], inputs: Given) -> TensorSpec:
    """Of Concat, whose operands of no length along the axis may have any other sizes, which onnx does not allow."""
    given = [spec for spec in inputs if spec is not None]
    shapes = [spec.shape for spec in given]
    axis = axes_from_front([attributes["axis"]], len(shapes[0]))
    if axis is None or len({len(shape) for shape in shapes}) > 1:
        raise misfit("Concat", shapes)
    (at,) = axis
    kept = [shape for shape in shapes if shape[at]] or shapes[:1]
    if len({(*shape[:at], *shape[at + 1 :]) for shape in kept}) > 1:
        raise misfit("Concat", shapes)
    return TensorSpec(given[0].dtype, (*kept[0][:at], sum(shape[at] for shape in kept), *kept[0][at + 1 :]))


def _hot(attributes: Mapping[str, Any], inputs: Given) -> TensorSpec:
    """Of OneHot, of which onnx reads depths of few types and no scalar's place."""
    places, depth, values = inputs
    assert places is not None and values is not None and depth is not None and depth.constant is not None
    rank = len(places.shape) + 1
    axis = axes_from_front([attributes.get("axis", -1)], rank)
    if axis is None or values.shape != (2,) or math.prod(depth.shape) != 1:
        raise misfit("OneHot", [places.shape, depth.shape, values.shape])
    shape = list(places.shape)
    shape.insert(axis[0], int(depth.constant.reshape(-1)[0]))
    if min(shape) < 0:
        raise Refusal(f"an output of shape {shape}")
    return TensorSpec(values.dtype, tuple(shape))


def _cut(attributes: Mapping[str, Any], inputs: Given) -> TensorSpec:
    """Of Slice by attributes, of which onnx knows neither axes that count from the end nor results without elements."""
    (x,) = inputs
    assert x is not None
    starts, ends, shape = attributes["starts"], attributes["ends"], list(x.shape)
    axes = axes_from_front(attributes.get("axes") or range(len(starts)), len(shape))
    if axes is None:
        raise misfit("Slice", [x.shape])
    for axis, start, end in zip(axes, starts, ends, strict=True):
        shape[axis] = len(range(*slice(start, end).indices(x.shape[axis])))
    return TensorSpec(x.dtype, tuple(shape))


def axes_from_front(given: Sequence[int], rank: int) -> list[int] | None:
    """Axes counted from the front; None where one is not there, or twice."""
    found = [axis + rank if axis < 0 else axis for axis in given]
    return found if len(set(found)) == len(found) and all(0 <= axis < rank for axis in found) else None


UNKNOWN_TO_ONNX: Mapping[tuple[str, bool], Callable[[Mapping[str, Any], Given], TensorSpec]] = {
    ("Concat", True): _joined, ("Concat", False): _joined, ("OneHot", True): _hot, ("OneHot", False): _hot, ("Slice", True): _cut,
}  # fmt: skip
"""(operator, whether the version is before 10) -> the spec of the result, by attributes and operands."""
