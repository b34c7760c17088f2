"""Generated code of operators that go by position, and of running sums, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxplug.contract.errors import Fail

node = helper.make_node
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)
FLAG = st.integers(0, 1)


def kind(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def numbers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.data(), FLAG, FLAG, st.sampled_from([np.float32, np.int32, np.int64]), st.booleans())
def test_cumsum(shape: tuple[int, ...], data: Any, exclusive: int, reverse: int, dtype: Any, turned: bool) -> None:
    axis, x = data.draw(st.integers(-len(shape), len(shape) - 1)), numbers(shape, dtype)
    nodes = [node("CumSum", ["t" if turned else "x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)]
    if turned:
        nodes.insert(0, node("Transpose", ["x"], ["t"]))
    check(model(nodes, {"x": x}, ["y"], {"axis": np.array(axis)}, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_running_sums_of_many_columns(dtype: Any) -> None:
    """Columns side by side in every number that is taken at once, and what is left of them."""
    for columns in (129, 300):
        x = numbers((2, 7, columns), dtype)
        for flags in ({}, {"exclusive": 1, "reverse": 1}):
            nodes = [node("CumSum", ["x", "a"], ["y"], **flags)]
            check(model(nodes, {"x": x}, ["y"], {"a": np.array(1)}, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("shape", [(1003,), (3, 517), (517, 3), (5, 64, 7), (2, 16), (2, 5)])
@pytest.mark.parametrize("flags", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_summed_in_order(shape: tuple[int, ...], flags: dict[str, int], dtype: Any) -> None:
    """The sine of a phase that a long line has summed is another if its additions round otherwise than onnxruntime's."""
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    axis = int(np.argmax(shape))
    nodes = [node("CumSum", ["x", "a"], ["y"], **flags)]
    made = run_native(model(nodes, {"x": x}, ["y"], {"a": np.array(axis)}, types={"y": kind(dtype)}), {"x": x})[0]
    line = np.moveaxis(np.flip(x, axis) if "reverse" in flags else x, axis, 0)
    sums = np.cumsum(np.concatenate([np.zeros_like(line[:1]), line]), axis=0, dtype=dtype)
    sums = np.moveaxis(sums[:-1] if "exclusive" in flags else sums[1:], 0, axis)
    np.testing.assert_array_equal(made, np.flip(sums, axis) if "reverse" in flags else sums)


def test_running_sums_of_what_is_broadcast_and_of_nan_and_infinity() -> None:
    x = np.array([[1, np.nan, 2, 3], [np.inf, 1, -np.inf, 2], [1, 2, np.inf, 3]], np.float32)
    for axis in (0, 1):
        for flags in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            check(model([node("CumSum", ["x", "a"], ["y"], **flags)], {"x": x}, ["y"], {"a": np.array(axis)}), {"x": x})
    small = numbers((1, 5))
    nodes = [
        node("Expand", ["x", "s"], ["e"]),
        node("CumSum", ["e", "a"], ["c"]),
        node("Concat", ["c", "c"], ["y"], axis=1),
    ]
    check(model(nodes, {"x": small}, ["y"], {"s": np.array([7, 5]), "a": np.array(0)}), {"x": small})


@pytest.mark.parametrize("shape", [(3, 21), (21, 3)])
@pytest.mark.parametrize("flags", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_cumprod(shape: tuple[int, ...], flags: dict[str, int], dtype: Any) -> None:
    x = np.random.default_rng(0).integers(-2, 3, shape).astype(dtype)
    nodes = [node("CumProd", ["x", "a"], ["y"], **flags)]
    check(model(nodes, {"x": x}, ["y"], {"a": np.array(int(np.argmax(shape)))}, 26, {"y": kind(dtype)}), {"x": x})


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 3), st.integers(1, 4), st.integers(0, 5), st.integers(0, 6), st.integers(1, 3), st.sampled_from(["DCR", "CRD"]),
    st.booleans(), st.sampled_from([np.float32, np.int64, np.uint8]),
)  # fmt: skip
def test_blocks(n: int, c: int, h: int, w: int, size: int, mode: str, last: bool, dtype: Any) -> None:
    """Of row-major images, and of those whose channels lie together."""
    deep = numbers((n, h, w, c * size * size) if last else (n, c * size * size, h, w), dtype)
    wide = numbers((n, h * size, w * size, c) if last else (n, c, h * size, w * size), dtype)
    for operator, x, given_ in (("DepthToSpace", deep, {"mode": mode}), ("SpaceToDepth", wide, {})):
        nodes = [node(operator, ["t" if last else "x"], ["y"], blocksize=size, **given_)]
        if last:
            nodes.insert(0, node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]))
        check(model(nodes, {"x": x}, ["y"], types={"y": kind(dtype)}), {"x": x})


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=4).map(tuple), st.one_of(st.none(), st.integers(-10, 10)), FLAG,
    st.sampled_from([np.float32, np.int32, np.int64, np.bool_]),
)  # fmt: skip
def test_triangles(shape: tuple[int, ...], diagonal: int | None, upper: int, dtype: Any) -> None:
    x, held = numbers(shape, dtype), {} if diagonal is None else {"k": np.array(diagonal)}
    nodes = [node("Trilu", ["x", *held], ["y"], upper=upper)]
    check(model(nodes, {"x": x}, ["y"], held, types={"y": kind(dtype)}), {"x": x})


@pytest.mark.parametrize("k", [-20, -1, 0, 3, 20])
def test_identities(k: int) -> None:
    x = numbers((5, 7))
    nodes = [
        node("EyeLike", ["x"], ["e"], k=k),
        node("Add", ["x", "e"], ["y"]),
        node("EyeLike", ["x"], ["z"], k=k, dtype=7),
    ]
    check(model(nodes, {"x": x}, ["y", "z"], types={"z": TensorProto.INT64}), {"x": x})


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple), st.integers(1, 7), st.data(), st.sampled_from([np.int32, np.int64]),
    st.sampled_from([np.float32, np.int64, np.bool_]), st.sampled_from([9, 21]),
)  # fmt: skip
def test_one_hot(shape: tuple[int, ...], depth: int, data: Any, index: Any, dtype: Any, opset: int) -> None:
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    i = np.random.default_rng(1).integers(-9, 9, shape).astype(index)
    constants = {"d": np.array(depth), "v": np.array([0, 1]).astype(dtype)}
    nodes = [node("OneHot", ["i", "d", "v"], ["y"], axis=axis)]
    check(model(nodes, {"i": i}, ["y"], constants, opset, {"y": kind(dtype)}), {"i": i})


def test_one_hot_of_computed_values() -> None:
    feeds = {"i": np.array([[1, -1], [4, 9]]), "v": np.array([-2.5, 7], np.float32)}
    nodes = [node("Neg", ["v"], ["w"]), node("OneHot", ["i", "d", "w"], ["y"], axis=1)]
    check(model(nodes, feeds, ["y"], {"d": np.array([5])}), feeds)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 6), st.integers(1, 5), st.lists(st.integers(0, 4), max_size=2).map(tuple), st.booleans(),
    st.sampled_from([np.float32, np.int64, np.bool_]),
)  # fmt: skip
def test_reversed_sequences(steps: int, batch: int, rest: tuple[int, ...], front: bool, dtype: Any) -> None:
    x = numbers((steps, batch, *rest) if front else (batch, steps, *rest), dtype)
    feeds = {"x": x, "n": np.random.default_rng(2).integers(0, steps + 1, batch)}
    nodes = [node("ReverseSequence", ["x", "n"], ["y"], time_axis=int(not front), batch_axis=int(front))]
    check(model(nodes, feeds, ["y"], types={"y": kind(dtype)}), feeds)


@pytest.mark.parametrize("length", [5, -1])
def test_a_sequence_longer_than_its_steps_is_an_error(length: int) -> None:
    feeds = {"x": numbers((4, 2, 3)), "n": np.array([4, length])}
    with pytest.raises(Fail, match=r"Invalid sequence length. Value must be in range \[0,4\]"):
        session(model([node("ReverseSequence", ["x", "n"], ["y"])], feeds, ["y"])).run(None, feeds)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms_of_lines(p: int, axis: int) -> None:
    x = numbers((3, 5, 19))
    x[1] = 0
    x[:, 2] = 0
    x[:, :, 3] = 0
    check(model([node("LpNormalization", ["x"], ["y"], p=p, axis=axis)], {"x": x}, ["y"]), {"x": x})


def test_bits() -> None:
    feeds = {"x": numbers((3, 17), np.int32), "z": numbers((17,), np.int32, 1)}
    nodes = [
        node("BitwiseAnd", ["x", "z"], ["a"]), node("BitwiseOr", ["a", "x"], ["b"]), node("BitwiseNot", ["b"], ["c"]),
        node("BitwiseXor", ["c", "z"], ["y"]),
    ]  # fmt: skip
    check(model(nodes, feeds, ["y"], types={"y": TensorProto.INT32}), feeds)


EXACT = {"Sinh": np.sinh, "Cosh": np.cosh, "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh}


@pytest.mark.parametrize("operator", EXACT)
def test_hyperbolic_functions(operator: str) -> None:
    """Within a few units in the last place, wherever the function is finite."""
    rng = np.random.default_rng(0)
    wide = np.concatenate([s * 10.0 ** rng.uniform(-30, 38, 4000) for s in (1, -1)])
    near = np.concatenate([rng.uniform(-91, 91, 4000), rng.uniform(-1, 1, 4000), 1 + 10.0 ** rng.uniform(-7, 0, 4000)])
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        89.0,
        -89.0,
        89.4,
        1e4,
        np.nextafter(np.float32(1), np.float32(0)),
    ]
    x = np.concatenate([wide, near, special]).astype(np.float32)
    made = run_native(model([node(operator, ["x"], ["y"])], {"x": x}, ["y"]), {"x": x})[0]
    with np.errstate(all="ignore"):
        exact = EXACT[operator](x.astype(np.float64)).astype(np.float32)
    # exp of half the argument errs by an ulp or two, which squaring doubles
    np.testing.assert_allclose(made, exact, rtol=2e-6, atol=1e-37)
    zeros = exact == 0
    np.testing.assert_array_equal(np.signbit(made[zeros]), np.signbit(exact[zeros]))
