"""Attention, its linear variant and rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case, Draw, strategy


@strategy("Attention")
def attention(d: Draw) -> Case:
    batch, groups, shared, size, wide = d.integer(1, 2), d.integer(1, 2), d.pick(1, 2), d.pick(2, 4, 3), d.pick(2, 3)
    heads, queries, keys = groups * shared, d.integer(1, 3), d.integer(1, 4)
    past = d.pick(0, 2)
    flat = d.flag()
    attributes: dict[str, Any] = {}
    t1, t2 = d.element("T1"), d.element("T2")
    shapes = [(batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, wide)]
    q, k, v = (d.tensor(s, e, -1, 1) for s, e in zip(shapes, (t1, t1, t2), strict=True))
    if flat:
        q, k, v = (np.ascontiguousarray(a.transpose(0, 2, 1, 3)).reshape(batch, a.shape[2], -1) for a in (q, k, v))
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    mask_type = d.element("U", None if d.cell.parameter == "U" else ("bool", t1))
    total = keys + past
    mask = None
    if d.cell.parameter == "U" or d.flag():
        shape = d.pick(
            (queries, total), (1, 1, queries, total), (batch, heads, queries, total), (batch, 1, queries, total)
        )
        mask = (
            d.tensor(shape, mask_type, -2, 2)
            if mask_type != "bool"
            else np.logical_or(d.tensor(shape, "bool"), np.arange(total) == 0)
        )
    caches = (
        [d.tensor((batch, groups, past, n), e, -1, 1) for n, e in ((size, t1), (wide, t2))] if past else [None, None]
    )
    attributes |= d.maybe(is_causal=d.pick(0, 1), scale=0.3, softcap=d.pick(0.0, 2.0))
    inputs: list[Any] = [q, k, v, mask, *caches]
    asked: Any = d.pick(1, 3) if past else 1
    if past and d.flag():
        asked = 4
        attributes["qk_matmul_output_mode"] = d.pick(0, 1, 2, 3)
    if past:
        asked = max(asked, 3)
    if d.version >= 24 and not past and d.flag():
        inputs.append(np.full(batch, keys, np.int64) - d.rng.integers(0, max(1, keys - queries), batch))
    return Case(inputs, attributes, asked)


@strategy("RotaryEmbedding")
def rotary_embedding(d: Draw) -> Case:
    batch, heads, length, size = d.integer(1, 2), d.integer(1, 3), d.integer(1, 4), d.pick(4, 2, 6)
    rotated = d.pick(size, 2)
    attributes = d.maybe(interleaved=d.pick(0, 1))
    if rotated != size:
        attributes["rotary_embedding_dim"] = rotated
    x = d.tensor((batch, heads, length, size))
    if d.flag():
        x, attributes = d.tensor((batch, length, heads * size)), {**attributes, "num_heads": heads}
    if d.flag():
        caches, positions = (batch, length, rotated // 2), None
    else:
        caches, positions = (7, rotated // 2), d.rng.integers(0, 7, (batch, length)).astype(np.int64)
    return Case([x, *(d.tensor(caches, None, -1, 1) for _ in range(2)), positions], attributes)


@strategy("LinearAttention")
def linear_attention(d: Draw) -> Case:
    batch, steps, groups, shared, dk, dv = (
        d.integer(1, 2),
        d.integer(1, 3),
        d.integer(1, 2),
        d.pick(1, 2),
        d.integer(1, 3),
        d.integer(1, 3),
    )
    heads = groups * shared
    rule = d.pick("gated_delta", "linear", "gated", "delta")
    q, k, v = (d.tensor((batch, steps, n), None, -1, 1) for n in (heads * dk, groups * dk, groups * dv))
    past = d.optional(lambda: d.tensor((batch, groups, dk, dv), d.element("S"), -1, 1))
    if past is None and d.cell.parameter != "S":
        d.bind("S", d.element("T"))
    elif past is None:
        past = d.tensor((batch, groups, dk, dv), d.element("S"), -1, 1)
    decay = d.tensor((batch, steps, d.pick(groups, groups * dk)), None, -1, 0) if "gated" in rule else None
    beta = d.tensor((batch, steps, d.pick(groups, 1)), None, 0, 1) if "delta" in rule else None
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": groups, **d.maybe(scale=0.5, chunk_size=2)}
    if rule != "gated_delta" or d.flag():
        attributes["update_rule"] = rule
    return Case([q, k, v, past, decay, beta], attributes, 2)


@strategy("FlexAttention", domain="ai.onnx.preview")
def flex_attention(d: Draw) -> Case:
    batch, groups, shared, size, wide = d.integer(1, 2), d.integer(1, 2), d.pick(1, 2), d.pick(2, 4), d.pick(2, 3)
    queries, keys = d.integer(1, 3), d.integer(1, 4)
    shapes = [(batch, groups * shared, queries, size), (batch, groups, keys, size), (batch, groups, keys, wide)]
    attributes = d.maybe(scale=0.3)
    return Case([d.tensor(s, None, -1, 1) for s in shapes], attributes, ranked=True)
