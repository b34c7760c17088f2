"""What a run raises for an exception of one of its steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from onnxplug.contract.errors import STATUS_ERRORS, EPFail, Fail, InvalidArgument, RuntimeException
from onnxplug.graph.plain import plain
from onnxplug.place.units import CORE, ControlUnit, KernelUnit, RegionUnit, Unit

_REFUSALS = (ValueError, TypeError, IndexError)
"""What kernels raise for inputs the operator's specification forbids."""

_FAIL = frozenset(
    {
        "Add", "And", "ArgMax", "ArgMin", "AveragePool", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
        "BlackmanWindow", "Clip", "Col2Im", "Concat", "ConstantOfShape", "Conv", "CumSum", "DFT", "DequantizeLinear",
        "Div", "Dropout", "Equal", "Flatten", "GatherElements", "Greater", "GreaterOrEqual", "GridSample",
        "HammingWindow", "HannWindow", "If", "LRN", "Less", "LessOrEqual", "LogSoftmax", "Loop",
        "LpPool", "MatMul", "MatMulInteger", "Max", "MaxPool",
        "MaxRoiPool", "MaxUnpool", "Mean", "MelWeightMatrix", "Min", "Mod", "Mul", "NonMaxSuppression",
        "OneHotEncoder", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        "Reshape", "Resize", "ReverseSequence", "STFT", "Softmax", "Split", "Squeeze", "Sub", "Sum", "TopK", "Where",
        "Xor",
    }
)  # fmt: skip
"""Operators whose kernels in onnxruntime check their inputs by assertions, so that programs see Fail; others say InvalidArgument."""
_STATUS: dict[str, type[Exception]] = {**dict.fromkeys(_FAIL, Fail), "Cast": RuntimeException}
"""What programs see of a refusal, by operator; Cast's, of text that is no number, come from C++'s library."""
_OUT_OF_RANGE: dict[str, type[Exception]] = {"Unsqueeze": Fail}
"""Of operators that speak differently of shapes and of numbers out of range, the latter: an IndexError."""
_NAMED: dict[str, type[Exception]] = {str(each.status): each for each in STATUS_ERRORS}


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


def step_failure(unit: Unit, cause: Exception, operands: Sequence[Any] = ()) -> Exception:
    """The error of a step, in onnxruntime's words: InvalidArgument or Fail, as the operator has it there, for what a kernel
    refuses in its inputs, else Fail. ``operands``: what the unit read, None for an omitted one; a region's nodes say themselves what they
    read, as ``operands`` of the exception beside its ``node``.

    A status error is itself; an EPFail is told whose it is, so that run-time fallback knows whom to leave out. A kernel's refusal
    whose ``status`` is None or a status's name ("INVALID_ARGUMENT") speaks as onnxruntime does; the name decides what is raised.
    """
    name, op_type, provider = describe(unit)
    node = getattr(cause, "node", None)
    if node is not None and isinstance(unit, RegionUnit) and node in unit.region.graph.nodes:
        name, op_type = node.name, node.op_type
        operands = getattr(cause, "operands", ())[: len(node.inputs)]
    elif isinstance(unit, KernelUnit | ControlUnit):
        operands = operands[: len(unit.node.inputs)]  # without what its bodies capture
    if isinstance(cause, EPFail) and not hasattr(cause, "provider") and provider != CORE:
        cause.provider = provider
    if isinstance(cause, STATUS_ERRORS):
        return cause
    status = _STATUS.get(op_type, InvalidArgument) if isinstance(cause, _REFUSALS) else Fail
    if isinstance(cause, IndexError):
        status = _OUT_OF_RANGE.get(op_type, status)
    status = _NAMED.get(_named(cause) or "", status)
    return status(
        f"Non-zero status code returned while running {op_type} node. Name:'{name}' Status Message: "
        f"{_words(op_type, cause, operands)} (provider {provider})"
    )


def _named(cause: Exception) -> str | None:
    """What a refusal calls itself: ``""`` for what the operator's are called as a rule, None for an exception that is no refusal.
    Exceptions of other libraries have attributes ``status`` too."""
    status = getattr(cause, "status", cause)
    if status is None and isinstance(cause, _REFUSALS):
        return ""
    return status if isinstance(status, str) and status in _NAMED else None


def _unequal(found: re.Match[str]) -> str | None:
    shapes = [list(map(int, re.findall("[0-9]+", shape)))[::-1] for shape in found[1].split(")")[:-1]]
    pairs = ((m, n) for i, a in enumerate(shapes) for b in shapes[i + 1 :] for m, n in zip(a, b, strict=False))
    odd = next(((m, n) for m, n in pairs if m != n and 1 not in (m, n)), None)
    return odd and f"Attempting to broadcast an axis by a dimension other than 1. {min(odd)} by {max(odd)}"


_WORDS: tuple[tuple[frozenset[str], str, Callable[[re.Match[str]], str | None]], ...] = (
    (_FAIL, r"operands could not be broadcast together with shapes ((?:\([0-9, ]*\) ?)+)$", _unequal),
    (
        frozenset({"MatMul", "MatMulInteger"}),
        "matmul: .* mismatch in its core dimension",
        lambda found: "MatMul dimension mismatch",
    ),
    (
        frozenset({"Gather", "ScatterElements"}),
        r"index (-?[0-9]+) is out of bounds for axis [0-9]+ with size ([0-9]+)$",
        lambda found: (
            f"indices element out of data bounds, idx={found[1]} must be within the inclusive range "
            f"[-{found[2]},{int(found[2]) - 1}]"
        ),
    ),
    (
        frozenset({"Concat"}),
        r".* along dimension ([0-9]+), the array at index [0-9]+ has size ([0-9]+) and the array at index [0-9]+ has size ([0-9]+)$",
        lambda found: (
            f"Non concat axis dimensions must match: Axis {found[1]} has mismatched dimensions of {found[3]} and {found[2]}"
        ),
    ),
    (
        frozenset({"If"}),
        "can only convert an array of size 1",
        lambda found: "If nodes condition input must have exactly one element",
    ),
    (frozenset({"Expand"}), "shape mismatch: objects cannot be broadcast", lambda found: "invalid expand shape"),
)
"""What NumPy says in kernels of these operators, and what onnxruntime says of it."""


def _words(op_type: str, cause: Exception, operands: Sequence[Any]) -> str:
    """What a cause says, in onnxruntime's words where they are known, and of operands rather than of arrays inside a kernel."""
    text = str(cause)
    if _named(cause) is not None:
        return text
    for operators, pattern, speak in _WORDS:
        if op_type in operators and (found := re.match(pattern, text)) and (said := speak(found)):
            return said
    return plain(cause, operands) or f"{type(cause).__name__}: {text}"


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
