"""The generated attention kernel, in its OpenCL dialect on PoCL, against the portable kernel in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, close, draw

RNG = np.random.default_rng


def node(
    shape: tuple[int, int, int, int, int, int, int],
    *,
    dtype: str = "float32",
    mask: np.ndarray | None = None,
    past: int = 0,
    lengths: np.ndarray | None = None,
    packed: bool = False,
    seed: int = 0,
    **attributes: Any,
) -> Node:
    """Attention of (batch, query heads, key heads, queries, new keys, elements of a key, of a value)."""
    batch, heads, kv_heads, queries, keys, size, value_size = shape
    rng, kind = RNG(seed), NARROW[dtype]
    q, k, v = (
        draw(rng, s, kind) for s in ((batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, value_size))
    )  # fmt: skip
    before = [draw(rng, (batch, kv_heads, past, n), kind) for n in (size, value_size)] if past else [None, None]
    if packed:
        q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    outputs = (True, True, True) if past else (True,)
    return Node("Attention", 24, [q, k, v, mask, *before, lengths], attributes, outputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 2, 2, 70, 90, 64, 64), (2, 4, 2, 9, 40, 20, 36), (1, 2, 1, 40, 33, 100, 128), (1, 1, 1, 20, 50, 200, 256),
        (1, 2, 2, 1, 1, 1, 1),
    ],
)  # fmt: skip
def test_shapes(shape: tuple[int, ...], dtype: str) -> None:
    close(node(shape, dtype=dtype), 32)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
@given(st.data())
def test_masks_windows_and_caches(data: st.DataObject) -> None:
    draw_one = data.draw
    batch, kv_heads, shared = draw_one(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)))
    queries, keys = draw_one(st.tuples(st.integers(1, 40), st.integers(1, 70)))
    past = draw_one(st.sampled_from([0, 0, 13]))
    rng = RNG(draw_one(st.integers(0, 99)))
    kind = draw_one(st.sampled_from([None, "bool", "float32"]))
    mask = None
    if kind:
        shape = [draw_one(st.sampled_from([1, n])) for n in (batch, kv_heads * shared, queries)] + [past + keys]
        first = draw_one(st.integers(0, 3))
        mask = (rng.random(shape[first:]) > 0.3) if kind == "bool" else draw(rng, shape[first:])
    lengths = None
    if not past and draw_one(st.booleans()):
        lengths = rng.integers(1, keys + 1, batch)
    attributes: dict[str, Any] = {}
    if draw_one(st.booleans()):
        attributes["is_causal"] = 1
    if draw_one(st.booleans()):
        attributes["softcap"] = 3.0
    if draw_one(st.booleans()):
        attributes["scale"] = 0.3
    shape = (batch, kv_heads * shared, kv_heads, queries, keys, 12, 20)
    close(node(shape, mask=mask, past=past, lengths=lengths, packed=draw_one(st.booleans()), **attributes), 64)


@pytest.mark.parametrize(("left", "right"), [(5, 0), (3, 4), (-1, 7), (2, -1)])
def test_sliding_windows(left: int, right: int) -> None:
    found = node((1, 4, 2, 50, 60, 16, 16), left_window_size=left, right_window_size=right)
    close(Node("Attention", 25, found.inputs, found.attributes), 32)


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_are_divided_where_there_are_few_queries(causal: int) -> None:
    found = node((1, 4, 2, 1, 1, 64, 64), past=999, is_causal=causal)
    job = found.job()
    assert job is not None and job.workspace > 0 and job.launches[-2].grid == 2 * 3  # key heads by parts
    close(found, 32)


def test_queries_that_see_nothing_give_zeros() -> None:
    mask = np.ones((6, 40), np.bool_)
    mask[2] = False
    found = node((1, 1, 1, 6, 40, 8, 8), mask=mask)
    (y,) = found.results()
    assert y is not None and np.isfinite(y).all() and not y[0, 0, 2].any()
    close(found, 32)


def test_what_is_left_to_the_portable_kernel() -> None:
    assert node((1, 1, 1, 4, 4, 300, 8)).job() is None  # does not fit local memory
    assert node((1, 1, 1, 4, 4, 8, 8), dtype="float64").job() is None
    assert node((1, 1, 1, 4, 4, 8, 8), softmax_precision=10).job() is None
    found = node((1, 1, 1, 4, 4, 8, 8))
    assert Node("Attention", 24, found.inputs, {}, (True, True, True, True)).job() is None  # asks for scores
