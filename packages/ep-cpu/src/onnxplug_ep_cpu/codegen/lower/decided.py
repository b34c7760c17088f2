"""Values that shapes decide but that are too large for the plan to know, of operators that have no lowering: computed with NumPy
while the region is bound."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug_ep_cpu.codegen.interpret import kernel_of
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported

_REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError)


def decide(b: Lowering, node: NodeView) -> None:
    """Make the node's results constants of this bind; Unsupported when one of its operands depends on data, or the
    kernel refuses them."""
    operands = [None if v is None else _array(b, v) for v in node.inputs]
    try:
        with np.errstate(all="ignore"):
            results = kernel_of(node)(*operands)
    except _REFUSALS as refusal:  # the kernel, which is asked next, says it as the node's
        raise Unsupported(f"{node.op_type} '{node.name}' refuses what shapes decide: {refusal}") from None
    for value, result in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False):
        if value is not None:
            array = np.asarray(result)
            b.specs[value.name] = TensorSpec(array.dtype, array.shape, array)


def _array(b: Lowering, value: ValueView) -> np.ndarray:
    """The contents of an operand: those a program with open sizes looks at tie it to the sizes of this bind."""
    spec = b.specs.get(value.name)
    if value.constant is None and (spec is None or spec.constant is None):
        if value.producer is None or not b.prepared.makes(value):
            raise Unsupported(f"'{value.name}' is large and decides the values of a node that is not generated")
        decide(b, value.producer)
    numbers = b.numbers(value) if value.dtype is not None and value.dtype.kind == "i" else None
    array = value.constant if value.constant is not None else b.specs[value.name].constant
    assert array is not None
    if numbers is None:
        b.constant(value)
        return array
    return np.array([int(n) for n in numbers], array.dtype).reshape(array.shape)
