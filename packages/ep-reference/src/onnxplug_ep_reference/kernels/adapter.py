"""One onnx.reference operator as a kernel: inputs are read out of simulated memory, results are rounded and put back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference.op_run import OpRun

from onnxplug.contract import (
    EPFail,
    Fail,
    Into,
    Kernel,
    NodeView,
    OptionalType,
    RuntimeException,
    SequenceType,
    TensorSpec,
    TensorType,
    ValueType,
)
from onnxplug_ep_reference.kernels.catalogue import OpClass
from onnxplug_ep_reference.kernels.misfits import Inference
from onnxplug_ep_reference.kernels.nodes import to_proto
from onnxplug_ep_reference.memory import SimAllocator, SimTensor, contents

_WIDENED = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

# What these compute depends on the very type of their inputs, or jumps where a rounding falls.
_KEEPS_TYPES = frozenset(
    {"BitCast", "Cast", "CastLike", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear"}
)

# What these compute in half precision is wrong beyond rounding: coordinates land on other pixels, statistics and squares overflow, sums of
# many terms leave the last ones out, LinAlg refuses.
_WIDENS = frozenset(
    {
        "Det", "GridSample", "LayerNormalization", "LogSoftmax", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "Resize",
    }
)  # fmt: skip


class ReferenceKernel(Kernel):
    """Runs one ``OpRun``. ``memory`` None: inputs and results are NumPy arrays. ``double``: arithmetic on floats in float64, which
    some operators use whatever the option says.

    Only dense tensors of numbers live in simulated memory; strings, sequences, optionals and maps are host values.
    """

    def __init__(self, implementation: OpClass, memory: SimAllocator | None, node: NodeView, *, double: bool) -> None:
        parameters = {"log": _no_log, "opsets": {node.domain: node.since_version}, "verbose": 0, "new_ops": None}
        proto = to_proto(node, implementation)
        self._op: OpRun = implementation(proto, parameters)
        self._inference = Inference(proto, node.since_version)
        self._label = f"{node.op_type} ({node.name})"
        self._memory = memory
        self._double = (double and node.op_type not in _KEEPS_TYPES) or node.op_type in _WIDENS
        self._types = [value.type if value is not None else None for value in node.outputs]
        self._present = [value is not None for value in node.outputs]

    def __call__(self, *inputs: Any) -> Any:
        results = self._compute(inputs)
        if self._memory is not None:
            results = [self._store(value, type_) for value, type_ in zip(results, self._types, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Into | None:
        for spec, present in zip(outputs, self._present, strict=True):
            if present and (spec is None or spec.dtype.hasobject):
                return None
        return Into(functools.partial(self._write, len(inputs)))

    def _write(self, count: int, *operands: Any) -> None:
        results = self._compute(operands[:count])
        for target, value in zip(operands[count:], results, strict=True):
            if target is None:
                continue
            place = contents(target, writable=True) if isinstance(target, SimTensor) else target
            if value is None or value.shape != place.shape or value.dtype != place.dtype:
                got = "nothing" if value is None else f"{value.dtype} {value.shape}"
                raise EPFail(f"{self._label}: onnx.reference gave {got} for an output of {place.dtype} {place.shape}")
            np.copyto(place, value)

    def _compute(self, inputs: Sequence[Any]) -> list[Any]:
        """Fresh host values, one for each output of the node, None for an omitted one."""
        values = [contents(value) if isinstance(value, SimTensor) else _read_only(value) for value in inputs]
        if (refusal := self._inference.refusal(values)) is not None:
            raise Fail(f"{self._label}: {refusal}")
        narrow = None
        if self._double:
            narrow = next((v.dtype for v in values if _is_widened(v)), None)
            values = [v.astype(np.float64) if _is_widened(v) else v for v in values]
        try:
            with np.errstate(all="ignore"):
                results = self._op.run(*values)  # type: ignore[no-untyped-call]
        except MemoryError as error:
            raise RuntimeException(f"{self._label}: {error}") from error
        except Exception as error:
            raise Fail(f"{self._label}: onnx.reference: {_innermost(error)}") from error
        padded = [*results, *[None] * len(self._types)]
        return [
            _fresh(value, _element_dtype(type_), narrow) if present else None
            for value, type_, present in zip(padded, self._types, self._present, strict=False)
        ]

    def _store(self, value: Any, type_: ValueType | None) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.hasobject or isinstance(type_, OptionalType):
            return value
        assert self._memory is not None
        try:
            tensor = self._memory.tensor(value.dtype, value.shape)
        except MemoryError as error:
            raise RuntimeException(
                f"Failed to allocate memory for requested buffer of size {value.nbytes}: {error}"
            ) from error
        np.copyto(contents(tensor, writable=True), value)
        return tensor


def _no_log(*_: object) -> None:
    """onnx.reference wants somewhere to log to."""


def _is_widened(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in _WIDENED


def _read_only(value: Any) -> Any:
    """An operator that writes to its input is a bug that must not reach the caller's array."""
    if not isinstance(value, np.ndarray):
        return value
    shown = value.view()
    shown.flags.writeable = False
    return shown


def _fresh(value: Any, declared: np.dtype | None, narrow: np.dtype | None) -> Any:
    """A copy of a result in its declared type: results may be views of inputs, or of what the operator keeps.

    ``narrow`` is the type that a double becomes where none is declared.
    """
    if isinstance(value, list):
        return [_fresh(item, declared, narrow) for item in value]
    if value is None or isinstance(value, dict):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "UST":
        declared = np.dtype(object)
    elif declared is None or declared.hasobject:
        declared = narrow if narrow is not None and array.dtype == np.float64 else array.dtype
    with np.errstate(all="ignore"):
        return np.array(array, dtype=declared, order="C")


def _element_dtype(type_: ValueType | None) -> np.dtype | None:
    while isinstance(type_, SequenceType | OptionalType):
        type_ = type_.element
    return type_.dtype if isinstance(type_, TensorType) else None


def _innermost(error: BaseException) -> str:
    """onnx.reference wraps what went wrong in a TypeError that lists the operand types; the cause says more."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
