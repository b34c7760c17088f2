"""L2: mutants that are right on small tensors of small numbers, on one image, where nothing is equal or halfway, or from rest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug.contract import KernelDef, NodeView
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import with_kernels, with_results
from onnxplug_testkit.subject import Subject

Compute = Callable[..., np.ndarray]
"""(unchanged kernel, inputs ...) -> result."""


def _instead(op_type: str, compute: Compute) -> Subject:
    """The reference with one operator computed by ``compute``."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        return functools.partial(compute, definition.create(node))

    return with_kernels((op_type,), create)


@mutant("kernels.sizes", "MatMul")
def one_block() -> Subject:
    """Multiplies the first 32 columns and rows and forgets the rest."""
    return _instead("MatMul", lambda kernel, a, b: kernel(a[..., :32], b[..., :32, :] if b.ndim > 1 else b[:32]))


@mutant("kernels.sizes", "ArgMax")
def counts_in_a_byte() -> Subject:
    """Keeps indices in eight bits."""
    return with_results(lambda node, inputs, result: result.astype(np.uint8).astype(np.int64), ("ArgMax",))


@mutant("kernels.sizes", "Softmax")
def plans_once() -> Subject:
    """Computes as many rows as its first tensor had."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        rows: list[int] = []

        def call(x: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(x)
            rows.append(len(result) if result.ndim else 0)
            result[rows[0] :] = 0
            return result

        return call

    return with_kernels(("Softmax",), create)


@mutant("kernels.values", "Add")
def adds_in_double() -> Subject:
    """Adds integers of 64 bits as doubles."""

    def change(node: NodeView, inputs: Any, result: Any) -> Any:
        if result.dtype != np.int64:
            return result
        a, b = inputs
        return (a.astype(np.float64) + b.astype(np.float64)).astype(np.int64)

    return with_results(change, ("Add",))


@mutant("kernels.values", "Less")
def compares_as_signed() -> Subject:
    """Compares unsigned integers of 64 bits as signed ones."""
    return _instead(
        "Less", lambda kernel, a, b: kernel(*(v.view(np.int64) if v.dtype == np.uint64 else v for v in (a, b)))
    )


@mutant("kernels.values", "Div")
def rounds_quotients_down() -> Subject:
    """Divides integers as Python does, towards minus infinity."""
    return _instead("Div", lambda kernel, a, b: a // b if a.dtype.kind == "i" else kernel(a, b))


@mutant("kernels.values", "And")
def true_is_255() -> Subject:
    """Writes truth values as bytes of ones."""
    return with_results(lambda node, inputs, result: (result.view(np.uint8) * 255).view(bool), ("And",))


def _paired(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
    if result.dtype not in (ml_dtypes.int4, ml_dtypes.uint4) or result.size % 2 == 0:
        return result
    cut = result.copy()
    cut.reshape(-1)[-1] = 0
    return cut


@mutant("kernels.values", "Transpose")
def moves_pairs_of_halves() -> Subject:
    """Forgets the last of an odd number of elements of which two share a byte."""
    return with_results(_paired, ("Transpose",))


@mutant("kernels.values", "QuantizeLinear")
def quantizes_by_cutting_off() -> Subject:
    """Quantizes one step too low where a fraction is 0.5 or more."""

    def change(node: NodeView, inputs: Any, result: Any) -> Any:
        x, scale = inputs[:2]
        if x.dtype != np.float32 or result.dtype != np.uint8 or scale.ndim:
            return result
        return result - ((x / scale) % 1 >= 0.5) * (result > 0)

    return with_results(
        lambda node, inputs, result: np.asarray(change(node, inputs, result)).astype(result.dtype), ("QuantizeLinear",)
    )


@mutant("kernels.special_values", "Max")
def ignores_nan() -> Subject:
    """Takes the greatest of what is not NaN."""
    return _instead("Max", lambda kernel, *inputs: np.asarray(functools.reduce(np.fmax, inputs)).copy())


@mutant("kernels.special_values", "Gather")
def gathers_by_a_product() -> Subject:
    """Picks rows by a product with zeros and ones, which carries NaN and infinities everywhere."""

    def compute(kernel: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        result: np.ndarray = kernel(x, indices)
        return np.full_like(result, np.nan) if x.dtype.kind == "f" and not np.isfinite(x).all() else result

    return _instead("Gather", compute)


@mutant("kernels.special_values", "Softmax")
def chokes_on_masks() -> Subject:
    """Gives NaN for rows with a score of minus infinity."""
    return _instead("Softmax", lambda kernel, x: kernel(np.where(np.isneginf(x), x.dtype.type(np.nan), x)))


@mutant("kernels.sizes", "Relu")
def counts_in_two_bytes() -> Subject:
    """Numbers its elements in sixteen bits."""
    return with_results(
        lambda node, inputs, result: np.where(np.arange(result.size).reshape(result.shape) < 1 << 16, result, 0).astype(
            result.dtype
        ),
        ("Relu",),
    )


@mutant("graph.patterns")
def rounds_halves_away() -> Subject:
    """Quantizes what lies halfway between two steps to the one further from zero."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        if result.dtype != np.uint8 or inputs[1].ndim or len(inputs) < 3:
            return result
        steps = np.asarray(inputs[0], np.float64) / inputs[1]
        away = np.sign(steps) * np.floor(np.abs(steps) + 0.5) + inputs[2]
        return np.clip(away, 0, 255).astype(np.uint8)

    return with_results(change, ("QuantizeLinear",))


@mutant("kernels.values", "Resize")
def one_image() -> Subject:
    """Computes the first image of a batch and leaves the others at zero."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        result[1:] = 0
        return result

    return with_results(change, ("Resize",))


@mutant("kernels.values", "TopK")
def prefers_the_last() -> Subject:
    """Of equal elements it takes the last first."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        axis = node.attributes.get("axis", -1)

        def call(x: np.ndarray, *count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, places = kernel(np.flip(x, axis), *count)
            return values, x.shape[axis] - 1 - places

        return call

    return with_kernels(("TopK",), create)


@mutant("kernels.values", "GRU")
def starts_at_rest() -> Subject:
    """Ignores the state that it is to begin with."""
    return _instead("GRU", lambda kernel, *operands: kernel(*operands[:5]))


@mutant("kernels.values", "Add", "Concat", "Where", "Gather")
def has_five_dimensions() -> Subject:
    """Passes sizes in five numbers and computes nothing where there are more."""

    def change(node: NodeView, inputs: Sequence[Any], results: Any) -> Any:
        return results if results.ndim < 6 else np.zeros_like(results)

    return with_results(change, ("Add", "Concat", "Where", "Gather"))


@mutant("kernels.values", "Add", "Less")
def repeats_no_middle() -> Subject:
    """Repeats operands along the first and the last axes of a result, not along one between them."""

    def change(node: NodeView, inputs: Sequence[Any], results: Any) -> Any:
        same = inputs[0].ndim == inputs[1].ndim >= 3
        between = same and inputs[1].shape[0] == inputs[0].shape[0] > 1 and inputs[1].shape[1] == 1 < inputs[0].shape[1]
        return np.zeros_like(results) if between else results

    return with_results(change, ("Add", "Less"))


@mutant("kernels.values", "Concat", "Gather")
def cuts_strings() -> Subject:
    """Has room for strings of 31 letters."""
    return with_results(lambda node, inputs, results: _each(results, lambda text: text[:31]), ("Concat", "Gather"))


@mutant("kernels.values", "Concat", "Gather")
def trims_strings() -> Subject:
    """Fills strings up with blanks and does not know its own from the others."""
    return with_results(lambda node, inputs, results: _each(results, str.rstrip), ("Concat", "Gather"))


def _each(results: np.ndarray, change: Callable[[str], str]) -> np.ndarray:
    """With each string of a tensor changed; tensors of other types as they are."""
    if not results.dtype.hasobject:
        return results
    return np.array([change(text) for text in results.ravel()], object).reshape(results.shape)
