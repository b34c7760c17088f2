"""L2: mutants that compute something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import KernelDef, NodeView
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import with_kernels, with_results
from onnxplug_testkit.subject import Subject


@mutant("kernels.values", "Exp")
def computes_in_half() -> Subject:
    """Computes floats in half precision."""
    return with_results(lambda node, inputs, result: result.astype(np.float16).astype(result.dtype), ("Exp",))


@mutant("kernels.values", "LeakyRelu")
def ignores_an_attribute() -> Subject:
    """Takes LeakyRelu's alpha to be 0.01 whatever the node says."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        x = inputs[0]
        return np.where(x < 0, x * x.dtype.type(0.01), x).astype(x.dtype)

    return with_results(change, ("LeakyRelu",))


@mutant("kernels.values", "Hardmax")
def older_semantics() -> Subject:
    """Computes Hardmax-13 as version 11 had it: over all dimensions from the axis on."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        x, axis = inputs[0], node.attributes.get("axis", -1)
        flat = x.reshape(int(np.prod(x.shape[: axis % x.ndim])), -1)
        return (np.arange(flat.shape[1]) == flat.argmax(1)[:, None]).astype(x.dtype).reshape(x.shape)

    return with_results(change, ("Hardmax",))


@mutant("kernels.values", "MatMul")
def sums_in_half() -> Subject:
    """Accumulates a matrix product in half precision."""
    return with_results(
        lambda node, inputs, result: np.matmul(*(np.asarray(i, np.float16) for i in inputs)).astype(result.dtype),
        ("MatMul",),
    )


@mutant("kernels.values", "ReduceSum")
def off_by_one_element() -> Subject:
    """Changes the last element of every result by one part in ten thousand."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        if result.size and result.dtype.kind == "f":
            result.reshape(-1)[-1:] *= result.dtype.type(1.001)
        return result

    return with_results(change, ("ReduceSum",))


@mutant("kernels.signed_zero", "Neg")
def drops_the_sign_of_zero() -> Subject:
    """Gives 0.0 where -0.0 is due."""
    return with_results(lambda node, inputs, result: result + result.dtype.type(0), ("Neg",))


@mutant("kernels.special_values", "Exp")
def hides_nan() -> Subject:
    """Replaces NaN and infinities by numbers."""
    return with_results(lambda node, inputs, result: np.nan_to_num(result), ("Exp",))


@mutant("kernels.dtype", "Tanh")
def widens() -> Subject:
    """Returns double whatever the type."""
    return with_results(lambda node, inputs, result: result.astype(np.float64), ("Tanh",))


@mutant("kernels.shape", "ReduceMax")
def drops_dimensions() -> Subject:
    """Ignores keepdims."""
    return with_results(lambda node, inputs, result: np.squeeze(result), ("ReduceMax",))


@mutant("kernels.inputs_unchanged", "Abs")
def mutates_its_input() -> Subject:
    """Computes in place, in the caller's array."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        def call(x: np.ndarray) -> np.ndarray:
            np.abs(x, out=x)
            return x.copy()

        return call

    return with_kernels(("Abs",), create)


@mutant("kernels.fresh_results", "Relu")
def returns_one_array() -> Subject:
    """Writes every result into one array and returns that."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        held: list[np.ndarray] = []

        def call(x: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(x)
            if not held:
                held.append(result)
            np.copyto(held[0], result)
            return held[0]

        return call

    return with_kernels(("Relu",), create)


@mutant("kernels.values", "Sigmoid")
def caches_the_last_output() -> Subject:
    """Computes once per node and gives that answer ever after."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        held: list[np.ndarray] = []

        def call(x: np.ndarray) -> np.ndarray:
            if not held:
                held.append(kernel(x))
            return held[0].copy()

        return call

    return with_kernels(("Sigmoid",), create)


@mutant("kernels.repeatable", "Tanh")
def drifts() -> Subject:
    """Answers one unit in the last place higher in every second run."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        runs = [0]

        def call(x: np.ndarray) -> np.ndarray:
            runs[0] += 1
            result: np.ndarray = kernel(x)
            return np.nextafter(result, result.dtype.type(2)) if runs[0] > 3 and result.dtype.kind == "f" else result

        return call

    return with_kernels(("Tanh",), create)


@mutant("kernels.execution", "Sqrt")
def fails_to_run() -> Subject:
    """Raises in every run."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        def call(*inputs: Any) -> Any:
            raise NotImplementedError("to be written")

        return call

    return with_kernels(("Sqrt",), create)


@mutant("kernels.creation", "Floor")
def claims_everything() -> Subject:
    """Registers kernels that cannot be made."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        raise NotImplementedError("to be written")

    return with_kernels(("Floor",), create)


@mutant("kernels.generated", "Tile")
def repeats_at_least_once() -> Subject:
    """Takes a repetition of zero times for one."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        return lambda x, repeats: kernel(x, np.maximum(repeats, 1))

    return with_kernels(("Tile",), create)


@mutant("kernels.values", "RandomNormal")
def draws_zeros() -> Subject:
    """Draws the mean, always."""
    return with_results(
        lambda node, inputs, result: np.full_like(result, node.attributes.get("mean", 0.0)), ("RandomNormal",)
    )


@mutant("kernels.values", "Bernoulli")
def tosses_a_fair_coin() -> Subject:
    """Takes every chance for one half."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        return lambda x: kernel(np.full_like(x, 0.5))

    return with_kernels(("Bernoulli",), create)


@mutant("kernels.special_values", "ReduceLogSumExp")
def exponentiates_first() -> Subject:
    """Takes exponentials of what is not small first, so that they are infinite."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        with np.errstate(over="ignore"):
            return result + np.where(np.isinf(np.exp(inputs[0])).any(), np.inf, 0).astype(result.dtype)

    return with_results(change, ("ReduceLogSumExp",))


@mutant("kernels.dtype", "StringConcat")
def writes_letters_side_by_side() -> Subject:
    """Gives strings as an array of letters, of as many as the longest has."""
    return with_results(lambda node, inputs, result: result.astype(str), ("StringConcat",))
