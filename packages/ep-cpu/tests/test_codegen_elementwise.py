"""Element-wise operators of generated code: activations, arithmetic, comparison, logic, conversion, over any strides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codegen_models import check, model, run_native, run_numpy, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug.contract.errors import Fail

node = helper.make_node
ODD = np.array([0.0, -0.0, 1e-7, -1e-7, 1.0, -1.0, 5.5, -5.5, 20.0, -20.0, 89.0, -89.0, 1e30, -1e30], np.float32)
ENDS = np.array([np.inf, -np.inf, np.nan], np.float32)


def numbers(n: int = 203, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([ODD, (3 * rng.standard_normal(n - len(ODD))).astype(np.float32)])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Relu", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.7}),
        ("Elu", {"alpha": 0.5}), ("Celu", {"alpha": 2.0}), ("Selu", {}), ("Selu", {"alpha": 1.5, "gamma": 0.5}),
        ("HardSigmoid", {}), ("HardSwish", {}), ("Softplus", {}), ("Mish", {}), ("Softsign", {}), ("Reciprocal", {}),
        ("Shrink", {"bias": 0.2, "lambd": 0.9}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("Sigmoid", {}),
        ("Tanh", {}), ("Erf", {}), ("Sqrt", {}), ("Exp", {}), ("Log", {}), ("Abs", {}), ("Neg", {}), ("Floor", {}),
        ("Ceil", {}), ("Round", {}), ("Sign", {}), ("Sin", {}), ("Cos", {}), ("Tan", {}), ("Atan", {}), ("Asin", {}),
        ("Acos", {}),
    ],
)  # fmt: skip
def test_unary(op: str, attributes: dict[str, Any]) -> None:
    x = numbers()
    if op in ("Sin", "Cos", "Tan"):
        x = x[np.abs(x) < 1e4]
    proto = model(
        [node("Mul", ["x", "one"], ["z"]), node(op, ["z"], ["y"], **attributes)],
        {"x": x},
        ["y"],
        {"one": np.float32(1)},
    )
    check(proto, {"x": x})
    (ends,) = check(proto, {"x": np.resize(ENDS, x.shape)}) if op not in ("Mish", "Gelu", "HardSwish") else [x]
    assert ends.shape == x.shape


@pytest.mark.parametrize(("op", "alpha"), [("Gelu", None), ("BiasGelu", None), ("FastGelu", None), ("QuickGelu", 1.5)])
def test_contrib_gelu(op: str, alpha: float | None) -> None:
    x, bias = numbers(210).reshape(3, 70), numbers(70, seed=1)
    inputs = ["z", "b"] if op in ("BiasGelu", "FastGelu") else ["z"]
    more = {} if alpha is None else {"alpha": alpha}
    nodes = [node("Neg", ["x"], ["z"]), node(op, inputs, ["y"], domain="com.microsoft", **more)]
    check(model(nodes, {"x": x}, ["y"], {"b": bias}), {"x": x})


@st.composite
def broadcast_pair(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    other = [n if draw(st.booleans()) else 1 for n in full][draw(st.integers(0, len(full))) :]
    return tuple(full), tuple(other)


@given(broadcast_pair(), st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Min"]), st.permutations(range(4)))
def test_binary_broadcasts_any_strides(pair: tuple[Any, Any], op: str, order: list[int]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) + 3 for shape in pair)
    perm = [d for d in order if d < x.ndim]
    x = np.ascontiguousarray(x.transpose(np.argsort(perm)))
    nodes = [node("Transpose", ["x"], ["t"], perm=perm), node(op, ["t", "y"], ["u"]), node("Relu", ["u"], ["z"])]
    check(model(nodes, {"x": x, "y": y}, ["z"]), {"x": x, "y": y})


@settings(max_examples=30)
@given(
    st.integers(1, 3),
    st.integers(1, 700),
    st.integers(1, 15),
    st.integers(0, 3),
    st.sampled_from([np.uint8, np.float32]),
)
def test_many_short_rows(images: int, rows: int, columns: int, fixed: int, dtype: Any) -> None:
    """Pixels of few channels, of which operands hold one value each; also one value for each image and channel, or pixel."""
    rng = np.random.default_rng(rows)
    x = rng.integers(0, 255, (images, rows, columns)).astype(dtype)
    by = [(columns,), (1, rows, columns), (images, 1, columns), (1, rows, 1)][fixed]
    constants = {
        "mean": rng.standard_normal(columns).astype(np.float32),
        "by": rng.standard_normal(by).astype(np.float32),
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("Transpose", ["t"], ["u"], perm=[0, 2, 1]),
        node("Cast", ["u"], ["f"], to=TensorProto.FLOAT), node("Sub", ["f", "mean"], ["d"]), node("Mul", ["d", "by"], ["z"]),
    ]  # fmt: skip
    check(model(nodes, {"x": x}, ["z"], constants), {"x": x})


@given(broadcast_pair(), st.sampled_from([np.int64, np.int32]))
def test_integers_are_exact(pair: tuple[Any, Any], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**31), 2**31 - 1, shape).astype(dtype) for shape in pair)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        node("Add", ["x", "y"], ["a"]), node("Mul", ["a", "x"], ["m"]), node("Sub", ["m", "y"], ["s"]),
        node("Div", ["s", "seven"], ["d"]), node("Mod", ["s", "seven"], ["r"]), node("Mod", ["s", "minus"], ["q"]),
        node("Mod", ["s", "seven"], ["f"], fmod=1), node("Max", ["d", "r", "q"], ["e"]), node("Min", ["e", "f"], ["g"]),
        node("Less", ["g", "y"], ["c"]), node("Where", ["c", "g", "x"], ["w"]), node("Clip", ["w", "minus"], ["v"]),
        node("Abs", ["v"], ["b"]), node("Sign", ["w"], ["n"]), node("Neg", ["n"], ["o"]),
    ]  # fmt: skip
    constants = {"seven": np.array(7, dtype), "minus": np.array(-5, dtype)}
    proto = model(nodes, {"x": x, "y": y}, ["b", "o"], constants, types={"b": kind, "o": kind})
    check(proto, {"x": x, "y": y})


@settings(max_examples=12)
@given(st.data(), st.sampled_from([np.int64, np.int32]))
def test_integers_are_divided_by_integers(data: st.DataObject, dtype: Any) -> None:
    """Small and large ones side by side, and the one quotient that the type does not hold, which wraps."""
    limits = np.iinfo(dtype)
    ends = st.sampled_from([limits.min, limits.min + 1, limits.max, -(2**31), -1, 1, 2**31 - 1])
    some, size = st.one_of(ends, st.integers(-9, 9)), data.draw(st.integers(1, 40))
    x = np.array(data.draw(st.lists(some, min_size=size, max_size=size)), dtype)
    y = np.array(data.draw(st.lists(some.filter(bool), min_size=size, max_size=size)), dtype)
    x[0], y[0] = limits.min, -1
    nodes = [node("Div", ["x", "y"], ["d"]), node("Mod", ["x", "y"], ["m"]), node("Mod", ["x", "y"], ["f"], fmod=1)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model(nodes, {"x": x, "y": y}, list("dmf"), types=dict.fromkeys("dmf", kind))
    for ours, each in zip(run_native(proto, {"x": x, "y": y}), "dmf", strict=True):
        wide = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
        whole = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in wide]
        exact = (
            whole
            if each == "d"
            else [a % b if each == "m" else a - q * b for (a, b), q in zip(wide, whole, strict=True)]
        )
        np.testing.assert_array_equal(ours, [(n - limits.min) % 2**limits.bits + limits.min for n in exact])


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_constant_powers_of_integers(dtype: Any) -> None:
    """They wrap."""
    x = np.arange(-40, 40).astype(dtype) * 1001
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Pow", ["x", f"e{n}"], [f"y{n}"]) for n in (1, 2, 3, 4)]
    constants = {f"e{n}": np.array(n, np.int64 if n < 3 else np.int32) for n in (1, 2, 3, 4)}
    check(
        model(nodes, {"x": x}, [f"y{n}" for n in (1, 2, 3, 4)], constants, types={f"y{n}": kind for n in (1, 2, 3, 4)}),
        {"x": x},
    )


def test_integers_are_not_divided_by_zero() -> None:
    x, y = np.arange(30), np.ones(30, np.int64)
    proto = model([node("Div", ["x", "y"], ["z"])], {"x": x, "y": y}, ["z"], types={"z": TensorProto.INT64})
    made = session(proto)
    np.testing.assert_array_equal(made.run(None, {"x": x, "y": y})[0], x)
    y[29] = 0
    with pytest.raises(Fail, match="Integer division by zero"):
        made.run(None, {"x": x, "y": y})


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_narrow_elements_fill_vectors(size: int) -> None:
    """Rows of every length, whose ends are done by narrower vectors; one operand is the same for a row."""
    rng = np.random.default_rng(size)
    x, y = rng.random((3, size)) < 0.5, rng.random((3, 1)) < 0.5
    nodes = [
        node("Xor", ["x", "y"], ["a"]), node("Not", ["a"], ["n"]), node("Where", ["y", "n", "x"], ["w"]),
        node("Or", ["w", "y"], ["o"]), node("Cast", ["x"], ["i"], to=TensorProto.FLOAT16),
        node("Slice", ["i", "from", "to", "axis"], ["h"]),
    ]  # fmt: skip
    constants = {"from": np.array([1]), "to": np.array([3]), "axis": np.array([0])}
    types = {"o": TensorProto.BOOL, "h": TensorProto.FLOAT16}
    check(model(nodes, {"x": x, "y": y}, ["o", "h"], constants, types=types), {"x": x, "y": y})


def test_masks_go_in_and_out() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((5, 33)).astype(np.float32), rng.random((5, 33)) < 0.5
    x[0, :2] = np.nan, np.inf
    nodes = [
        node("Greater", ["x", "half"], ["g"]), node("And", ["g", "m"], ["a"]), node("IsNaN", ["x"], ["n"]),
        node("Or", ["a", "n"], ["o"]), node("IsInf", ["x"], ["i"]), node("Xor", ["o", "i"], ["y"]), node("Not", ["y"], ["z"]),
        node("Equal", ["z", "m"], ["e"]), node("LessOrEqual", ["x", "half"], ["l"]), node("Where", ["l", "e", "z"], ["w"]),
        node("Concat", ["w", "e"], ["c"], axis=1),
    ]  # fmt: skip
    proto = model(
        nodes, {"x": x, "m": m}, ["c", "y"], {"half": np.float32(0.5)}, types=dict.fromkeys("cy", TensorProto.BOOL)
    )
    check(proto, {"x": x, "m": m})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.float64])
def test_elements_that_are_only_chosen(dtype: Any) -> None:
    """Bit by bit; one operand is a transposed view, one is broadcast, the result is a part of another."""
    rng = np.random.default_rng(0)
    c, x, y = rng.random((5, 70)) < 0.5, rng.integers(0, 100, (70, 5)).astype(dtype), np.array([7], dtype)
    if dtype is np.float64:
        x[3, 2:4] = np.nan, 1e-310
    nodes = [
        node("Transpose", ["x"], ["t"]), node("Where", ["c", "t", "y"], ["w"]), node("Concat", ["w", "t"], ["z"], axis=0),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (got,) = check(model(nodes, {"c": c, "x": x, "y": y}, ["z"], types={"z": kind}), {"c": c, "x": x, "y": y})
    np.testing.assert_array_equal(got, np.concatenate([np.where(c, x.T, y), x.T]))


@pytest.mark.parametrize("source", [np.float64, np.float32, np.int64, np.int32, np.bool_, np.uint8, np.int8])
@pytest.mark.parametrize("target", [np.float64, np.float32, np.int64, np.int32, np.bool_])
def test_cast(source: Any, target: Any) -> None:
    x = np.array([[0, 1, 3, 100], [2, 0, 1, 127]]).astype(source)
    if x.dtype.kind == "f":
        x = x - source(2.5)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    nodes = [node("Cast", ["x"], ["c"], to=kind), node("Concat", ["c", "c"], ["y"], axis=0)]
    check(model(nodes, {"x": x}, ["y"], types={"y": kind}), {"x": x})


def test_doubles_that_integers_hold_and_some_that_they_do_not() -> None:
    x = np.array([2.0**31 - 0.25, -(2.0**31) - 0.75, 2.0**31, 1e300, -1e300, np.nan, np.inf, -np.inf, 5.75, -5.75])
    nodes = [
        node("Cast", ["x"], [name], to=kind) for name, kind in (("i", TensorProto.INT32), ("l", TensorProto.INT64))
    ]
    narrow, wide = run_native(
        model(nodes, {"x": x}, ["i", "l"], types={"i": TensorProto.INT32, "l": TensorProto.INT64}), {"x": x}
    )
    lowest = -(2**31)
    assert narrow.tolist() == [2**31 - 1, *[lowest] * 7, 5, -5]
    assert wide.tolist() == [2**31 - 1, lowest, 2**31, *[-(2**63)] * 5, 5, -5]


@given(broadcast_pair())
@settings(max_examples=30)
def test_doubles_are_computed_as_such(pair: tuple[Any, Any]) -> None:
    """No part of a chain is rounded to single precision; constants, one of them no float32, are double as well."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape) for shape in pair)
    nodes = [
        node("Add", ["x", "y"], ["a"]), node("Mul", ["a", "third"], ["m"]), node("Sub", ["m", "y"], ["s"]),
        node("Div", ["s", "third"], ["d"]), node("Abs", ["d"], ["b"]), node("Sqrt", ["b"], ["q"]), node("Neg", ["q"], ["n"]),
        node("Max", ["n", "s", "y"], ["e"]), node("Min", ["e", "x"], ["g"]), node("Less", ["g", "y"], ["c"]),
        node("Where", ["c", "g", "x"], ["w"]), node("Clip", ["w", "low"], ["v"]), node("Sign", ["v"], ["i"]),
        node("Mean", ["v", "i"], ["k"]), node("Pow", ["k", "three"], ["z"]),
    ]  # fmt: skip
    constants = {"third": np.array(1 / 3), "low": np.array(-0.7), "three": np.array(3.0)}
    kind = dict.fromkeys(("z", "c"), TensorProto.DOUBLE) | {"c": TensorProto.BOOL}
    proto = model(nodes, {"x": x, "y": y}, ["z", "c"], constants, types=kind)
    check(proto, {"x": x, "y": y}, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    "op",
    [
        "Relu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Softsign", "Reciprocal", "Shrink", "Floor", "Ceil",
        "Round", "IsNaN", "IsInf",
    ],
)  # fmt: skip
def test_unary_of_doubles(op: str) -> None:
    x = np.concatenate([numbers(), ENDS]).astype(np.float64) / 3
    kind = TensorProto.BOOL if op.startswith("Is") else TensorProto.DOUBLE
    nodes = [node("Neg", ["x"], ["n"]), node(op, ["n"], ["y"])]
    proto = model(nodes, {"x": x}, ["y"], types={"y": kind})
    check(proto, {"x": x}, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 1.7, -2.3, 0.0])
def test_constant_powers(exponent: float) -> None:
    x = np.abs(numbers())
    x = x[(x < 1e8) & (x > 0)]
    nodes = [node("Abs", ["x"], ["a"]), node("Pow", ["a", "e"], ["y"])]
    check(model(nodes, {"x": x}, ["y"], {"e": np.float32(exponent)}), {"x": x}, rtol=1e-4)


def test_powers_by_tensors_of_other_types() -> None:
    x, e = np.array([-2.0, 3.0, 0.0, 4.0], np.float32), np.array([3, -1, 2, 0])
    nodes = [node("Neg", ["x"], ["n"]), node("Pow", ["n", "e"], ["y"])]
    check(model(nodes, {"x": x, "e": e}, ["y"]), {"x": x, "e": e})


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (None, 2.0), (0.5, None), (3.0, -3.0)])
@pytest.mark.parametrize("opset", [6, 21])
def test_clip(bounds: tuple[Any, Any], opset: int) -> None:
    x = np.concatenate([numbers(), ENDS])
    given = {name: np.float32(b) for name, b in zip(("min", "max"), bounds, strict=True) if b is not None}
    if opset == 6:
        clip = node("Clip", ["n"], ["y"], **{k: float(v) for k, v in given.items()})
    else:
        clip = node(
            "Clip", ["n", *("" if b is None else k for k, b in zip(("min", "max"), bounds, strict=True))], ["y"]
        )
    proto = model([node("Neg", ["x"], ["n"]), clip], {"x": x}, ["y"], given if opset > 6 else {}, opset=opset)
    check(proto, {"x": x})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("bounds", [("", ""), ("low", ""), ("", "high")])
def test_a_bound_of_clip_that_is_left_out_is_the_largest_finite_number(dtype: str, bounds: tuple[str, str]) -> None:
    x = np.array([-np.inf, np.inf, np.nan, -1, 1]).astype(dtype)
    zeros = {name: np.zeros((), x.dtype) for name in bounds if name}
    types = {"y": helper.np_dtype_to_tensor_dtype(x.dtype)}
    proto = model([node("Clip", ["x", *bounds], ["y"])], {"x": x}, ["y"], zeros, types=types)
    largest = ml_dtypes.finfo(dtype).max
    low, high = (0 if name else sign * largest for name, sign in zip(bounds, (-1, 1), strict=True))
    wanted = np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))
    for run in (run_numpy,) if dtype == "bfloat16" else (run_native, run_numpy):
        assert run(proto, {"x": x})[0].tobytes() == wanted.tobytes()


def test_a_value_read_twice_by_one_chain_is_computed_in_one_loop() -> None:
    x = numbers()
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    check(model(nodes, {"x": x}, ["y"]), {"x": x})


def test_results_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(0).standard_normal((64, 3000)).astype(np.float32)
    proto = model([node("Exp", ["x"], ["e"]), node("Mul", ["e", "x"], ["y"])], {"x": x}, ["y"])
    first, *rest = (run_native(proto, {"x": x}, threads=threads)[0].tobytes() for threads in (1, 2, 2))
    assert all(other == first for other in rest)
