"""Element-wise operators and activations: the writing form against the returning form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_nodes import Case, arrays, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug_ep_cpu.kernels.blocks import BLOCK

FLOATS = ("float32", "float64")
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log",
    "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
    "Tanh",
)  # fmt: skip
ACTIVATIONS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Elu", 22, {"alpha": 0.7}), ("Selu", 22, {}), ("HardSigmoid", 22, {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", 22, {}),
    ("LeakyRelu", 16, {"alpha": 0.2}), ("LeakyRelu", 16, {"alpha": 1.5}), ("Mish", 22, {}), ("Gelu", 20, {}),
    ("Gelu", 20, {"approximate": "tanh"}), ("Swish", 24, {"alpha": 1.5}), ("Clip", 6, {"min": -1.0, "max": 2.0}),
)  # fmt: skip
FEW = settings(max_examples=15)  # of each of many operators that one form computes


@st.composite
def broadcast_pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast against each other."""
    whole = draw(shapes)
    parts = [
        tuple(n if draw(st.booleans()) else 1 for n in whole)[draw(st.integers(0, len(whole))) :] for _ in range(2)
    ]
    return parts[0], parts[1]


@pytest.mark.parametrize("op_type", ARITHMETIC)
@pytest.mark.parametrize("dtype", (*FLOATS, "float16", ml_dtypes.bfloat16, "int32", "uint8"))
@FEW
@given(data=st.data())
def test_arithmetic(op_type: str, dtype: Any, data: st.DataObject) -> None:
    a, b = data.draw(broadcast_pairs())
    x, y = data.draw(arrays(a, dtype, True)), data.draw(arrays(b, dtype, True))
    if op_type == "Div" and np.dtype(dtype).kind in "iu":
        case = Case(op_type, 14, x, np.where(y == 0, np.ones_like(y), y))
        assert case.bind(case.returned()) is None  # rounded toward zero: only the returning form does it
    else:
        assert isinstance(Case(op_type, 14, x, y).check(rtol=0, atol=0).call, np.ufunc)


@pytest.mark.parametrize("op_type", ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
@pytest.mark.parametrize("dtype", (*FLOATS, "int64", "float16"))
@FEW
@given(data=st.data())
def test_comparison(op_type: str, dtype: str, data: st.DataObject) -> None:
    a, b = data.draw(broadcast_pairs())
    Case(op_type, 19, data.draw(arrays(a, dtype, True)), data.draw(arrays(b, dtype, True))).check()


@pytest.mark.parametrize("op_type", UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
@FEW
@given(data=st.data())
def test_unary(op_type: str, dtype: str, data: st.DataObject) -> None:
    case = Case(op_type, 22, data.draw(arrays(shapes, dtype, True)))
    if op_type == "Erf" and dtype == "float64":
        assert case.bind(case.returned()) is None
    else:
        case.check()


@pytest.mark.parametrize(("op_type", "version", "attributes"), ACTIVATIONS)
@given(x=arrays(shapes, special=True))
def test_activation(op_type: str, version: int, attributes: dict[str, Any], x: np.ndarray) -> None:
    Case(op_type, version, x, **attributes).check()


@pytest.mark.parametrize("op_type", ("Erf", "LeakyRelu", "Sigmoid", "Gelu", "Mish"))
@pytest.mark.parametrize("size", (BLOCK, BLOCK + 1, 2 * BLOCK + 5))
def test_more_than_one_block(op_type: str, size: int) -> None:
    Case(op_type, 22, np.linspace(-6, 6, size, dtype=np.float32)).check()


@given(data=st.data(), low=st.none() | st.floats(-3, 0, width=32), high=st.none() | st.floats(-1, 3, width=32))
def test_clip(data: st.DataObject, low: float | None, high: float | None) -> None:
    x = data.draw(arrays(shapes, special=True))
    bounds = [None if b is None else np.float32(b) for b in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    Case("Clip", 13, x, *bounds).check()


@given(data=st.data())
def test_prelu(data: st.DataObject) -> None:
    x = data.draw(arrays(st.just((3, 4, 5)), special=True))
    Case("PRelu", 16, x, data.draw(arrays(data.draw(st.sampled_from([(1,), (4, 1), (3, 4, 5)])), special=True))).check()


@given(data=st.data())
def test_where(data: st.DataObject) -> None:
    a, b = data.draw(broadcast_pairs())
    whole = np.broadcast_shapes(a, b)
    Case("Where", 16, data.draw(arrays(whole, bool)), data.draw(arrays(a)), data.draw(arrays(b))).check()


@pytest.mark.parametrize("source", ("float32", "float64", "float16", "int32", "uint8", "bool"))
@pytest.mark.parametrize("to", (1, 2, 6, 7, 9, 10, 11))
@given(data=st.data())
def test_cast(source: str, to: int, data: st.DataObject) -> None:
    x = data.draw(arrays(shapes, source))
    Case("Cast", 19, np.abs(x) if source != "bool" else x, to=to).check()


@pytest.mark.parametrize("exponent", (2.0, 3.0, 0.5, -1.5))
@given(data=st.data(), constant=st.booleans())
def test_power(exponent: float, data: st.DataObject, constant: bool) -> None:
    x = data.draw(arrays(shapes))
    Case("Pow", 15, x, np.float32(exponent), constant=[1] if constant else []).check()


@pytest.mark.parametrize("op_type", ("Max", "Min", "Sum"))
@given(data=st.data(), count=st.integers(1, 4))
def test_of_many(op_type: str, data: st.DataObject, count: int) -> None:
    Case(op_type, 13, *[data.draw(arrays((2, 3), special=True)) for _ in range(count)]).check()


@given(data=st.data(), fmod=st.integers(0, 1))
def test_mod(data: st.DataObject, fmod: int) -> None:
    a, b = data.draw(arrays((4, 3), "int32")), data.draw(arrays((4, 3), "int32"))
    Case("Mod", 13, a, np.where(b == 0, 1, b), fmod=fmod).check()


def test_a_dtype_without_writing_form_returns() -> None:
    case = Case("Sigmoid", 13, np.zeros(3, np.float16))
    assert case.bind(case.returned()) is None


def test_empty_tensors_are_left_to_the_returning_form() -> None:
    case = Case("Add", 14, np.zeros((0, 3), np.float32), np.zeros(3, np.float32))
    assert case.bind(case.returned()) is None
