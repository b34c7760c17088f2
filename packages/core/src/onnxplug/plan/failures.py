"""What a run raises for an exception of one of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnxplug.contract.errors import STATUS_ERRORS, EPFail, Fail, InvalidArgument, RuntimeException
from onnxplug.place.units import CORE, ControlUnit, KernelUnit, RegionUnit, Unit

_REFUSALS = (ValueError, TypeError, IndexError)
"""What kernels raise for inputs the operator's specification forbids."""

_FAIL = frozenset(
    {
        "Add", "And", "ArgMax", "ArgMin", "AveragePool", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
        "BlackmanWindow", "Clip", "Col2Im", "Concat", "ConstantOfShape", "Conv", "CumSum", "DFT", "DequantizeLinear",
        "Div", "Dropout", "Equal", "Flatten", "GatherElements", "Greater", "GreaterOrEqual", "GridSample",
        "HammingWindow", "HannWindow", "LRN", "Less", "LessOrEqual", "LogSoftmax", "LpPool", "MatMul", "Max", "MaxPool",
        "MaxUnpool", "Mean", "MelWeightMatrix", "Min", "Mod", "Mul", "NonMaxSuppression",
        "OneHotEncoder", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        "Reshape", "Resize", "ReverseSequence", "STFT", "Softmax", "Split", "Squeeze", "Sub", "Sum", "TopK", "Where",
        "Xor",
    }
)  # fmt: skip
"""Operators whose kernels in onnxruntime check their inputs by assertions, so that programs see Fail; others say InvalidArgument."""
_STATUS: dict[str, type[Exception]] = {**dict.fromkeys(_FAIL, Fail), "Cast": RuntimeException}
"""What programs see of a refusal, by operator; Cast's, of text that is no number, come from C++'s library."""
_OUT_OF_RANGE: dict[str, type[Exception]] = {"MaxUnpool": InvalidArgument, "Unsqueeze": Fail}
"""Of operators that speak differently of shapes and of numbers out of range, the latter: an IndexError."""


def describe(unit: Unit) -> tuple[str, str, str]:
    """Name, operator and provider of a unit, for reports."""
    if isinstance(unit, KernelUnit):
        return unit.node.name, unit.node.op_type, unit.provider.name
    if isinstance(unit, RegionUnit):
        return unit.region.name, unit.region.graph.name, unit.provider.name
    if isinstance(unit, ControlUnit):
        return unit.node.name, unit.node.op_type, CORE
    value = next(located[0] for located in unit.outs if located is not None)
    return f"copy of {value.name}", "Memcpy", CORE


def step_failure(unit: Unit, cause: Exception) -> Exception:
    """The error of a step, in onnxruntime's words: InvalidArgument or Fail, as the operator has it there, for what a kernel
    refuses in its inputs, else Fail.

    A status error is itself; an EPFail is told whose it is, so that run-time fallback knows whom to leave out.
    """
    name, op_type, provider = describe(unit)
    node = getattr(cause, "node", None)
    if node is not None and isinstance(unit, RegionUnit):
        name, op_type = node.name, node.op_type
    if isinstance(cause, EPFail) and not hasattr(cause, "provider") and provider != CORE:
        cause.provider = provider
    known: Exception = cause
    if isinstance(cause, STATUS_ERRORS):
        return known
    status = _STATUS.get(op_type, InvalidArgument) if isinstance(cause, _REFUSALS) else Fail
    if isinstance(cause, IndexError):
        status = _OUT_OF_RANGE.get(op_type, status)
    error: Exception = status(
        f"Non-zero status code returned while running {op_type} node. Name:'{name}' Status Message: "
        f"{type(cause).__name__}: {cause} (provider {provider})"
    )
    return error


@contextmanager
def failures_of(unit: Unit) -> Iterator[None]:
    """Raise ``step_failure`` for what the block raises."""
    try:
        yield
    except Exception as error:
        failure = step_failure(unit, error)
        if failure is error:
            raise
        raise failure from error
