"""Attention to many keys, a block of them at a time: its softmax is corrected as larger scores come up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, run_native
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnxplug_ep_cpu.codegen.kernels.attention import Attention
from onnxplug_ep_cpu.codegen.kernels.attention_blocks import AttentionInBlocks
from onnxplug_ep_cpu.codegen.lower import attention
from onnxplug_ep_cpu.codegen.lower.context import Lowering

Arrays = dict[str, np.ndarray]


@contextmanager
def small_blocks(keys: int = 32, rows: int = 1) -> Iterator[Any]:
    """Blocks of few keys, from few keys and rows on; values are packed from so many rows on. Gives a spy of the kernel."""
    sizes = {"MANY_KEYS": 20, "KEYS": keys, "TILES": 2, "MANY_ROWS": rows, "FEW_ROWS": 4, "FEW_ON_CACHE": 4}
    with (
        mock.patch.multiple(attention, **sizes),
        mock.patch.object(attention, "AttentionInBlocks", wraps=AttentionInBlocks) as kernel,
    ):
        yield kernel


def drawn(batch: int, heads: int, rows: int, keys: int, depth: int, columns: int) -> Arrays:
    rng = np.random.default_rng(rows + keys)
    shapes = {"q": (rows, depth), "k": (keys, depth), "v": (keys, columns)}
    return {name: rng.standard_normal((batch, heads, *shape)).astype(np.float32) for name, shape in shapes.items()}


def exact(feeds: Arrays, hidden: Any = False) -> np.ndarray:
    """In float64; rows that see nothing are zeros."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = np.where(hidden, -np.inf, q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]))
    largest = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = e.sum(-1, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total) @ v)


def built(feeds: Arrays, **attributes: Any) -> Any:
    return model([helper.make_node("Attention", [*feeds], ["y"], **attributes)], feeds, ["y"], opset=23)


@given(
    st.integers(1, 2), st.integers(1, 2), st.integers(4, 40), st.integers(20, 110), st.integers(1, 20), st.integers(1, 40),
    st.sampled_from(["none", "causal", "bool"]), st.sampled_from([1, 1000]),
)  # fmt: skip
def test_any_shape_and_mask(
    batch: int, heads: int, rows: int, keys: int, depth: int, columns: int, kind: str, packed_from: int
) -> None:
    feeds = drawn(batch, heads, rows, keys, depth, columns)
    hidden: Any = False
    if kind == "causal":
        hidden = ~np.tri(rows, keys, dtype=bool)
    elif kind == "bool":
        feeds["mask"] = np.random.default_rng(0).random((batch, 1, rows, keys)) < 0.5
        feeds["mask"][..., 0, :] = False
        feeds["mask"][..., 1, : keys // 2] = False
        hidden = ~feeds["mask"]
    with small_blocks(rows=packed_from) as kernel:
        (got,) = run_native(built(feeds, is_causal=int(kind == "causal")), feeds)
    assert kernel.call_count == 1
    np.testing.assert_allclose(got, exact(feeds, hidden), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rising", [True, False], ids=["rising", "falling"])
def test_the_error_does_not_grow_with_the_keys(rising: bool) -> None:
    """Scores, exact here, that rise from block to block correct the sums each time, by a factor that is off by 3 ulp: exp's 2 and
    the rounding of the product. What remains of a block after n more is below exp(-n), so these errors add up to less than
    3 (1 + 2 / e + 3 / e^2 + ...) < 8 ulp of the sums. The weights are off by 2e-7 and by 2e-8 of what is in their exponent, 1 on
    average: 2 ulp. The sum of products of a block goes over 512 keys one after the other: sqrt(512) roundings of half an ulp where
    they are random, 4 times that at most. All of it is relative to the weighted sum of |v|, here within [1, 2]."""
    keys = 16 * 1024
    feeds = drawn(1, 1, 12, keys, 8, 24)
    feeds["q"][:], feeds["k"][:] = 1, 0
    feeds["k"][..., 0] = np.arange(keys)[:: 1 if rising else -1] / 512  # 1 a block
    feeds["v"] = np.random.default_rng(0).uniform(1, 2, feeds["v"].shape).astype(np.float32)
    (got,) = run_native(built(feeds, scale=1.0), feeds)
    want = exact({**feeds, "k": feeds["k"] * np.sqrt(8)})
    np.testing.assert_allclose(got, want, rtol=(8 + 2 + 4 * 512**0.5 / 2) * np.finfo(np.float32).eps)


def test_scores_take_memory_of_a_block() -> None:
    """However many keys there are."""

    def scratch(keys: int) -> int:
        sizes: list[int] = []

        def noted(shape: Any, order: Any = None, element: str = "float32") -> Any:
            if element == "int8":
                sizes.append(int(np.prod(shape)))
            return taken(shape, order, element)

        taken = Lowering.scratch
        feeds = drawn(1, 2, 200, keys, 16, 16)
        with mock.patch.object(Lowering, "scratch", staticmethod(noted)):
            run_native(built(feeds), feeds)
        (size,) = sizes
        return size

    assert scratch(32 * 512) == scratch(16 * 512) < 16 << 20


def test_what_is_not_a_number_stays_in_its_row() -> None:
    feeds = drawn(1, 1, 9, 200, 8, 16)
    feeds["q"][0, 0, 3, 0] = np.nan
    with small_blocks():
        (got,) = run_native(built(feeds), feeds)
    assert np.isnan(got[0, 0, 3]).all()
    feeds["q"][0, 0, 3, 0] = 0
    others = np.arange(9) != 3
    np.testing.assert_allclose(got[0, 0, others], exact(feeds)[0, 0, others], rtol=1e-4, atol=1e-5)


def test_threads_do_not_change_a_bit() -> None:
    feeds = drawn(1, 3, 150, 300, 16, 32)
    proto = built(feeds, is_causal=1)
    with small_blocks():
        (one,), (three,) = (run_native(proto, feeds, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


@given(
    st.sampled_from([4, 5, 6, 7, 8]), st.integers(1, 2), st.integers(1, 70), st.integers(1, 40), st.integers(1, 150), st.booleans(),
)  # fmt: skip
def test_heads_that_share_keys_of_a_cache_read_them_as_they_lie(
    shared: int, heads: int, keys: int, depth: int, columns: int, masked: bool
) -> None:
    """To pack them would be to copy the cache for each token."""
    feeds = drawn(2, heads, 1, keys, depth, columns)
    feeds["q"] = np.random.default_rng(0).standard_normal((2, heads * shared, 1, depth)).astype(np.float32)
    hidden: Any = False
    if masked:
        feeds["mask"] = np.random.default_rng(1).random((2, heads * shared, 1, keys)) < 0.5
        hidden = ~feeds["mask"]
    with mock.patch.object(attention, "Attention", wraps=Attention) as kernel:
        (got,) = run_native(built(feeds), feeds)
    ((_, across_keys, *_), _) = kernel.call_args
    assert across_keys == 0
    each = {**feeds, **{name: np.repeat(feeds[name], shared, 1) for name in "kv"}}
    np.testing.assert_allclose(got, exact(each, hidden), rtol=1e-4, atol=1e-5)
