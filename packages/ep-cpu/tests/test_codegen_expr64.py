"""Functions of float64 in generated code, against the math library's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_codegen_expr import evaluate, unary

rng = np.random.default_rng(0)
ODD = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    -5e-324,
    1e-310,
    2.0**-1022,
    1.0,
    -1.0,
    709.78,
    709.79,
    -745.1,
    -745.2,
    1e308,
]
ANY = np.concatenate([ODD, rng.normal(size=20000) * 10.0 ** rng.integers(-300, 300, 20000)])
NEAR = np.concatenate(
    [ODD, rng.uniform(-745, 710, 20000), rng.normal(size=20000) * 10.0 ** rng.integers(-12, 1, 20000)]
)


def reference(function: object, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(function(x))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("op", "function", "x", "ulps"),
    [
        ("exp", np.exp, NEAR, 2.0),
        ("expm1", np.expm1, NEAR[NEAR < 700], 3.0),
        ("log", np.log, np.abs(ANY), 1.5),
        ("log", np.log, 1 + NEAR * 1e-3, 1.5),
        ("tanh", np.tanh, NEAR, 4.0),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), NEAR, 3.0),
    ],
)
def test_function_is_within_ulps(op: str, function: object, x: np.ndarray, ulps: float) -> None:
    got, exact = evaluate(unary(op), x, dtype=np.float64), reference(function, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    same = (got == exact) | np.isnan(exact)
    error = np.abs(got[~same] - exact[~same]) / np.spacing(np.abs(exact[~same]))
    assert error.max(initial=0.0) <= ulps


def test_tanh_keeps_the_sign_of_zero() -> None:
    got = evaluate(unary("tanh"), np.array([0.0, -0.0]), dtype=np.float64)
    np.testing.assert_array_equal(np.signbit(got), [False, True])


def test_logarithms_of_what_has_none() -> None:
    got = evaluate(unary("log"), np.array([0.0, -0.0, -1.0, -math.inf]), dtype=np.float64)
    np.testing.assert_array_equal(got, [-math.inf, -math.inf, math.nan, math.nan])
