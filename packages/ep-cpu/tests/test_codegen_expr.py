"""Elementary functions of generated code against float64, over the whole range of float32; kinds of expressions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.pool import pool
from onnxplug_ep_cpu.codegen.program import Buffer, Program
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_ep_cpu.codegen.tensor import Tensor, dense_strides

TINY = float(np.finfo(np.float32).tiny)
ODD = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1e-40,
        TINY,
        -TINY,
        1.0,
        -1.0,
        88.72283,
        88.7229,
        -87.0,
        3.4e38,
    ],
    np.float32,
)


def tensor(kind: str, number: int, array: np.ndarray) -> Tensor:
    return Tensor(Buffer(kind, array.nbytes, number), array.shape, dense_strides(array.shape), element=array.dtype.name)


def evaluate(expr: ex.Expr, *operands: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """``expr`` of arrays of one shape, by a compiled loop."""
    target, program = host_target(), Program()
    operands = tuple(np.ascontiguousarray(x) for x in operands)
    result = np.empty(np.broadcast_shapes(*(x.shape for x in operands)), dtype)
    leaves = [tensor("input", i, x) for i, x in enumerate(operands)]
    write_map(program, target, expr, leaves, tensor("output", 0, result))
    image = program.finish(compiler(target), len(operands), 1, 1)
    workspace = np.empty(image.workspace + 64, np.uint8)
    pool(1, False).run(image.records[0], image.bases(*(id(a) for a in (workspace, *operands, result))), False)
    return result


def unary(op: str) -> ex.Expr:
    return (("leaf", 0), (op, 0))


def every(step: int = 1021) -> np.ndarray:
    """Numbers of every exponent and sign, and the odd ones."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([bits.view(np.float32), ODD])


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The worst error in units of the last place, where the exact result is a normal float32."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    inside = np.isfinite(rounded) & (np.abs(exact) >= TINY)
    error = np.abs(got[inside].astype(np.float64) - exact[inside]) / np.spacing(np.abs(rounded[inside]))
    return float(error.max())


@pytest.mark.parametrize(
    ("op", "function", "worst", "at_least"),
    [
        ("exp", np.exp, 2.0, 1.7e-38),
        ("expm1", np.expm1, 4.0, 0.0),
        ("log", np.log, 2.0, 0.0),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 4.0, 0.0),
        ("tanh", np.tanh, 8.0, 1e-30),
        ("sqrt", np.sqrt, 0.51, 0.0),
        ("sin", np.sin, 4.0, 0.0),
        ("cos", np.cos, 4.0, 0.0),
        ("atan", np.arctan, 4.0, 0.0),
    ],
)
def test_function_is_within_ulps_of_float64(op: str, function: object, worst: float, at_least: float) -> None:
    x = every()
    if op == "expm1":
        x = x[~(x > 88.0)]
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))  # type: ignore[operator]
        rounded = exact.astype(np.float32)
    got = evaluate(unary(op), x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    np.testing.assert_array_equal(got[np.isinf(rounded)], rounded[np.isinf(rounded)])
    assert ulps(got[np.abs(exact) >= at_least], exact[np.abs(exact) >= at_least]) <= worst
    small = np.abs(exact) < max(at_least, TINY)
    assert np.abs(got[small] - exact[small]).max(initial=0.0) <= max(1e-35, 1e-5 * at_least)


def test_erf_is_within_4e_7_and_saturates() -> None:
    x = every()
    got = evaluate(unary("erf"), x)
    with np.errstate(invalid="ignore"):
        exact = np.array([math.erf(v) for v in x[::16].astype(np.float64)])
    assert np.nanmax(np.abs(got[::16] - exact)) <= 4e-7
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    beyond = np.abs(x) >= 4
    np.testing.assert_array_equal(got[beyond], np.sign(x[beyond]))


def test_tanh_reaches_1_and_does_not_exceed_it() -> None:
    """What is far from 0 has one result, as models that sort or compare saturated scores want."""
    x = every()
    got = evaluate(unary("tanh"), x)
    beyond = np.abs(x) >= 9.625
    np.testing.assert_array_equal(got[beyond], np.sign(x[beyond]))
    assert np.nanmax(np.abs(got)) == 1.0


@pytest.mark.parametrize(
    ("op", "slope"), [("tanh", 1.0), ("erf", 2 / math.sqrt(math.pi)), ("sin", 1.0), ("atan", 1.0), ("expm1", 1.0)]
)
def test_subnormal_results_are_within_their_smallest_step(op: str, slope: float) -> None:
    """Also where a vector is not filled: the product of a subnormal number and a small factor has few digits."""
    x = (np.r_[np.arange(1, 40), 0x7FFFF0:0x7FFFFF].astype(np.uint32)).view(np.float32)
    x = np.concatenate([x, -x])
    np.testing.assert_allclose(evaluate(unary(op), x), slope * x.astype(np.float64), rtol=3e-7, atol=2.0**-149)


def test_log1p_keeps_small_arguments() -> None:
    x = np.abs(every())
    x = x[np.isfinite(x) & (x < 1e38)]
    assert ulps(evaluate(unary("log1p"), x), np.log1p(x.astype(np.float64))) <= 4.0


def test_pow_has_the_special_cases_of_c() -> None:
    odd = np.array(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, 2.5], np.float32
    )
    x, y = (a.reshape(-1) for a in np.meshgrid(odd, odd))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    got = evaluate((("leaf", 0), ("leaf", 1), ("pow", 0, 1)), x, y)
    normal = ~(np.abs(exact) < TINY) & ~((np.abs(exact) > 3.4e38) & np.isfinite(exact))
    np.testing.assert_allclose(got[normal], exact[normal], rtol=1e-5)
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.uniform(-20, 20, 10000)).astype(np.float32), rng.uniform(-4, 4, 10000).astype(np.float32)
    exact = x.astype(np.float64) ** y.astype(np.float64)
    np.testing.assert_allclose(evaluate((("leaf", 0), ("leaf", 1), ("pow", 0, 1)), x, y), exact, rtol=3e-5)


@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_are_nan_where_an_operand_is(op: str) -> None:
    x, y = (a.reshape(-1) for a in np.meshgrid(ODD, ODD))
    expected = (np.maximum if op == "max" else np.minimum)(x, y)
    np.testing.assert_array_equal(evaluate((("leaf", 0), ("leaf", 1), (op, 0, 1)), x, y), expected)


def test_rounding_is_half_to_even() -> None:
    x = np.concatenate([np.arange(-9, 10) / 2, ODD]).astype(np.float32)
    for op, function in (("round", np.rint), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc)):
        np.testing.assert_array_equal(evaluate(unary(op), x), function(x))


def test_integers_are_exact_and_wrap() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**63), 2**63 - 1, 37)
    y = rng.integers(-9, 9, 37)
    for op, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("max", np.maximum)):
        with np.errstate(over="ignore"):
            expected = function(x, y)
        np.testing.assert_array_equal(evaluate((("leaf", 0), ("leaf", 1), (op, 0, 1)), x, y, dtype=np.int64), expected)
    got = evaluate((("leaf", 0), ("leaf", 1), ("less", 0, 1)), x, y, dtype=np.bool_)
    np.testing.assert_array_equal(got, x < y)
    got = evaluate((("leaf", 0), ("int64", 7), ("div", 0, 1)), x, dtype=np.int64)
    np.testing.assert_array_equal(got, (np.abs(x.astype(object)) // 7 * np.sign(x.astype(object))).astype(np.int64))


def test_conversions_are_those_of_c() -> None:
    floats = np.array([0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 2e9, -2e9, 1e-40], np.float32)
    ints = np.array([0, 1, -1, 2**31 - 1, -(2**31), 16777217, 7], np.int64)
    kinds = {"float32": np.float32, "int32": np.int32, "int64": np.int64, "bool": np.bool_}
    for source in kinds.values():
        x = (floats if source is np.float32 else ints).astype(source)
        for name, target in kinds.items():
            np.testing.assert_array_equal(evaluate(unary(f"to_{name}"), x, dtype=target), x.astype(target))
    got = evaluate(unary("to_int64"), np.array([np.nan, np.inf, -np.inf, 1e30], np.float32), dtype=np.int64)
    np.testing.assert_array_equal(got, np.full(4, -(2**63)))


def test_build_shares_equal_instructions_and_drops_unused_ones() -> None:
    build = ex.Build()
    x = build("leaf", 0)
    assert build("exp", x) == build("exp", x)
    build("log", x)
    two = build("add", build("exp", x), build("const", 2.0))
    expr = build.finish(two)
    assert expr == (("leaf", 0), ("exp", 0), ("const", 2.0), ("add", 1, 2))
    assert ex.leaf_count(expr) == 1
