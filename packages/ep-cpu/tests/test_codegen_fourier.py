"""Fourier transforms in generated code, against NumPy's in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

node = helper.make_node
LENGTHS = [1, 2, 3, 5, 8, 13, 16, 30, 64, 100, 127, 144, 210, 400, 512, 768]


def near(made: np.ndarray, exact: np.ndarray, x: np.ndarray, axis: int, scale: float = 1.0) -> None:
    """Every element is a sum of products with factors of size 1: of each of the n numbers of a line, rounded to u = 2^-24 in
    the factor, the product and at most n additions."""
    assert made.shape == exact.shape
    total = np.abs(x).sum((axis, x.ndim - 1), keepdims=True)
    assert (np.abs(made - exact) <= (2 * x.shape[axis] + 3) * 2.0**-24 * scale * total + 1e-30).all()


def transformed(x: np.ndarray, axis: int, length: int, inverse: int, onesided: int) -> np.ndarray:
    z = x[..., 0].astype(complex) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None]
    y = np.fft.ifft(z, length, axis) if inverse else np.fft.fft(z, length, axis)
    if onesided:
        y = np.take(y, range(length // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(LENGTHS), st.sampled_from([None, 1, 4, 9, 64, 100, 144]), st.integers(1, 2),
    st.sampled_from(["forward", "half", "back"]), st.integers(0, 2), st.integers(0, 99), st.sampled_from([17, 20]),
)  # fmt: skip
def test_dft(size: int, length: int | None, parts: int, way: str, axis: int, seed: int, opset: int) -> None:
    parts = 1 if way == "half" else parts  # a spectrum has a mirrored half only if the line is real
    shape = [2, 3]
    shape.insert(axis, size)
    x = np.random.default_rng(seed).standard_normal((*shape, parts), np.float32)
    check_dft(x, axis, length, {"forward": (0, 0), "half": (0, 1), "back": (1, 0)}[way], opset)


def check_dft(x: np.ndarray, axis: int, length: int | None, flags: tuple[int, int], opset: int = 20) -> None:
    inverse, onesided = flags
    constants: dict[str, Any] = {} if length is None else {"n": np.array(length)}
    given_: dict[str, int] = {"inverse": inverse, "onesided": onesided}
    names = ["x", "n" if constants else ""]
    if opset < 20:
        given_["axis"] = axis
    else:
        constants["axis"] = np.array(axis - x.ndim)
        names.append("axis")
    proto = model([node("DFT", names, ["y"], **given_)], {"x": x}, ["y"], constants, opset=opset)
    whole = length or (2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis])
    exact = transformed(x.astype(float), axis, whole, inverse, onesided)
    near(run_native(proto, {"x": x})[0], exact, x, axis, 2 / whole if inverse else 1.0)


@pytest.mark.parametrize("length", [None, 7, 8, 20, 21])
@pytest.mark.parametrize("size", [2, 5, 9, 33])
def test_the_real_inverse(size: int, length: int | None) -> None:
    x = np.random.default_rng(size).standard_normal((2, size, 3, 2), np.float32)
    check_dft(x, 1, length, (1, 1))


def test_two_transforms_in_a_row_and_symbolic_sizes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 16, 24), np.float32)
    nodes = [
        node("Unsqueeze", ["x", "last"], ["u"]), node("Concat", ["u", "u"], ["c"], axis=-1), node("DFT", ["c"], ["a"], axis=2),
        node("DFT", ["a"], ["b"], axis=1), node("Gather", ["b", "zero"], ["y"], axis=3),
    ]  # fmt: skip
    proto = model(nodes, {"x": x}, ["y"], {"last": np.array([-1]), "zero": np.array(0)}, opset=17, symbolic=True)
    exact = np.fft.fft2(x + 1j * x).real
    made = run_native(proto, {"x": x})[0]
    assert np.abs(made - exact).max() <= 2 * (16 + 24) * 2.0**-24 * 2 * np.abs(x).sum((1, 2)).max()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 2), st.sampled_from([4, 15, 64, 100, 256]), st.integers(1, 40), st.integers(0, 3), st.booleans(), st.integers(0, 2),
    st.integers(0, 1), st.integers(0, 50),
)  # fmt: skip
def test_stft(
    batch: int, length: int, step: int, frames: int, window: bool, parts: int, onesided: int, rest: int
) -> None:
    onesided = onesided if parts < 2 else 0
    x = np.random.default_rng(rest).standard_normal(
        (batch, length + frames * step + rest % step, max(parts, 1)), np.float32
    )
    constants: dict[str, Any] = {"step": np.array(step), "n": np.array(length)}
    weights = np.hanning(length).astype(np.float32)
    if window:
        constants["w"] = weights
    names = ["x", "step", "w" if window else "", "n"]
    proto = model([node("STFT", names, ["y"], onesided=onesided)], {"x": x}, ["y"], constants, opset=17)
    made = run_native(proto, {"x": x})[0]
    cut = np.stack([x[:, i * step : i * step + length] for i in range(frames + 1)], 1).astype(float)
    cut *= weights[:, None] if window else 1.0
    assert made.shape[1] == frames + 1
    near(made, transformed(cut, 2, length, 0, onesided), cut, 2)


def test_what_follows_frames_of_a_signal_of_any_length() -> None:
    """A spectrogram and its bands are one region with the transform."""
    x, bands = np.random.default_rng(0).standard_normal((2, 300), np.float32), np.ones((33, 4), np.float32)
    nodes = [
        node("STFT", ["x", "step", "w"], ["s"]), node("ReduceSumSquare", ["s", "axis"], ["p"], keepdims=0),
        node("MatMul", ["p", "m"], ["b"]), node("Add", ["b", "one"], ["c"]), node("Log", ["c"], ["y"]),
    ]  # fmt: skip
    weights = np.hanning(64).astype(np.float32)
    constants = {
        "step": np.array(16), "w": weights, "axis": np.array([-1]), "m": bands, "one": np.array(1, np.float32)
    }  # fmt: skip
    made = run_native(model(nodes, {"x": x}, ["y"], constants, opset=18, symbolic=True), {"x": x})[0]
    cut = np.stack([x[:, i : i + 64] for i in range(0, 300 - 63, 16)], 1).astype(float) * weights
    power = (np.abs(np.fft.rfft(cut)) ** 2) @ bands
    np.testing.assert_allclose(made, np.log(power + 1), rtol=1e-5)


def test_a_long_line_of_prime_length_is_left_to_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((1, 10007, 1), np.float32)
    proto = model([node("DFT", ["x"], ["d"], axis=1), node("Neg", ["d"], ["y"])], {"x": x}, ["y"], opset=17)
    made = -run_native(proto, {"x": x}, native=1)[0]
    near(made, transformed(x.astype(float), 1, 10007, 0, 0), x, 1)
    assert math.isfinite(made.sum())
