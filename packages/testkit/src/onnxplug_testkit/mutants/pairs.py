"""L2: mutants that are right for each type, and wrong for two types together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import with_results
from onnxplug_testkit.subject import Subject


def _of_a_pair(op_type: str, source: str, target: str, instead: Callable[[Any, Any], Any]) -> Subject:
    """The reference but for one type of the first operand and one of the result, for which it gives ``instead(x, result)``."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        met = inputs[0].dtype.name == source and result.dtype.name == target
        with np.errstate(all="ignore"):
            return instead(inputs[0], result) if met else result

    return with_results(change, (op_type,))


@mutant("kernels.values", "Cast")
def wrong_for_a_pair() -> Subject:
    """Converts int8 to uint16 as if it were uint8."""
    return _of_a_pair("Cast", "int8", "uint16", lambda x, y: x.view(np.uint8).astype(y.dtype))


@mutant("kernels.values", "CastLike")
def wrong_for_a_pair_of_few_bits() -> Subject:
    """Holds numbers of two bits in four without their sign."""
    return _of_a_pair("CastLike", "int2", "int4", lambda x, y: (x.astype(np.int32) & 3).astype(y.dtype))


@mutant("kernels.values", "Cast")
def rounds_twice() -> Subject:
    """Converts double to half precision by way of single."""
    return _of_a_pair("Cast", "float64", "float16", lambda x, y: x.astype(np.float32).astype(y.dtype))


@mutant("kernels.values", "Cast")
def spells_integers_as_floats() -> Subject:
    """Writes the digits of an int64 that a double has."""

    def spelled(x: Any, y: Any) -> Any:
        return np.array([str(int(float(n))) for n in x.ravel()], object).reshape(x.shape)

    return _of_a_pair("Cast", "int64", "object", spelled)


@mutant("kernels.values", "DequantizeLinear")
def drops_signs_of_a_pair() -> Subject:
    """Gives magnitudes where int16 is multiplied by scales that are halves."""
    return _of_a_pair("DequantizeLinear", "int16", "float16", lambda x, y: np.abs(y))


@mutant("kernels.values", "Pow")
def wrong_for_a_pair_of_operands() -> Subject:
    """Adds one where an int64 is raised to a power of uint8."""

    def change(node: NodeView, inputs: Sequence[Any], result: Any) -> Any:
        pair = inputs[0].dtype == np.int64 and inputs[1].dtype == np.uint8
        return result + 1 if pair else result

    return with_results(change, ("Pow",))
