"""L2: mutants that are right but where places count from the end, numbers are at the ends of their types, or there are many or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import KernelDef, NodeView
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import with_kernels, with_results
from onnxplug_testkit.subject import Subject


def _with_operand(op_type: str, place: int, change: Any) -> Subject:
    """The reference with one operand of an operator changed, where it is there."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        return lambda *operands: kernel(*(change(x) if i == place else x for i, x in enumerate(operands)))

    return with_kernels((op_type,), create)


@mutant("kernels.shape", "Slice")
def ends_in_32_bits() -> Subject:
    """Holds the ends of slices in 32 bits, of which the lowest of the largest number make -1."""
    return _with_operand("Slice", 2, lambda ends: ends.astype(np.int32).astype(ends.dtype))


@mutant("kernels.values", "ScatterND")
def starts_at_zero() -> Subject:
    """Takes places that count from the end for the first."""
    return _with_operand("ScatterND", 1, lambda places: np.maximum(places, 0))


@mutant("kernels.values", "Cast")
def saturates() -> Subject:
    """Converts what is too large for an integer type to its largest number."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        limits = np.iinfo(np.int32)
        wide = inputs[0].dtype == np.int64 and result.dtype == np.int32
        return np.clip(inputs[0], limits.min, limits.max).astype(np.int32) if wide else result

    return with_results(change, ("Cast",))


@mutant("kernels.values", "Cast")
def takes_nan_for_false() -> Subject:
    """Compares with zero so that NaN is not unequal to it."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        floats = inputs[0].dtype.kind == "f" and result.dtype == bool
        return (inputs[0] < 0) | (inputs[0] > 0) if floats else result

    return with_results(change, ("Cast",))


@mutant("kernels.special_values", "Pow")
def takes_logarithms_first() -> Subject:
    """Raises to a power by logarithms, which numbers below zero have none of."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        return np.where(inputs[0] < 0, np.nan, result).astype(result.dtype) if result.dtype == np.float32 else result

    return with_results(change, ("Pow",))


@mutant("kernels.values", "ReduceSum")
def adds_halves_in_halves() -> Subject:
    """Adds up in the type of the terms, in which a sum of many is soon too large for the next to count."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        x = inputs[0]
        along_rows = x.dtype == np.float16 and x.ndim == 2 and result.shape == (len(x), 1)
        return np.add.accumulate(x, 1)[:, -1:] if along_rows else result

    return with_results(change, ("ReduceSum",))


@mutant("kernels.execution", "Conv")
def wants_an_image() -> Subject:
    """Fails where there is no image in a batch."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        if len(inputs[0]) == 0:
            raise ValueError("a grid of no groups cannot be started")
        return result

    return with_results(change, ("Conv",))


@mutant("kernels.shape", "NonZero")
def takes_nan_for_nothing() -> Subject:
    """Takes NaN for no number, and what is no number for zero."""
    return _with_operand("NonZero", 0, lambda x: np.nan_to_num(x) if x.dtype.kind == "f" else x)


@mutant("kernels.values", "LayerNormalization")
def takes_variance_in_one_pass() -> Subject:
    """Takes the mean of squares less the square of the mean for the variance, in single precision."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        x = inputs[0]
        if x.dtype != np.float32 or isinstance(result, tuple):
            return result
        axes = tuple(range(node.attributes.get("axis", -1) % x.ndim, x.ndim))
        mean, squares = (np.mean(v, axes, np.float32, keepdims=True) for v in (x, x * x))
        variance = squares - mean * mean
        normal = (x - mean) / np.sqrt(np.maximum(variance, 0) + np.float32(node.attributes.get("epsilon", 1e-5)))
        return (normal * inputs[1] + (inputs[2] if len(inputs) > 2 else 0)).astype(x.dtype)

    return with_results(change, ("LayerNormalization",))


@mutant("kernels.values", "ReduceProd")
def clips_products() -> Subject:
    """Multiplies integers as floats, so that a product beyond their type is its largest number."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        x = inputs[0]
        if x.dtype != np.int32 or not x.size:
            return result
        given = inputs[1].tolist() if len(inputs) > 1 else node.attributes.get("axes", ())
        limits, axes = np.iinfo(np.int32), tuple(given) or None
        wide = np.prod(x.astype(np.float64), axes, keepdims=bool(node.attributes.get("keepdims", 1)))
        return np.asarray(np.clip(wide, limits.min, limits.max)).astype(np.int32)

    return with_results(change, ("ReduceProd",))


@mutant("kernels.shape", "Cast")
def gives_scalars_a_dimension() -> Subject:
    """Gives a tensor without dimensions one."""
    return with_results(lambda node, inputs, result: np.atleast_1d(result), ("Cast",))
