"""Generated code for weights of few bits: MatMulNBits and MatMulBnb4 against the NumPy kernels and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import MS, one, random, scales

pytestmark = pytest.mark.usefixtures("single_nodes")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([16, 32, 100, 300]),
    st.sampled_from([1, 8, 20, 48]),
    st.sampled_from([2, 4, 4, 8]),
    st.sampled_from([16, 32, 128]),
    st.sampled_from(["none", "packed", "floats"]),
    st.booleans(),
)
def test_matmul_nbits(seed: int, m: int, k: int, n: int, bits: int, block: int, points: str, bias: bool) -> None:
    rng, blocks = np.random.default_rng(seed), -(-k // block)
    x = rng.standard_normal((2, m, k)).astype(np.float32)
    w, step = random(rng, "uint8", n, blocks, block * bits // 8), scales(rng, n, blocks)
    zeros = {
        "none": None,
        "packed": random(rng, "uint8", n, -(-blocks * bits // 8)),
        "floats": rng.uniform(0, 2**bits, (n, blocks)).astype(np.float32),
    }[points]
    added = rng.standard_normal(n).astype(np.float32) if bias else None
    inputs = [x, w, step, zeros, None, added]
    (got,), (wanted,) = one("MatMulNBits", inputs, {0}, MS, K=k, N=n, bits=bits, block_size=block)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * k)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(2, 16), (4, 32), (4, 48), (4, 256), (8, 64), (8, 128)])
def test_few_rows_times_weights_of_few_bits_are_as_exact_as_floats(bits: int, block: int, points: bool) -> None:
    rng, (m, k, n) = np.random.default_rng(bits + block), (3, 6 * block, 40)
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.integers(-3, 3, (m, k // block)).repeat(block, 1)).astype(np.float32)
    x[0, :block] = 0
    x[1, block : 2 * block] = 0x7FFFFF / 2.0**23 * 2.0**90  # every digit at its largest
    x[2, :block] = -1e-30
    w, step = random(rng, "uint8", n, k // block, block * bits // 8), scales(rng, n, k // block)
    zeros = random(rng, "uint8", n, -(-k // block * bits // 8)) if points else None
    (got,), _ = one("MatMulNBits", [x, w, step, zeros], {0}, MS, K=k, N=n, bits=bits, block_size=block)
    fields = (w[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)).reshape(n, k // block, block)
    point: Any = 2 ** (bits - 1)
    if zeros is not None:
        point = (zeros[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)).reshape(n, -1, 1)
        point = point[:, : k // block].astype(int)
    exact = ((fields.astype(int) - point) * step[..., None].astype(np.float64)).reshape(n, k).T
    bound = np.abs(x).astype(np.float64) @ np.abs((fields * step[..., None].astype(np.float64)).reshape(n, k).T)
    assert np.all(np.abs(got - x.astype(np.float64) @ exact) <= 8 * np.finfo(np.float32).eps * (bound + 1e-35))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_all_columns(value: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    x[1, 40] = value
    w, step = random(rng, "uint8", 20, 2, 16), scales(rng, 20, 2)
    (got,), _ = one("MatMulNBits", [x, w, step], {0}, MS, K=64, N=20, bits=4, block_size=32)
    assert np.isfinite(got[0]).all()
    assert not np.isfinite(got[1]).any()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([32, 96, 320]),
    st.sampled_from([1, 8, 20, 48]),
    st.sampled_from([16, 32]),
    st.integers(0, 1),
)
def test_matmul_bnb4(seed: int, m: int, k: int, n: int, block: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [
        rng.standard_normal((2, m, k)).astype(np.float32), random(rng, "uint8", n * k // 2), scales(rng, n * k // block)
    ]  # fmt: skip
    (got,), (wanted,) = one("MatMulBnb4", inputs, {0}, MS, K=k, N=n, quant_type=kind, block_size=block)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6 * k)
