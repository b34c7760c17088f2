"""Values that shapes decide, larger than the plan keeps: generated where there is a lowering, else computed with the bind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codegen_models import model, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxplug_ep_cpu.codegen import interpret

node = helper.make_node
ONE = {
    "one": np.array(1, np.int64),
    "zero": np.array(0, np.int64),
    "none": np.zeros(1, np.int64),
    "last": np.array([1]),
}


def run(nodes: list[Any], sizes: list[int], constants: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    """The results for each size n of x, float32[n, 8], by one session in which every node is native."""
    x = {"x": np.zeros((3, 8), np.float32)}
    made = session(model(nodes, x, ["z"], ONE | (constants or {}), symbolic=True))
    assert all(str(n["region"]).startswith("native") for n in made.explain().nodes), made.explain()
    return [made.run(None, {"x": row(n)})[0] for n in sizes]


def row(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)


def test_a_mask_of_positions_is_as_large_as_the_sequence_needs() -> None:
    """Range, Trilu and CumSum have no lowering; what follows from them is compared and selected natively."""
    nodes = [
        node("Shape", ["x"], ["shape"], start=0, end=1),
        node("Squeeze", ["shape", "none"], ["n"]),
        node("Range", ["zero", "n", "one"], ["at"]),
        node("Unsqueeze", ["at", "last"], ["rows"]),
        node("Sub", ["at", "rows"], ["far"]),
        node("Abs", ["far"], ["distance"]),
        node("Trilu", ["distance"], ["upper"], upper=1),
        node("CumSum", ["upper", "one"], ["sums"]),
        node("Cast", ["sums"], ["weights"], to=TensorProto.FLOAT),
        node("MatMul", ["weights", "x"], ["z"]),
    ]
    sizes = [3, 70, 71, 3, 200, 70, 5000 // 64]
    for n, z in zip(sizes, run(nodes, sizes), strict=True):
        distance = np.triu(np.abs(np.arange(n)[None, :] - np.arange(n)[:, None]))
        weights = np.cumsum(distance, axis=1).astype(np.float64)
        np.testing.assert_allclose(z, weights @ row(n), rtol=1e-5, atol=n * 2e-7 * weights.max())


def test_positions_beyond_what_the_plan_keeps() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"], start=0, end=1),
        node("Squeeze", ["shape", "none"], ["n"]),
        node("Range", ["zero", "n", "one"], ["at"]),
        node("Cast", ["at"], ["floats"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["floats", "last"], ["column"]),
        node("Mul", ["x", "column"], ["z"]),
    ]
    sizes = [5, 4097, 5000, 4097, 2]
    for n, z in zip(sizes, run(nodes, sizes), strict=True):
        np.testing.assert_array_equal(z, row(n) * np.arange(n, dtype=np.float32)[:, None])


COUNTED = [
    node("Shape", ["x"], ["shape"], start=0, end=1),
    node("ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.int64))),
    node("NonZero", ["ones"], ["places"]),
    node("Transpose", ["places"], ["turned"], perm=[1, 0]),
    node("Squeeze", ["turned"], ["at"]),
    node("Reshape", ["at", "column"], ["rows"]),
    node("Relu", ["x"], ["positive"]),
]
"""As exporters write the range of a slice that is assigned to: the places of as many ones. How many columns NonZero makes follows
from what it reads, which shapes decide."""
COLUMN = {"column": np.array([-1, 1])}


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        ([node("ScatterND", ["x", "rows", "positive"], ["z"])], [5, 70, 3, 4097, 70]),
        ([node("GatherND", ["positive", "rows"], ["z"])], [5, 70, 3, 70]),
    ],
)
def test_positions_counted_by_nonzero(nodes: list[Any], sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpret, "InterpretedRegion")
    for n, z in zip(sizes, run([*COUNTED, *nodes], sizes, COLUMN), strict=True):
        np.testing.assert_array_equal(z, np.maximum(row(n), 0))


def test_padding_computed_in_floating_point() -> None:
    """As exporters write "same" padding: sizes are divided and rounded up as float32."""
    nodes = [
        node("Shape", ["x"], ["shape"], start=0, end=1),
        node("Cast", ["shape"], ["size"], to=TensorProto.FLOAT),
        node("Div", ["size", "four"], ["steps"]),
        node("Ceil", ["steps"], ["up"]),
        node("Mul", ["up", "four"], ["wanted"]),
        node("Sub", ["wanted", "size"], ["missing"]),
        node("Cast", ["missing"], ["pad"], to=TensorProto.INT64),
        node("Concat", ["none", "none", "pad", "none"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Relu", ["padded"], ["z"]),
    ]
    sizes = [5, 8, 13, 5]
    for n, z in zip(sizes, run(nodes, sizes, {"four": np.float32(4)}), strict=True):
        np.testing.assert_array_equal(z, np.maximum(np.pad(row(n), ((0, -n % 4), (0, 0))), 0))


TYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_, ml_dtypes.bfloat16]


@given(st.sampled_from(TYPES), st.lists(st.integers(0, 90), max_size=3), st.integers(0, 1))
@settings(max_examples=40, deadline=None)
def test_constant_of_shape(dtype: Any, dims: list[int], value: int) -> None:
    """ONNX operator specification, ConstantOfShape-9: a tensor of the shape filled with the value."""
    filler = numpy_helper.from_array(np.full(1, value, dtype), "value")
    shape = np.zeros(dims, np.float32)
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["z"], value=filler),
        node("Neg", ["x"], ["y"]),
    ]
    made = session(
        model(
            nodes,
            {"x": shape},
            ["z", "y"],
            symbolic=True,
            types={"z": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))},
        )
    )
    z, _ = made.run(None, {"x": shape})
    assert z.dtype == dtype and z.shape == shape.shape
    np.testing.assert_array_equal(z.astype(np.float64), np.full(shape.shape, value))


def test_a_filled_tensor_without_a_value_is_float_zeros_in_a_region() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["c"]), node("Sub", ["c", "x"], ["z"])]
    for n, z in zip([2, 700], run(nodes, [2, 700]), strict=True):
        np.testing.assert_array_equal(z, -row(n))
