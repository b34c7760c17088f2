"""Matrix products: the writing form against the returning form."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_nodes import Case, arrays
from hypothesis import given
from hypothesis import strategies as st

SIZE = st.integers(1, 6)


@st.composite
def operands(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands of MatMul, vectors and batches included."""
    m, k, n = draw(SIZE), draw(SIZE), draw(SIZE)
    batch = draw(st.lists(SIZE, max_size=2).map(tuple))
    left = (*batch, m, k) if draw(st.booleans()) else draw(st.sampled_from([(k,), (m, k)]))
    right = draw(st.sampled_from([(k,), (k, n), (*batch, k, n), (*(1 for _ in batch), k, n)]))
    return left, right


@given(data=st.data(), shapes=operands(), dtype=st.sampled_from(["float32", "float64"]))
def test_matmul(data: st.DataObject, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    a, b = (data.draw(arrays(s, dtype)) for s in shapes)
    Case("MatMul", 13, a, b).check(rtol=1e-4, atol=1e-4)


@given(data=st.data(), m=SIZE, k=SIZE, n=SIZE, trans_a=st.integers(0, 1), trans_b=st.integers(0, 1))
def test_gemm(data: st.DataObject, m: int, k: int, n: int, trans_a: int, trans_b: int) -> None:
    a = data.draw(arrays((k, m) if trans_a else (m, k)))
    b = data.draw(arrays((n, k) if trans_b else (k, n)))
    c = [data.draw(arrays(data.draw(st.sampled_from([(), (n,), (m, 1), (m, n), (1, n)]))))]
    c = c if data.draw(st.booleans()) else []
    alpha, beta = (data.draw(st.sampled_from([1.0, 0.5, 0.0])) for _ in range(2))
    Case("Gemm", 13, a, b, *c, alpha=alpha, beta=beta, transA=trans_a, transB=trans_b).check(rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op_type", ("MatMul", "Gemm"))
def test_other_types_return(op_type: str) -> None:
    case = Case(op_type, 13, np.ones((2, 3), np.float16), np.ones((3, 4), np.float16))
    assert case.bind(case.returned()) is None
