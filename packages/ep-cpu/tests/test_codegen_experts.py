"""Generated code for mixtures of experts, MoE and QMoE, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import MS, one, random, scales

pytestmark = pytest.mark.usefixtures("single_nodes")

ACTIVATIONS = ["relu", "gelu", "silu", "identity", "swiglu"]
sizes = st.tuples(
    st.integers(0, 999),
    st.sampled_from([(1, 1, 1), (2, 1, 2), (1, 30, 2), (3, 7, 3)]),
    st.sampled_from([3, 8]),
    st.sampled_from([(16, 32), (96, 40), (64, 70)]),
    st.sampled_from(ACTIVATIONS),
    st.booleans(),
    st.booleans(),
)


def _attributes(activation: str, gated: bool, k: int) -> dict[str, Any]:
    given: dict[str, Any] = {"k": k, "activation_type": activation}
    if activation == "swiglu":
        given |= {
            "activation_alpha": 1.5,
            "activation_beta": 1.0,
            "swiglu_limit": 2.0,
            "swiglu_fusion": 0 if gated else 1 + k % 2,
        }
    return given


@settings(max_examples=25, deadline=None)
@given(sizes, st.booleans(), st.booleans(), st.booleans())
def test_moe(size: Any, biased: bool, half: bool, turned: bool) -> None:
    seed, (batch, rows, k), experts, (width, inner), activation, gated, normalized = size
    rng = np.random.default_rng(seed)

    def real(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float16 if half else np.float32)

    wide = inner if gated or activation != "swiglu" else 2 * inner
    first, second = real(experts, wide, width, scale=width**-0.5), real(experts, width, inner, scale=inner**-0.5)
    third = real(experts, inner, width, scale=width**-0.5) if gated else None
    if turned and wide != width and inner != width:
        first, second = np.ascontiguousarray(first.mT), np.ascontiguousarray(second.mT)
    biases = (
        (real(experts, wide), real(experts, width), real(experts, inner) if gated else None) if biased else [None] * 3
    )
    scores = real(batch * rows, experts)
    inputs = [real(batch, rows, width), scores, first, biases[0], second, biases[1], third, biases[2]]
    given = _attributes(activation, gated, k)
    (got,), (wanted,) = one("MoE", inputs, {0, 1}, MS, normalize_routing_weights=int(normalized), **given)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=2e-3 if half else 1e-4, atol=5e-3 if half else 1e-5)


@settings(max_examples=25, deadline=None)
@given(
    sizes,
    st.sampled_from([2, 4, 8]),
    st.sampled_from([0, 16, 32]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_qmoe(size: Any, bits: int, block: int, zeros: bool, weighted: bool, told: bool) -> None:
    """``told``: the node has a size of blocks, and its scales are one for each output nevertheless."""
    seed, (batch, rows, k), experts, (width, _), activation, gated, normalized = size
    rng, inner = np.random.default_rng(seed), 64
    wide = inner if gated or activation != "swiglu" else 2 * inner
    size_of_blocks = block
    block = block if width % max(1, block) == 0 and not told else 0

    def layer(outputs: int, depth: int) -> list[Any]:
        blocks = depth // block if block else 1
        points: Any = None
        if zeros:
            points = random(
                rng, "uint8", experts, *((outputs, -(-blocks * bits // 8)) if block else (-(-outputs * bits // 8),))
            )
        shape = (experts, outputs, blocks) if block else (experts, outputs)
        return [random(rng, "uint8", experts, outputs, depth * bits // 8), scales(rng, *shape), points]

    first, second, third = layer(wide, width), layer(width, inner), layer(inner, width) if gated else [None] * 3
    bias = rng.standard_normal((experts, wide)).astype(np.float32)
    x, scores = rng.standard_normal((batch, rows, width)), rng.standard_normal((batch * rows, experts))
    inputs = [x.astype(np.float32), scores.astype(np.float32), *first[:2], bias, *second[:2], None, *third[:2], None]
    inputs += [first[2], second[2], third[2]]
    fed = {0, 1}
    if weighted:
        inputs.append(rng.uniform(0, 1, scores.shape).astype(np.float32))
        fed.add(14)
    given = _attributes(activation, gated, k) | {
        "expert_weight_bits": bits,
        "block_size": size_of_blocks if told else block,
    }
    given["normalize_routing_weights"] = int(normalized)
    (got,), (wanted,) = one("QMoE", inputs, fed, MS, **given)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max(initial=1.0))


def test_scores_that_are_no_numbers_spoil_only_their_rows() -> None:
    rng = np.random.default_rng(0)
    x, scores = (rng.standard_normal(s).astype(np.float32) for s in ((4, 16), (4, 3)))
    scores[1], scores[2, 0], scores[3] = np.nan, -np.inf, 1.0
    inputs = [x, scores, *(v for _ in range(2) for v in (rng.standard_normal((3, 16, 16)).astype(np.float32), None))][
        :5
    ]
    (got,), (wanted,) = one("MoE", inputs, {0, 1}, MS, k=2)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_shares_that_add_up_to_nothing_count_nothing() -> None:
    rng = np.random.default_rng(0)
    x, scores = (rng.standard_normal(s).astype(np.float32) for s in ((4, 16), (4, 3)))
    layer = [rng.integers(0, 256, (3, 16, 16), np.uint8), np.full((3, 16), 0.01, np.float32), None]
    shares = np.ones((4, 3), np.float32)
    shares[1], shares[2] = 0, np.nan
    inputs = [x, scores, *layer, *layer, *[None] * 6, shares]
    told = {"k": 2, "expert_weight_bits": 8, "normalize_routing_weights": 1}
    (got,), (wanted,) = one("QMoE", inputs, {0, 1, 14}, MS, **told)
    assert not got[1].any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_no_rows() -> None:
    rng = np.random.default_rng(0)
    x, scores, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 0, 16), (0, 3), (3, 16, 16)))
    (got,), (wanted,) = one("MoE", [x, scores, w, None, w], {0, 1}, MS)
    assert got.shape == wanted.shape
