"""Float64 arithmetic: results are those of double, rounded once to the declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from reference_values import download, upload
from reference_views import make_node

from onnxplug.contract import TensorType
from onnxplug_ep_reference.provider import ReferenceProvider

Make = Callable[..., ReferenceProvider]


def run(
    provider: ReferenceProvider,
    op_type: str,
    values: list[Any],
    types: dict[str, TensorType] | None = None,
    **attributes: Any,
) -> Any:
    proto = helper.make_node(op_type, [f"x{i}" for i in range(len(values))], ["y"], **attributes)
    node = make_node(proto, 21, types)
    kernel = provider.get_kernel_registry().kernel_for(node).create(node)
    return download(provider, kernel(*[upload(provider, value) for value in values]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("typed", [True, False])
def test_rounded_once(dtype: Any, typed: bool, make_provider: Make) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((40, 40)).astype(dtype) for _ in range(2))
    name = {"float16": "float16", "float32": "float", "bfloat16": "bfloat16"}[a.dtype.name]
    got = run(make_provider(float64="1"), "MatMul", [a, b], {"y": TensorType(name)} if typed else None)
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got, (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype))


def test_it_differs_from_single_arithmetic(make_provider: Make) -> None:
    x = np.full(1000, 0.1, np.float16)
    exact = run(make_provider(float64="1"), "ReduceSum", [x], keepdims=0)
    assert exact == np.float16(x.astype(np.float64).sum())


@pytest.mark.parametrize(
    ("op_type", "attributes", "dtype"),
    [("Cast", {"to": TensorProto.STRING}, np.float32), ("BitCast", {"to": TensorProto.INT32}, np.float32)],
)
def test_operators_about_types_keep_them(
    op_type: str, attributes: dict[str, Any], dtype: Any, make_provider: Make
) -> None:
    values = [np.array([0.1, 2.0], dtype)]
    proto = helper.make_node(op_type, ["x0"], ["y"], **attributes)
    node = make_node(proto, 26)
    plain, double = (
        download(p, p.get_kernel_registry().kernel_for(node).create(node)(upload(p, values[0])))
        for p in (make_provider(), make_provider(float64="1"))
    )
    assert plain.dtype == double.dtype and plain.tolist() == double.tolist()


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2"])
def test_sums_of_many_halves_lose_no_terms(op_type: str, make_provider: Make) -> None:
    """Whatever the option says, and also along an axis whose elements are apart."""
    x = np.full((3000, 2), 20, np.float16)
    got = run(make_provider(), op_type, [x, np.array([0])], keepdims=0)
    wanted = {"ReduceSum": 60000, "ReduceMean": 20, "ReduceL1": 60000, "ReduceL2": 20 * 3000**0.5}[op_type]
    np.testing.assert_array_equal(got, np.full(2, wanted, np.float16))
