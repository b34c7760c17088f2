"""Writing forms: functions that specialise an operator to dtypes and shapes, next to the catalogue's returning form.

A binder has the fixed form::

    binder(inputs, outputs, **attributes) -> Into | None

with one ``TensorSpec`` for each operand (None for an omitted input; a node that omits an output has no such form) and the attributes
of the schema. It runs when a plan is made; what it returns runs in every run and allocates nothing. None leaves the node to the
returning form.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Into, Kernel
from onnxplug.contract.records import record

# Operands of a node: a TensorSpec each, or None for an omitted one.
Specs = Sequence[Any]
Binder = Callable[..., Into | None]

FAMILIES = {
    "activation": (
        "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "QuickGelu", "Relu", "Selu",
        "Sigmoid", "Softplus", "Softsign", "Swish",
    ),
    "conv": ("Conv",),
    "elementwise": (
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd",
        "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Clip", "Cos", "Cosh", "Div", "Equal", "Exp", "Floor", "Greater",
        "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
        "Pow", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Where", "Xor",
    ),
    "gather": ("Gather",),
    "matmul": ("Gemm", "MatMul"),
    "move": ("Concat", "DepthToSpace", "Expand", "Pad", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose"),
    "norm": (
        "BatchNormalization", "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax", "RMSNormalization",
        "SimplifiedLayerNormalization", "Softmax",
    ),
    "pool": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
    "quantize": ("DequantizeLinear", "QuantizeLinear"),
    "reduce": (
        "ArgMax", "ArgMin", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare",
    ),
}  # fmt: skip
"""Module -> operators, of whatever domain; a test compares."""

# Names of dtypes: a process whose models have no bfloat16 does not import ml_dtypes.
FLOAT = frozenset({"float32", "float64"})
ANY_FLOAT = FLOAT | {"float16", "bfloat16"}
INTEGER = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
BOOL = frozenset({"bool"})
NUMBER = ANY_FLOAT | INTEGER


@record(frozen=True, slots=True)
class Form:
    """One writing form: schema versions, names of dtypes of the first input (None: any), inputs it may write over."""

    since: int
    until: int
    bind: Binder
    dtypes: frozenset[str] | None
    inplace: tuple[int, ...]


_forms: dict[tuple[str, str], list[Form]] = {}


def into(
    op_type: str,
    since: int,
    until: int,
    *,
    dtypes: frozenset[str] | None = None,
    inplace: Sequence[int] = (),
    domain: str = "",
) -> Callable[[Binder], Binder]:
    """Enter the decorated binder as the writing form of ``op_type`` for schema versions ``since``..``until``."""

    def enter(binder: Binder) -> Binder:
        _forms.setdefault((domain, op_type), []).append(Form(since, until, binder, dtypes, tuple(inplace)))
        return binder

    return enter


def forms(domain: str, op_type: str) -> Sequence[Form]:
    """The writing forms of an operator; only its families are imported."""
    for family in FAMILIES:
        if op_type in FAMILIES[family]:
            importlib.import_module(f"{__package__}.{family}")
    return _forms.get((domain, op_type), ())


class NumPyKernel(Kernel):
    """A node with both forms: the catalogue's function with its attributes, and a binder. Operands of which ``unfit`` says something
    are left to the function, which refuses them."""

    __slots__ = ("_attributes", "_form", "_function", "_unfit")

    def __init__(
        self,
        function: Callable[..., Any],
        form: Form,
        attributes: Mapping[str, Any],
        unfit: Callable[[Specs], str | None] | None,
    ) -> None:
        self._function, self._form, self._attributes, self._unfit = function, form, attributes, unfit

    def __call__(self, *inputs: Any) -> Any:
        return self._function(*inputs)

    def bind(self, inputs: Specs, outputs: Specs) -> Into | None:
        form = self._form
        if not inputs or inputs[0] is None or not outputs or any(y is None for y in outputs):
            return None
        if form.dtypes is not None and inputs[0].dtype.name not in form.dtypes:
            return None
        if any(spec is not None and spec.dtype.kind == "O" for spec in (*inputs, *outputs)):
            return None
        if any(spec is not None and 0 in spec.shape for spec in (inputs[0], *outputs)):
            return None  # empty tensors take no time in any form
        if self._unfit is not None and self._unfit(inputs) is not None:
            return None
        return form.bind(inputs, outputs, **self._attributes)


def scalar(value: float, dtype: np.dtype) -> np.ndarray:
    """A 0-d array: the form of a constant operand that ufuncs take fastest."""
    return np.array(value, dtype=dtype)


def lowest(dtype: np.dtype) -> np.ndarray:
    """The 0-d array below every element of a dtype. Clipping between two limits is faster than a maximum with one."""
    return scalar(-np.inf if dtype.kind == "f" else np.iinfo(dtype).min, dtype)


def highest(dtype: np.dtype) -> np.ndarray:
    """The 0-d array that is above every element of a dtype."""
    return scalar(np.inf if dtype.kind == "f" else np.iinfo(dtype).max, dtype)


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front."""
    return axis + rank if axis < 0 else axis


def constant_ints(inputs: Specs, index: int) -> tuple[int, ...] | None:
    """The values of a constant integer input; None when it is omitted or known only at run time."""
    if not given(inputs, index):
        return None
    constant = inputs[index].constant
    return None if constant is None else tuple(int(v) for v in constant.reshape(-1))


def given(operands: Specs, index: int) -> bool:
    """Whether an optional operand is there."""
    return index < len(operands) and operands[index] is not None
