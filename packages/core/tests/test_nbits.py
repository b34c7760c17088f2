"""Weights quantized block by block: bit for bit what onnxruntime's extension module makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug.capi import _pybind_state as ours

theirs = pytest.importorskip("onnxruntime.capi._pybind_state")

ODD = {"nan": np.nan, "infinite": np.inf, "tiny": 1e-45, "huge": 3e38}


@st.composite
def weights(draw: st.DrawFn) -> np.ndarray:
    """(k, n) numbers: any, whole, zero, of one sign, half-way between levels, or with an odd one among them."""
    shape = draw(st.sampled_from([1, 2, 3, 15, 16, 17, 33, 35, 64, 65, 100, 129])), draw(st.integers(1, 7))
    src = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape)
    match kind := draw(st.sampled_from(["any", "whole", "zero", "positive", "half", *ODD])):
        case "whole":
            src = np.round(src * 5)
        case "zero":
            src *= 0
        case "positive":
            src = np.abs(src) + 1
        case "half":
            src = np.round(src * 8) / 2
        case "any":
            pass
        case _ if shape[0] > 2:
            src[1, 0] = ODD[kind]
    with np.errstate(over="ignore"):
        return src.astype(draw(st.sampled_from([np.float32, np.float16])))


def same(name: str, src: np.ndarray, places: list[tuple[tuple[int, ...], Any]], *rest: Any) -> None:
    made = []
    for module in (theirs, ours):
        dst, *others = (np.full(shape, 0xAA if dtype == np.uint8 else 0, dtype) for shape, dtype in places)
        made.append((getattr(module, name)(dst, src, *others, *rest), dst, *others))
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(deadline=None, max_examples=200)
@given(weights(), st.sampled_from([2, 4, 8]), st.sampled_from([16, 32, 64, 128, 256]), st.booleans())
def test_for_matmul(src: np.ndarray, bits: int, block: int, symmetric: bool) -> None:
    (k, n), each = src.shape, 8 // bits
    blocks = -(-k // block)
    places = [((n, blocks, block // each), np.uint8), ((n, blocks), src.dtype), ((n, -(-blocks // each)), np.uint8)]
    same(f"quantize_matmul_{bits}bits", src, places, block, n, k, symmetric)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_padded_to_whole_blocks(bits: int) -> None:
    """As MatMulNBitsQuantizer gives them, with the number of rows before that."""
    src = np.pad(np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32), ((0, 12), (0, 0)))
    places = [((3, 1, 32 * bits // 8), np.uint8), ((3, 1), src.dtype), ((3, 1), np.uint8)]
    same(f"quantize_matmul_{bits}bits", src, places, 32, 3, 20, False)


@settings(deadline=None, max_examples=200)
@given(weights(), st.sampled_from([1, 3, 16, 32, 64]), st.booleans())
def test_for_dequantize_linear(src: np.ndarray, block: int, symmetric: bool) -> None:
    k, n = src.shape
    if not np.isfinite(src).all():
        return
    blocks = -(-k // block)
    places = [((-(-k * n // 2),), np.uint8), ((blocks, n), src.dtype), ((-(-blocks * n // 2),), np.uint8)]
    same("quantize_qdq_matmul_4bits", src, places, block, n, k, symmetric)


@settings(deadline=None, max_examples=200)
@given(weights(), st.sampled_from([16, 32, 64, 128, 256]), st.sampled_from([0, 1]))
def test_for_bnb4(src: np.ndarray, block: int, kind: int) -> None:
    k, n = src.shape
    same(
        "quantize_matmul_bnb4",
        src,
        [((-(-k * n // 2),), np.uint8), ((-(-k * n // block),), src.dtype)],
        block,
        kind,
        n,
        k,
    )


def test_two_bits_for_dequantize_linear() -> None:
    """onnxruntime writes four bits for each number here, beyond the end of its array."""
    src = np.array([[-2, 1, 0], [1, -1, 2]], np.float32)
    dst, scale, zero = np.zeros(2, np.uint8), np.zeros((1, 3), np.float32), np.zeros(1, np.uint8)
    assert not ours.quantize_qdq_matmul_2bits(dst, src, scale, zero, 2, 3, 2, False)
    numbers = (dst[:, None] >> np.arange(0, 8, 2) & 3).reshape(-1)[:6].reshape(2, 3).astype(int)
    zeros = (zero[0] >> np.arange(0, 6, 2) & 3).astype(int)
    np.testing.assert_array_equal(scale, [[1, np.float32(2 / 3), np.float32(2 / 3)]])
    assert (np.abs((numbers - zeros) * scale - src) <= scale / 2 + 1e-6).all()


def test_arguments_that_do_not_fit_are_named() -> None:
    src, scale = np.ones((16, 2), np.float32), np.ones((2, 1), np.float32)
    dst, zero = np.ones((2, 1, 8), np.uint8), np.ones((2, 1), np.uint8)
    with pytest.raises(
        RuntimeError, match="Only block sizes 16, 32, 64, 128, 256 are supported for quantization, got: 8"
    ):
        ours.quantize_matmul_4bits(dst, src, scale, zero, 8, 2, 16, True)
    with pytest.raises(ValueError, match=r"dst has shape \(2, 1, 7\), a contiguous array of shape \[2, 8\]"):
        ours.quantize_matmul_4bits(dst[..., :7], src, scale, zero, 16, 2, 16, True)
    with pytest.raises(TypeError, match="incompatible function arguments: scale must be an array of float32"):
        ours.quantize_matmul_4bits(dst, src, scale.astype(np.float64), zero, 16, 2, 16, True)
    with pytest.raises(ValueError, match=r"src has shape \(15, 2\), \[16, 2\] was expected"):
        ours.quantize_matmul_4bits(dst, src[:15], scale, zero, 16, 2, 16, True)
    with pytest.raises(RuntimeError, match="quant_type must be 0"):
        ours.quantize_matmul_bnb4(dst, src, scale, 16, 2, 2, 16)
