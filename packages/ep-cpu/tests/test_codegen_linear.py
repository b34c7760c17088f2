"""Generated code for linear attention against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import MS, one

pytestmark = pytest.mark.usefixtures("single_nodes")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(["linear", "gated", "delta", "gated_delta"]),
    st.sampled_from([(1, 1), (4, 2), (2, 4), (6, 1)]),
    st.sampled_from([(1, 16, 16), (5, 6, 20), (3, 9, 33)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_linear_attention(
    seed: int, rule: str, heads: tuple[int, int], sizes: tuple[int, int, int], past: bool, wide: bool, half: bool
) -> None:
    """``wide``: a decay for each element of a key, a rate for all heads."""
    rng, (asking, held), (tokens, size, width) = np.random.default_rng(seed), heads, sizes

    def real(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.5).astype(np.float16 if half else np.float32)

    given: dict[str, Any] = {"q_num_heads": asking, "kv_num_heads": held, "update_rule": rule}
    inputs: list[Any] = [real(2, tokens, n * s) for n, s in ((asking, size), (held, size), (held, width))]
    inputs.append(real(2, held, size, width) if past else None)
    inputs.append(-np.abs(real(2, tokens, held * (size if wide else 1))) if "gated" in rule else None)
    inputs.append(np.abs(real(2, tokens, 1 if wide else held)) if "delta" in rule else None)
    got, wanted = one("LinearAttention", inputs, set(range(6)), MS, 2, **given)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-3 if half else 1e-4, atol=4e-3 if half else 1e-5)


def test_no_tokens_leave_the_state() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (np.zeros((1, 0, n), np.float32) for n in (8, 8, 12))
    past = rng.standard_normal((1, 2, 4, 6)).astype(np.float32)
    given: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    (y, state), _ = one("LinearAttention", [q, k, v, past], {0, 1, 2, 3}, MS, 2, **given)
    assert y.shape == (1, 0, 12)
    np.testing.assert_array_equal(state, past)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([(1, 1, 4), (2, 7, 3), (1, 40, 1), (2, 2, 5)]),
    st.sampled_from(["none", "silu"]),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.booleans(),
)
def test_causal_convolution(
    seed: int, sizes: tuple[int, int, int], activation: str, dilation: int, past: bool, half: bool
) -> None:
    rng, (batch, length, taps), channels = np.random.default_rng(seed), sizes, 20

    def real(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float16 if half else np.float32)

    given: dict[str, Any] = {"activation": activation, "dilation": dilation}
    before = (taps - 1) * dilation
    inputs: list[Any] = [real(batch, channels, length), real(channels, 1, taps), real(channels)]
    inputs.append(real(batch, channels, before) if past else None)
    got, wanted = one("CausalConvWithState", inputs, {0, 3}, MS, 2, **given)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-3 if half else 1e-5, atol=4e-3 if half else 1e-5)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gates(activation: str) -> None:
    rng = np.random.default_rng(1)
    x, gate = (rng.standard_normal((2, 5, 24)).astype(np.float32) for _ in range(2))
    scale, bias = (rng.standard_normal(n).astype(np.float32) for n in (8, 24))
    (got,), (wanted,) = one("GatedRMSNorm", [x, scale, gate], {0, 2}, MS, activation=activation)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    got, _ = one("LinearAttentionGate", [x, bias, -np.abs(bias), gate], {0, 3}, MS, 2)
    np.testing.assert_allclose(got[0], -np.abs(bias) * np.log1p(np.exp(x + bias)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], 1 / (1 + np.exp(-gate)), rtol=1e-5, atol=1e-6)
