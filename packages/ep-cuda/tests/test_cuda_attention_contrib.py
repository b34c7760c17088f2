"""Attentions of domain com.microsoft by the generated kernel, in its OpenCL dialect on PoCL, against the portable kernels in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, close, draw, launches, named, on_opencl
from nvrtc_compile import ARCHITECTURES, assembled, ptx, unfit

from onnxplug_ep_cuda.codegen.launch import Ref
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.nodes.attention import job
from onnxplug_kernel_text.nodes.attention_contrib import Scratch, self_attention

RNG = np.random.default_rng
MS = "com.microsoft"
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled


def padding(rng: np.random.Generator, kind: str, batch: int, queries: int, keys: int, past: int) -> np.ndarray | None:
    """A mask in one of its forms."""
    if kind == "none":
        return None
    if kind in ("ends", "spans"):
        ends = rng.integers(1, keys + 1, batch)
        starts = [int(rng.integers(0, end)) for end in ends]
        return np.array([*ends, *(starts if kind == "spans" else [])], np.int32)
    most = max(keys, past + queries) + 2  # of a square mask each query has a row, as it has a place among the keys
    shape = {"keys": (batch, keys), "rows": (batch, queries, keys), "square": (batch, 1, most, most)}[kind]
    mask = (rng.random(shape) > 0.3).astype(np.int32)
    mask[..., 0] = 1
    return mask


# The default, -10000, rounds scores to a thousandth in float32, which shows where a query sees padding only.
FILTER = {"mask_filter_value": -50.0}
KINDS = ["none", "ends", "spans", "keys", "rows", "square"]


@SLOW
@given(st.data())
def test_multi_head_attention(data: st.DataObject) -> None:
    one = data.draw
    batch, heads, queries, fresh = (one(st.integers(1, n)) for n in (2, 3, 20, 40))
    layout = one(st.sampled_from(["plain", "plain", "query", "keys", "turned"]))
    past = one(st.sampled_from([0, 0, 7])) if layout == "plain" else 0
    fresh = queries if layout == "query" else fresh
    size, wide = 12, 12 if layout in ("query", "keys") else 20
    rng, keys = RNG(one(st.integers(0, 99))), past + fresh
    q = draw(rng, (batch, queries, heads * size))
    k, v = draw(rng, (batch, fresh, heads * size)), draw(rng, (batch, fresh, heads * wide))
    if layout == "query":
        q, k, v = draw(rng, (batch, queries, heads, 3, size)), None, None
    elif layout == "keys":
        k, v = draw(rng, (batch, fresh, heads, 2, size)), None
    elif layout == "turned":
        k, v = draw(rng, (batch, heads, fresh, size)), draw(rng, (batch, heads, fresh, wide))
    bias = draw(rng, (heads * (2 * size + wide),)) if one(st.booleans()) else None
    mask = padding(rng, one(st.sampled_from(KINDS)), batch, queries, keys, past)
    added = None
    if one(st.booleans()):
        added = draw(rng, [one(st.sampled_from([1, n])) for n in (batch, heads)] + [queries, keys])
    caches = [draw(rng, (batch, heads, past, n)) for n in (size, wide)] if past else [None, None]
    attributes: dict[str, Any] = {"num_heads": heads, "unidirectional": int(queries <= keys and one(st.booleans()))}
    attributes |= FILTER | ({"scale": 0.2} if one(st.booleans()) else {})
    outputs = one(st.sampled_from([(True,), (True, True, True)]))
    close(Node("MultiHeadAttention", 1, [q, k, v, bias, mask, added, *caches], attributes, outputs, MS), 64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype: str) -> None:
    """With a bias: the portable kernel rounds queries and keys with theirs to the type, as this does; the reference in float64 does not.
    So the scores, of up to 3 x 12 products, differ by roundings of their factors."""
    rng, kind = RNG(1), NARROW[dtype]
    q, k, v = (draw(rng, (2, 9, 24), kind) for _ in range(3))
    mask = padding(rng, "keys", 2, 9, 9, 0)
    close(Node("MultiHeadAttention", 1, [q, k, v, None, mask], {"num_heads": 2}, (True,), MS), 64)


def every_contrib() -> list[Node]:
    """A node for each text: forms of masks, with and without the future and a bias, in the types that change it."""
    made, rng = [], RNG(3)
    for dtype in ("float32", "float16"):
        x, added = draw(rng, (2, 40, 128), NARROW[dtype]), draw(rng, (1, 2, 40, 40), NARROW[dtype])
        for kind in KINDS:
            mask = padding(rng, kind, 2, 40, 40, 0)
            for bias, future in ((None, 0), (added, 1)):
                attributes = {"num_heads": 2, "unidirectional": future, **FILTER}
                made.append(Node("MultiHeadAttention", 1, [x, x, x, None, mask, bias], attributes, (True,), MS))
    return made


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kind_without_spills(architecture: str, tmp_path: Path) -> None:
    jobs = [job for job in (node.job() for node in every_contrib()) if job is not None]
    found = assembled(ptx(PRELUDE + named(jobs), architecture), architecture, tmp_path)
    assert len(found) >= sum(len(job.launches) for job in jobs) > 20 and {spilt for spilt, _ in found.values()} == {0}
    assert unfit({name: launch.block for name, launch in launches(jobs)}, found) == []


def test_what_is_left_to_the_portable_kernel() -> None:
    q = np.ones((1, 3, 8), np.float32)
    assert (
        Node("MultiHeadAttention", 1, [q, q, q], {"num_heads": 2}, (True, True, True, True), MS).job() is None
    )  # scores
    assert Node("MultiHeadAttention", 1, [q.astype(np.float64)] * 3, {"num_heads": 2}, (True,), MS).job() is None


@SLOW
@given(st.data())
def test_self_attention_behind_its_projection(data: st.DataObject) -> None:
    one = data.draw
    batch, heads, length, past = (
        one(st.integers(1, 2)),
        one(st.integers(1, 3)),
        one(st.integers(1, 20)),
        one(st.sampled_from([0, 5])),
    )
    rng, keys, wide = RNG(one(st.integers(0, 99))), past + length, 8 if past else 12
    sizes = [heads * 8, heads * 8, heads * wide]
    x, weights = draw(rng, (batch, length, 10)), draw(rng, (10, sum(sizes))) / np.float32(4)
    bias = draw(rng, (sum(sizes),)) if one(st.booleans()) else None
    mask = padding(rng, one(st.sampled_from(KINDS)), batch, length, keys, past)
    cache = draw(rng, (2, batch, heads, past, 8)) if past else None
    added = draw(rng, (1, heads, length, keys)) if one(st.booleans()) else None
    attributes = {"num_heads": heads, "qkv_hidden_sizes": sizes, "unidirectional": int(one(st.booleans())), **FILTER}
    node = Node(
        "Attention", 1, [x, weights, bias, mask, cache, added], attributes, (True, True) if past else (True,), MS
    )
    projected = np.asarray(x @ weights)
    seen = replace(
        node, inputs=[*node.inputs, None, projected]
    )  # the projection as one more input, which a kernel reads
    call = replace(node.call(), inputs=[*node.call().inputs, None, None])
    problem = self_attention(call, Ref(7, 4), Scratch(call))
    assert problem is not None
    # The projection is rounded to float32: scores of 8 products of sums of 10 terms, each off by some units at their magnitude.
    close(node, 512, on_opencl(job(problem, 8 + len(call.outputs)), seen.inputs, call.outputs))


def test_self_attention_that_is_left_to_the_portable_kernel() -> None:
    x, weights = np.ones((1, 3, 8), np.float32), np.ones((8, 24), np.float32)
    call = Node("Attention", 1, [x, weights], {"num_heads": 2}, (True,), MS).call()
    assert self_attention(call, Ref(2, 4), Scratch(call)) is not None
    shared = replace(call, attributes={**call.attributes, "past_present_share_buffer": 1})
    assert self_attention(shared, Ref(2, 4), Scratch(shared)) is None
