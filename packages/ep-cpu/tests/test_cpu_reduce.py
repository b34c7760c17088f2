"""Reductions: the writing form against the returning form."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_nodes import Case, arrays, shapes
from hypothesis import given
from hypothesis import strategies as st

SIMPLE = ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum")
LAST_AXES = ("ReduceL2", "ReduceSumSquare")


@pytest.mark.parametrize("op_type", (*SIMPLE, "ReduceMean"))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int32", "int8"))
@given(data=st.data(), keepdims=st.integers(0, 1))
def test_reduction(op_type: str, dtype: str, data: st.DataObject, keepdims: int) -> None:
    x = data.draw(arrays(shapes.filter(len), dtype))
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), unique=True))
    given_axes = np.array([a - x.ndim if data.draw(st.booleans()) else a for a in axes], np.int64)
    case = Case(op_type, 20, x, given_axes, constant=[1], keepdims=keepdims)
    if op_type == "ReduceMean" and np.dtype(dtype).kind == "i":
        assert case.bind(case.returned()) is None
    else:
        case.check(1e-4, 1e-5)
        if axes and dtype != "int8":
            Case(op_type, 11, x, axes=given_axes.tolist(), keepdims=keepdims).check(1e-4, 1e-5)


@pytest.mark.parametrize("op_type", LAST_AXES)
@given(data=st.data(), keepdims=st.integers(0, 1))
def test_sums_of_squares(op_type: str, data: st.DataObject, keepdims: int) -> None:
    x = data.draw(arrays(shapes.filter(len)))
    count = data.draw(st.integers(1, x.ndim))
    axes = np.arange(x.ndim - count, x.ndim)
    Case(op_type, 18, x, axes, constant=[1], keepdims=keepdims).check(1e-4, 1e-5)


def test_axes_of_the_run_are_left_to_the_returning_form() -> None:
    case = Case("ReduceSum", 13, np.ones((2, 3), np.float32), np.array([1]))
    assert case.bind(case.returned()) is None


@pytest.mark.parametrize("op_type", ("ReduceMean", *SIMPLE))
def test_scalars_are_left_to_the_returning_form(op_type: str) -> None:
    """It looks at none of their axes."""
    case = Case(op_type, 11, np.array(2, np.float32), axes=[0, -1], keepdims=1)
    np.testing.assert_array_equal(case.returned(), [np.array(2, np.float32)])
    assert case.bind(case.returned()) is None


@pytest.mark.parametrize("op_type", ("ArgMax", "ArgMin"))
@given(data=st.data(), keepdims=st.integers(0, 1), last=st.integers(0, 1))
def test_positions(op_type: str, data: st.DataObject, keepdims: int, last: int) -> None:
    x = data.draw(arrays(shapes.filter(len), data.draw(st.sampled_from(["float32", "int32"]))))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    case = Case(op_type, 13, x, axis=axis, keepdims=keepdims, select_last_index=last)
    if last:
        assert case.bind(case.returned()) is None
    else:
        case.check()
