"""Attention and MultiHeadAttention of com.microsoft: self-attention with its projection, and attention behind one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.attention import Heads
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import cache, joined, part, present_of, split_heads, write_attention
from onnxplug_ep_cpu.codegen.lower.masks import LOWEST, Scores, Window, mask_index
from onnxplug_ep_cpu.codegen.lower.matrices import matrix_product
from onnxplug_ep_cpu.codegen.lower.norm_affine import grown
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor

MS = "com.microsoft"
_PLUS: ex.Expr = (("leaf", 0), ("leaf", 1), ("add", 0, 1))
_INTEGERS = frozenset({"int32"})


def _operands(node: NodeView, masks: tuple[int, ...]) -> str | None:
    """Every operand is a tensor of floats, masks of integers."""
    for index, value in enumerate(node.inputs):
        reason = typed(value, _INTEGERS) if index in masks else typed(value)
        if reason is not None:
            return reason
    return next((reason for value in node.outputs if (reason := typed(value))), None)


def _attention_supports(node: NodeView) -> str | None:
    _, weights, _, mask, past, _, length = [*node.inputs, *[None] * 7][:7]
    given = attributes(node, do_rotary=0, past_present_share_buffer=0, qkv_hidden_sizes=None)
    if given["do_rotary"]:
        return "do_rotary without cosines and sines has no portable meaning"
    if past is not None and (given["past_present_share_buffer"] or length is not None):
        return "a past whose length depends on data is not generated"
    if rank(weights) != 2 or (mask is not None and rank(mask) not in (1, 2, 3, 4)):
        return "the rank of an operand is not what the operator takes"
    sizes = given["qkv_hidden_sizes"]
    if sizes and sizes[1] != sizes[2] and len(node.outputs) > 1 and node.outputs[1] is not None:
        return "keys and values of different sizes have no present"
    return _operands(node, (3, 6))


@lowering("Attention", supports=_attention_supports, domain=MS)
def attention(b: Lowering, node: NodeView) -> None:
    """softmax(Q K^T scale + mask) V with Q, K and V one product of the input."""
    x, weights, bias, mask, past, added, _ = [*node.inputs, *[None] * 7][:7]
    assert x is not None and weights is not None
    width = b.shape(weights)[1]
    sizes = node.attributes.get("qkv_hidden_sizes") or [width // 3] * 3
    product = matrix_product(b, (*b.shape(x)[:2], width), x, weights)
    product = product if bias is None else grown(b, product, _PLUS, [b.read(bias)])
    self_attention(b, node, b.write(product), sizes, mask, past, added)


def self_attention(
    b: Lowering,
    node: NodeView,
    projected: Tensor,
    sizes: Sequence[int],
    mask: ValueView | None,
    past: ValueView | None,
    added: ValueView | None,
) -> None:
    """The node's outputs from queries, keys and values of these sizes, which lie beside each other."""
    y, present = [*node.outputs, None][:2]
    assert y is not None
    heads = node.attributes["num_heads"]
    q, k, v = (
        split_heads(part(projected, 2, start, size), heads)
        for start, size in zip((0, sizes[0], sizes[0] + sizes[1]), sizes, strict=True)
    )
    before = cache(b, past)
    if present is not None or before is not None:
        made = present_of(b, present, before)
        k, v = (joined(b, _entry(before, index), new, _entry(made, index)) for index, new in enumerate((k, v)))
    _attend(b, node, y, Heads(q, k, v), mask, added, 0 if before is None else before.shape[3])


def _entry(stacked: Tensor | None, index: int) -> Tensor | None:
    """Keys or values of [2, batch, heads, rows, size]."""
    if stacked is None:
        return None
    moved = stacked.shift(index * stacked.strides[0]) if stacked.size else stacked
    return moved.viewed(stacked.shape[1:], stacked.strides[1:])


def _attend(
    b: Lowering,
    node: NodeView,
    y: ValueView,
    heads: Heads,
    mask: ValueView | None,
    added: ValueView | None,
    past: int,
) -> None:
    """The attention by what both operators say of scores."""
    given = attributes(node, mask_filter_value=-10000.0, scale=0.0, unidirectional=0)
    scores = Scores(b, heads.scores)
    depth = heads.q.shape[3]
    scores.scale(given["scale"] or 1.0 / math.sqrt(depth))
    causal = given["unidirectional"] and heads.q.shape[2] > 1  # one query sees all keys, as in onnxruntime
    seen = past + 1 if causal else None
    if mask is not None:
        hiding = [(mask_index(b, mask, heads.scores, past), float(given["mask_filter_value"]))]
        if seen is not None and hiding[0][1] < LOWEST / 2:
            # a row may see nothing but masked keys, which are then no worse than those of the future
            future = Window(place=past, right=0).seen(b, *heads.scores[2:])
            assert future is not None
            hiding.append((future, LOWEST))
            seen = None
        scores.bury(*hiding)
    if added is not None:
        scores.add(b.read(added))
    write_attention(b, y, heads, scores, seen)


def _multi_head_supports(node: NodeView) -> str | None:
    query, key, value, bias, mask, _, past_key, past_value, length, cache = [*node.inputs, *[None] * 10][:10]
    if cache is not None:
        return "pasts of other beams are not generated"
    if length is not None:
        return "a past whose length depends on data is not generated"
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        return "the scores are wanted"
    if (past_key is None) != (past_value is None):
        return "the past has keys or values only"
    ranks = {(5, -1, -1), (3, 5, -1), (3, 3, 3), (3, 4, 4)}
    if (rank(query), rank(key), rank(value)) not in ranks or (mask is not None and rank(mask) not in (1, 2, 3)):
        return "the rank of an operand is not what the operator takes"
    if bias is not None and rank(bias) != 1:
        return "the rank of the bias is not 1"
    return _operands(node, (4, 8, 9))


@lowering("MultiHeadAttention", supports=_multi_head_supports, domain=MS)
def multi_head_attention(b: Lowering, node: NodeView) -> None:
    """softmax(Q K^T scale + mask) V; queries, keys and values come apart, as [batch, rows, heads, 3, size], or keys and
    values as [batch, rows, heads, 2, size] or [batch, heads, rows, size]."""
    query, key, value, bias, mask, added, past_key, past_value = [*node.inputs, *[None] * 8][:8]
    y, *presents = [*node.outputs, None, None][:3]
    assert query is not None and y is not None
    count = node.attributes["num_heads"]
    terms = None if bias is None else b.dense(bias)
    if rank(query) == 5:
        q, k, v = (_unpacked(b, query, i, terms, i * count * b.shape(query)[4]) for i in range(3))
    else:
        assert key is not None
        width = b.shape(query)[2]
        q = _apart(b, query, count, terms, 0)
        if rank(key) == 5:
            k, v = (_unpacked(b, key, i, terms, width + i * count * b.shape(key)[4]) for i in range(2))
        else:
            assert value is not None
            k = _apart(b, key, count, terms, width)
            v = _apart(b, value, count, terms, width + (b.shape(key)[2] if rank(key) == 3 else 0))
    pasts = [cache(b, past) for past in (past_key, past_value)]
    k, v = (
        joined(b, past, new, present_of(b, present, past))
        for past, new, present in zip(pasts, (k, v), presents, strict=True)
    )
    _attend(b, node, y, Heads(q, k, v), mask, added, 0 if pasts[0] is None else pasts[0].shape[2])


def _unpacked(b: Lowering, value: ValueView, place: int, bias: Tensor | None, start: int) -> Tensor:
    """One of the tensors of [batch, rows, heads, .., size], plus its part of the bias, as [batch, heads, rows, size]."""
    packed = b.read(value)
    batch, rows, heads, _, size = packed.shape
    moved = packed.shift(place * packed.strides[3])
    view = moved.viewed((batch, rows, heads, size), (*packed.strides[:3], packed.strides[4]))
    if bias is not None:
        term = _terms(bias, start, heads * size).viewed((heads, size), (size, 1))
        view = b.write(Pending(view.shape, _PLUS, [view, term], order=(0, 1, 2, 3)))
    return view.transposed((0, 2, 1, 3))


def _apart(b: Lowering, value: ValueView, heads: int, bias: Tensor | None, start: int) -> Tensor:
    """[batch, rows, heads * size] plus its part of the bias as [batch, heads, rows, size]; four dimensions are that."""
    if rank(value) == 4:
        return b.read(value)
    if bias is None:
        return split_heads(b.read(value), heads)
    term = _terms(bias, start, b.shape(value)[2])
    return split_heads(b.write(grown(b, b.pending(value), _PLUS, [term])), heads)


def _terms(bias: Tensor, start: int, count: int) -> Tensor:
    if bias.size < start + count:
        raise Unsupported(f"a bias of {bias.size} numbers is too short for {start + count} columns")
    return part(bias, 0, start, count)
