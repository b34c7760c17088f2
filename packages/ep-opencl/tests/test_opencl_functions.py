"""Functions of one number over the whole range of floats, and numbers of 16 bits, on the device."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from opencl_models import PROVIDER, needs_device, one_node, run

import onnxplug as ort
from onnxplug_ep_opencl.device import listed

pytestmark = needs_device
rng = np.random.default_rng(11)

EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
}
WITHIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Erf": np.vectorize(math.erf),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        0.5,
        -0.5,
        2.5,
        -3.5,
        1e-45,
        -1e-45,
        1.1754942e-38,
        1.1754944e-38,
        3.4e38,
        -3.4e38,
    ],
    np.float32,
)
STEPS = [1, 20]
"""All numbers, and few enough for a simulator."""


def numbers() -> np.ndarray:
    """Floats of every exponent, more of them where functions bend."""
    any_ = rng.integers(0, 2**32, 40_000, np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, any_, *(rng.uniform(-r, r, 20_000).astype(np.float32) for r in (1, 20, 100))])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("operator", [*EXACT, *WITHIN])
def test_functions(operator: str, step: int) -> None:
    x = numbers()[::step]
    (got,) = run(one_node(operator, {"x": x}), {"x": x})
    with np.errstate(all="ignore"):
        want = (EXACT | WITHIN)[operator](x.astype(np.float64))
        rounded = want.astype(np.float32)
        if operator in EXACT:
            np.testing.assert_array_equal(got, rounded)
        normal = np.abs(rounded) >= np.finfo(np.float32).tiny
        np.testing.assert_array_equal(got[~np.isfinite(rounded)], rounded[~np.isfinite(rounded)])
        off = np.abs(got - want)[np.isfinite(rounded)]
    assert np.all(off <= 4 * np.spacing(np.where(normal, np.abs(rounded), np.float32(1e-38)))[np.isfinite(rounded)])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero & (x == 0)]), np.signbit(rounded[zero & (x == 0)]))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("exponent", [None, 2.0, 3.0, 0.5, -1.5])
def test_powers(exponent: float | None, step: int) -> None:
    a, b = (grid.reshape(-1) for grid in np.meshgrid(SPECIAL, SPECIAL))
    x = np.concatenate([a, np.exp(rng.uniform(-80, 80, 40_000)), rng.uniform(-20, 20, 40_000)]).astype(np.float32)
    y = np.concatenate([b, rng.uniform(-2, 2, 40_000), rng.integers(-30, 31, 40_000)]).astype(np.float32)
    x, y = x[::step], y[::step]
    y = y if exponent is None else np.array(exponent, np.float32)
    (got,) = run(one_node("Pow", {"x": x, "y": y}, constants=[] if exponent is None else ["y"]), {"x": x, "y": y})
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), np.full(x.shape, y, np.float64)).astype(np.float32)  # 0.5: no root
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(want[finite]))
    np.testing.assert_allclose(got[finite], want[finite], rtol=5e-7, atol=3e-45)  # a cube is rounded twice


def test_halves_are_read_and_rounded_as_numpy_does() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    (wide,) = run(one_node("Cast", {"x": every}, to=1), {"x": every})
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    low, high = every[:-1].astype(np.float32), every[1:].astype(np.float32)
    with np.errstate(all="ignore"):
        between = np.concatenate([numbers(), (low + high) / 2, np.nextafter((low + high) / 2, low)])
        want = between.astype(np.float16)
    (narrow,) = run(one_node("Cast", {"x": between}, to=10), {"x": between})
    np.testing.assert_array_equal(narrow, want)


@pytest.mark.parametrize("count", [7, 5000])
def test_few_numbers_are_read_and_rounded_as_halves(count: int) -> None:
    x = np.linspace(-3, 3, count, dtype=np.float32)
    (narrow,) = run(one_node("Cast", {"x": x}, to=10), {"x": x})
    np.testing.assert_array_equal(narrow, x.astype(np.float16))
    (wide,) = run(one_node("Cast", {"x": narrow}, to=1), {"x": narrow})
    np.testing.assert_array_equal(wide, narrow.astype(np.float32))


def beside_middles(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a wide type beside the middle of two bfloat16s, by less than float32 tells, and what each is rounded to."""
    wide, codes = np.dtype(name), np.arange(128, 256, dtype=np.uint64)
    top = 8 * wide.itemsize - 10 + (wide.kind == "u")
    numbers, rounded = [], []
    for shift in (top, top - 4, top - 9):
        middle = (2 * codes + np.uint64(1)) << np.uint64(shift)
        for step in (0, 1):
            beside = middle - np.uint64(1) + np.uint64(2 * step)
            numbers.append(
                np.nextafter(middle.astype(wide), (0, np.inf)[step]) if wide.kind == "f" else beside.astype(wide)
            )
            rounded.append((codes + np.uint64(step)).astype(np.float64) * 2.0 ** (shift + 1))
    x, want = np.concatenate(numbers), np.concatenate(rounded)
    return (x, want) if wide.kind == "u" else (np.concatenate([x, -x]), np.concatenate([want, -want]))


@pytest.mark.parametrize("name", ["float64", "int64", "uint64", "int32", "uint32"])
def test_wide_numbers_are_rounded_to_bfloat16_once(name: str) -> None:
    x, want = beside_middles(name)
    for part in (slice(3), slice(None)):  # few and many elements are different kernels
        (narrow,) = run(one_node("Cast", {"x": x[part]}, to=16), {"x": x[part]})
        np.testing.assert_array_equal(narrow.astype(np.float64), want[part])


def test_doubles_out_of_the_range_of_bfloat16() -> None:
    x = np.array(
        [
            0.0,
            -0.0,
            1e-300,
            -1e-300,
            np.inf,
            -np.inf,
            np.nan,
            np.nextafter(255.5 * 2.0**120, 0),
            255.5 * 2.0**120,
            -1e300,
        ]
    )
    want = np.array([0.0, -0.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 255 * 2.0**120, np.inf, -np.inf])
    (narrow,) = run(one_node("Cast", {"x": x}, to=16), {"x": x})
    np.testing.assert_array_equal(narrow.astype(np.float64), want)
    np.testing.assert_array_equal(np.signbit(narrow.astype(np.float64)), np.signbit(want))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux lists what is in memory")
@pytest.mark.skipif(
    not any(d.platform.name.startswith("Portable") for d in listed()), reason="PoCL loads kernels as libraries"
)
def test_constants_that_no_element_wants_are_in_memory() -> None:
    x = np.ones(4096, np.float32)
    session = ort.InferenceSession(one_node("IsNaN", {"x": x}), providers=[(PROVIDER, {"platform": "Portable"})])
    session.run(None, {"x": x})
    listing = Path("/proc/self/smaps").read_text()
    resident = re.findall(r" r--p .*/k\d+_IsNaN\.so\nSize: +(\d+) kB\n(?:.*\n){2}Rss: +(\d+) kB", listing)
    assert resident and all(rss == size for size, rss in resident)
