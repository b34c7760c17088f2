"""Element-wise operators that are one ufunc, or a few: the bound call is the ufunc itself wherever it can be."""

from __future__ import annotations

import numpy as np

from onnxplug.contract import Into
from onnxplug_ep_cpu.kernels.blocks import blockwise
from onnxplug_ep_cpu.kernels.forms import (
    ANY_FLOAT,
    BOOL,
    FLOAT,
    INTEGER,
    NUMBER,
    Binder,
    Specs,
    given,
    into,
    scalar,
)
from onnxplug_kernels.arithmetic import no_zero

_HALF = frozenset({"float16"})
_SINGLE_UP = FLOAT | _HALF  # bfloat16 ufuncs exist only for arithmetic

Table = dict[str, tuple[np.ufunc, int, int, frozenset[str]]]


def _same(ufunc: np.ufunc) -> Binder:
    """The binder of an operator that is ``ufunc``."""

    def bind(inputs: Specs, outputs: Specs) -> Into | None:
        return Into(ufunc)

    return bind


# Operator: ufunc, first and last schema version, dtypes.
_BINARY: Table = {
    "Add": (np.add, 7, 14, NUMBER),
    "Sub": (np.subtract, 7, 14, NUMBER),
    "Mul": (np.multiply, 7, 14, NUMBER),
    "Div": (np.divide, 7, 14, ANY_FLOAT),
    "And": (np.logical_and, 7, 7, BOOL),
    "Or": (np.logical_or, 7, 7, BOOL),
    "Xor": (np.logical_xor, 7, 7, BOOL),
    "BitwiseAnd": (np.bitwise_and, 18, 18, INTEGER),
    "BitwiseOr": (np.bitwise_or, 18, 18, INTEGER),
    "BitwiseXor": (np.bitwise_xor, 18, 18, INTEGER),
}
_UNARY: Table = {
    "Abs": (np.absolute, 6, 13, NUMBER),
    "Acos": (np.arccos, 7, 22, _SINGLE_UP),
    "Acosh": (np.arccosh, 9, 22, _SINGLE_UP),
    "Asin": (np.arcsin, 7, 22, _SINGLE_UP),
    "Asinh": (np.arcsinh, 9, 22, _SINGLE_UP),
    "Atan": (np.arctan, 7, 22, _SINGLE_UP),
    "Atanh": (np.arctanh, 9, 22, _SINGLE_UP),
    "BitwiseNot": (np.invert, 18, 18, INTEGER),
    "Ceil": (np.ceil, 6, 13, _SINGLE_UP),
    "Cos": (np.cos, 7, 22, _SINGLE_UP),
    "Cosh": (np.cosh, 9, 22, _SINGLE_UP),
    "Exp": (np.exp, 6, 13, _SINGLE_UP),
    "Floor": (np.floor, 6, 13, _SINGLE_UP),
    "Log": (np.log, 6, 13, _SINGLE_UP),
    "Neg": (np.negative, 6, 13, NUMBER),
    "Not": (np.logical_not, 1, 1, BOOL),
    "Reciprocal": (np.reciprocal, 6, 13, _SINGLE_UP),
    "Round": (np.rint, 11, 22, _SINGLE_UP),
    "Sign": (np.sign, 9, 13, _SINGLE_UP | INTEGER),
    "Sin": (np.sin, 7, 22, _SINGLE_UP),
    "Sinh": (np.sinh, 9, 22, _SINGLE_UP),
    "Sqrt": (np.sqrt, 6, 13, _SINGLE_UP),
    "Tan": (np.tan, 7, 22, _SINGLE_UP),
    "Tanh": (np.tanh, 6, 13, _SINGLE_UP),
}
_TO_BOOL: Table = {
    "Equal": (np.equal, 7, 19, NUMBER | BOOL),
    "Greater": (np.greater, 7, 13, NUMBER),
    "GreaterOrEqual": (np.greater_equal, 12, 16, NUMBER),
    "Less": (np.less, 7, 13, NUMBER),
    "LessOrEqual": (np.less_equal, 12, 16, NUMBER),
    "IsNaN": (np.isnan, 9, 20, ANY_FLOAT),
}
# Results of the same type as the inputs may lie over them.
for _table, _inplace in ((_BINARY, (0, 1)), (_UNARY, (0,)), (_TO_BOOL, ())):
    for _op_type, (_ufunc, _since, _until, _dtypes) in _table.items():
        into(_op_type, _since, _until, dtypes=_dtypes, inplace=_inplace)(_same(_ufunc))


@into("BitShift", 11, 28, dtypes=INTEGER, inplace=(0, 1))
def bit_shift(inputs: Specs, outputs: Specs, *, direction: str) -> Into | None:
    """``x`` shifted; NumPy's shifts shift every bit out for counts that are no place of a bit, as the operator does."""
    return Into(np.left_shift if direction == "LEFT" else np.right_shift)


def _of_many(ufunc: np.ufunc) -> Binder:
    """The binder of an operator that folds any number of inputs with ``ufunc``."""

    def bind(inputs: Specs, outputs: Specs) -> Into | None:
        if len(inputs) == 1:
            return Into(_copy)
        if len(inputs) == 2:
            # np.maximum and np.minimum deprecate a positional output.
            return Into(lambda a, b, y: ufunc(a, b, out=y))

        def fold(*operands: np.ndarray) -> None:
            y = operands[-1]
            ufunc(operands[0], operands[1], out=y)
            for x in operands[2:-1]:
                ufunc(y, x, out=y)

        return Into(fold)

    return bind


into("Max", 8, 13, dtypes=NUMBER)(_of_many(np.maximum))
into("Min", 8, 13, dtypes=NUMBER)(_of_many(np.minimum))
into("Sum", 8, 13, dtypes=FLOAT)(_of_many(np.add))


def _copy(x: np.ndarray, y: np.ndarray) -> None:
    np.copyto(y, x)


@into("Mod", 10, 28, dtypes=FLOAT | INTEGER, inplace=(0, 1))
def mod(inputs: Specs, outputs: Specs, *, fmod: int = 0) -> Into | None:
    """The remainder with the sign of the divisor (fmod=0) or of the dividend."""
    function = np.fmod if fmod else np.remainder
    if inputs[1].dtype.kind == "f":
        return Into(function)

    def call(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
        function(a, no_zero(np, b), y)

    return Into(call)


@into("Pow", 7, 15, dtypes=FLOAT, inplace=(0,))
def power(inputs: Specs, outputs: Specs) -> Into | None:
    """Powers; the small constant exponents that models hold are products."""
    base, exponent = inputs
    number = exponent.constant.item() if exponent.constant is not None and exponent.constant.size == 1 else None
    if base.shape == outputs[0].shape:
        if number == 2:
            return Into(lambda x, _, y: np.square(x, y))
        if number == 3:
            bound = blockwise(_cube, base, scratch=1)
            return Into(lambda x, _, y, workspace: bound.call(x, y, workspace), bound.workspace)
    return Into(np.power) if exponent.dtype == base.dtype else None


def _cube(x: np.ndarray, y: np.ndarray, square: np.ndarray) -> None:
    np.square(x, square)
    np.multiply(square, x, y)


@into("Where", 9, 16, inplace=(2,))
def where(inputs: Specs, outputs: Specs) -> Into | None:
    """``x`` where the condition holds, else ``y``; writing over ``y`` leaves it where it is."""

    def choose(condition: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, y)
        np.copyto(out, x, where=condition)

    return Into(choose)


@into("Clip", 11, 13, dtypes=_SINGLE_UP | INTEGER, inplace=(0,))
def clip(inputs: Specs, outputs: Specs) -> Into | None:
    """``x`` limited to [low, high], by default the finite numbers of its type; ``high`` wins where they cross."""
    if any(bound is not None and len(bound.shape) > len(inputs[0].shape) for bound in inputs[1:]):
        return None  # a list of one for a scalar
    dtype = inputs[0].dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low = None if given(inputs, 1) else scalar(limits.min, dtype)
    high = None if given(inputs, 2) else scalar(limits.max, dtype)
    return Into(
        lambda *operands: operands[0].clip(
            operands[1] if low is None else low, operands[2] if high is None else high, operands[-1]
        )
    )


@into("Clip", 6, 6, dtypes=_SINGLE_UP, inplace=(0,))
def clip_6(
    inputs: Specs, outputs: Specs, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Into | None:
    """``x`` limited to [min, max], by default the range of float32."""
    low, high = scalar(min, inputs[0].dtype), scalar(max, inputs[0].dtype)
    return Into(lambda x, y: x.clip(low, high, y))


@into("Cast", 6, 28, dtypes=FLOAT | _HALF | INTEGER | BOOL)
def cast(inputs: Specs, outputs: Specs, *, to: int, saturate: int = 1, round_mode: str = "up") -> Into | None:
    """Conversions among NumPy's own types."""
    y = outputs[0]
    if y.dtype.name not in FLOAT | _HALF | INTEGER | BOOL:
        return None
    return Into(lambda x, y: np.copyto(y, x, casting="unsafe"))
