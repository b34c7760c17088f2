"""Operators on 8-bit tensors with one scale and zero point each, and quantization itself."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call, Required, contrib
from onnxplug_ep_cpu.schemas.norm import BYTES
from onnxplug_ep_cpu.schemas.shapes import broadcast, plus, same

_UNARY = "X: T, X_scale: float, X_zero_point: T?, Y_scale: float, Y_zero_point: T? -> Y: T"
_BINARY = (
    "A: T, A_scale: float, A_zero_point: T?, B: T, B_scale: float, B_zero_point: T?, C_scale: float, "
    "C_zero_point: T? -> C: T"
)
_SMALL = ("int4", "uint4", "int8", "uint8", "int16", "uint16")

contrib(
    "QuantizeLinear",
    "x: T1, y_scale: T1, y_zero_point: T2? -> y: T2",
    {"axis": int},
    T1=("float16", "float"),
    T2=_SMALL,
    unbound={"T2": lambda call: "uint8"},
)(same)
contrib(
    "DequantizeLinear",
    "x: T1, x_scale: T2, x_zero_point: T1? -> y: T2",
    {"axis": int},
    T1=(*_SMALL, "int32"),
    T2=("float16", "float"),
)(same)
contrib("QLinearSigmoid", _UNARY, T=BYTES)(same)
contrib("QLinearLeakyRelu", _UNARY, {"alpha": 0.01}, T=BYTES)(same)
contrib(
    "QLinearSoftmax",
    "X: T, X_scale: float, x_zero_point: T?, y_scale: float, y_zero_point: T -> Y: T",
    {"axis": -1, "opset": Required(int)},
    T=BYTES,
)(same)


@contrib("QLinearAdd", _BINARY, T=BYTES)
@contrib("QLinearMul", _BINARY, T=BYTES)
def binary(call: Call) -> Sequence[Shape | None]:
    """A and B broadcast."""
    return [broadcast(call.shape(0), call.shape(3))]


@contrib(
    "QLinearWhere",
    "condition: B, X: T, x_scale: TF, x_zero_point: T, Y: T, y_scale: TF, y_zero_point: T, z_scale: TF, "
    "z_zero_point: T -> Z: T",
    B=("bool",),
    TF=("float",),
    T=BYTES,
)
def where(call: Call) -> Sequence[Shape | None]:
    """Condition, X and Y broadcast."""
    return [broadcast(call.shape(0), broadcast(call.shape(1), call.shape(4)))]


@contrib(
    "QLinearConcat",
    "Y_scale: TF, Y_zero_point: T8, inputs: TV*~ -> Y: T8",
    {"axis": Required(int)},
    TF=("float",),
    T8=BYTES,
    TV=("float", *BYTES),
)
def concat(call: Call) -> Sequence[Shape | None]:
    """The inputs, each followed by scale and zero point, one behind the other."""
    shapes = [call.shape(index) for index in range(2, call.inputs, 3)]
    first = shapes[0]
    if first is None:
        return [None]
    axis = call.attribute("axis") % len(first)
    total: Dim = 0
    for shape in shapes:
        total = None if shape is None or total is None else plus(total, shape[axis])
    return [(*first[:axis], total, *first[axis + 1 :])]


@contrib(
    "QLinearReduceMean",
    "data: T, data_scale: float, data_zero_point: T?, reduced_scale: float, reduced_zero_point: T? -> reduced: T",
    {"axes": Required(list[int]), "keepdims": Required(int)},
    T=BYTES,
)
def reduce_mean(call: Call) -> Sequence[Shape | None]:
    """Without the axes, or with ones in their place."""
    x = call.shape(0)
    if x is None:
        return [None]
    axes = {a % len(x) for a in call.attribute("axes") or range(len(x))}
    if call.attribute("keepdims"):
        return [tuple(1 if i in axes else d for i, d in enumerate(x))]
    return [tuple(d for i, d in enumerate(x) if i not in axes)]
