"""MoE, QMoE and MoEGroupRouter of domain com.microsoft."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernel_text import experts
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.nodes.attention_contrib import Scratch
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, Pass, integers, text_type
from onnxplug_kernel_text.packed_experts import packed_layer

_FLOATS = ("f16", "bf16", "f32")
_BITS = (2, 4, 8)
_ROUTER_WEIGHTS, _MOST = 14, 21
_PARTS: Mapping[str, Sequence[tuple[int, int | None, int | None, int]]] = {
    "MoE": ((2, None, None, 3), (4, None, None, 5), (6, None, None, 7)),
    "QMoE": ((2, 3, 11, 4), (5, 6, 12, 7), (8, 9, 13, 10)),
}
"""Inputs that are a layer's weights, scales, zero points and bias."""


def unmixed(node: NodeView | NodeCall) -> str | None:
    """Why a node is declined."""
    given, attributes = [*node.inputs, *[None] * _MOST][:_MOST], node.attributes
    kind, after = attributes.get("activation_type", "relu"), attributes.get("swiglu_limit_after_activation", 0)
    further = any(value is not None for value in given[_ROUTER_WEIGHTS + 1 :])
    if attributes.get("quant_type", "int") != "int" or attributes.get("weights_prepacked", -1) > 0 or further:
        return "only weights of packed integers in the portable layout"
    if kind not in experts.ACTIVATIONS or after not in (0, kind == "swiglu"):
        return f"activation_type {kind!r} with swiglu_limit_after_activation {after}"
    block = attributes.get("block_size", 0)
    for number, (weights, scales, _, _) in enumerate(_PARTS[node.op_type]):
        value = given[weights]
        if scales is None or value is None:
            continue
        bits = _bits(attributes, number)
        packed = value.shape[-1] if value.shape else None
        whole = bits in _BITS and (not isinstance(packed, int) or packed * 8 % (bits * experts.WORD) == 0)
        if given[scales] is None or block % experts.WORD or not whole:
            return f"{bits} bits in blocks of {block}, packed in {packed} bytes"
    return None


@dataclass(frozen=True)
class _Layer:
    """A layer whose operands fit: what its text is made from, its tensors but the rows, its extents."""

    form: experts.Layer
    tensors: tuple[Ref, ...]
    columns: int
    depth: int
    blocks: int
    block: int


def mixture(call: NodeCall, block: int, lanes: int = 0) -> Job | None:
    """MoE and QMoE; ``block``: work-items of a group; ``lanes``: floats of the vectors that a processor unpacks weights into, 0 for none
    (OpenCL only). None for operands that do not fit."""
    x, scores, a = call.input(0), call.input(1), call.attributes
    if unmixed(call) is not None or not x.shape:
        return None
    type_, depth, rows = text_type(x.dtype), x.shape[-1], math.prod(x.shape[:-1])
    k, swiglu = a.get("k", 1), a.get("activation_type", "relu") == "swiglu"
    if type_ not in _FLOATS or len(scores.shape) != 2 or scores.dtype != x.dtype:
        return None
    count, pairs = scores.shape[1], rows * k
    if scores.shape[0] != rows or not 1 <= k <= count:
        return None
    first, third = (_layer(call, n, count, depth, type_, gathered=True) for n in (0, 2))
    if first is None or (third is None and call.given(_PARTS[call.op_type][2][0]) is not None):
        return None
    fused = swiglu and third is None
    inner = first.columns // 2 if fused else first.columns
    second = _layer(call, 1, count, inner, "f32", gathered=False)
    if second is None or second.columns != depth or (third is not None and third.columns != inner):
        return None
    if (fused and first.columns % 2) or math.prod(x.shape) == 0:
        return None if x.shape[-1] and rows else Job()
    scratch = Scratch(call)
    picked, order, places, shares = (scratch.take(pairs, 4) for _ in range(4))
    begins = scratch.take(count + 1, 4)
    routed = _routed(call, type_, (rows, count, k), picked, shares, block)
    if routed is None:
        return None
    launches = [routed]
    sorting = experts.sorted_pairs("sorted")
    launches.append(_launch("sorted", sorting, (picked, order, places, begins), (count, pairs), count, block))

    def multiplied(name: str, made: _Layer, source: Ref) -> Ref:
        to, points = scratch.take(pairs * made.columns, 4), count * made.columns
        refs = (source, *made.tensors, order, begins, to)
        numbers = (points, made.columns, made.depth, k, made.blocks, made.block)
        width = _width(made, lanes)
        text = packed_layer(name, made.form, width) if width else experts.layer(name, made.form)
        launches.append(_launch(name, text, refs, numbers, points, block))
        return to

    read = call.read(0)
    if type_ != "f32" and first.form.bits and lanes:  # rows that vectors are read of
        read = scratch.take(rows * depth, 4)
        walked = space((rows * depth,), [(1,), (1,)])
        launches.append(Pass([(call.read(0), type_)], (read, "f32"), walked, "y0 = x0;").launch("wide", block))
        first, third = (made and replace(made, form=replace(made.form, rows="f32")) for made in (first, third))
        assert first is not None
    hidden = multiplied("first", first, read)
    gate = [] if third is None else [multiplied("gate", third, read)]
    limit = a.get("swiglu_limit", math.inf)
    text = experts.activated(
        "activated", a.get("activation_type", "relu"), gated=bool(gate), fused=a.get("swiglu_fusion", 0),
        alpha=a.get("activation_alpha", 1.0), beta=a.get("activation_beta", 0.0),
        limit=limit if math.isfinite(limit) else None, limit_after=bool(a.get("swiglu_limit_after_activation", 0)),
    )  # fmt: skip
    opened = scratch.take(pairs * inner, 4)
    launches.append(_launch("activated", text, (hidden, *gate, opened), (pairs * inner, inner), pairs * inner, block))
    made = multiplied("second", second, opened)
    points = rows * depth
    text, refs = experts.mixed("mixed", type_), (made, places, shares, call.write())
    launches.append(_launch("mixed", text, refs, (points, depth, k), points, block))
    return Job(launches, scratch.nbytes)


def unrouted(node: NodeView) -> str | None:
    """MoEGroupRouter that is not computed."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return "logits that are made with projection_weight"
    asked = [value is not None for value in node.outputs]
    return "router_probs and scores are asked for together" if asked[0] and any(asked[1:]) else None


def router(call: NodeCall, block: int) -> Job | None:
    """MoEGroupRouter; ``block``: work-items of a group. None for operands that do not fit."""
    logits, bias, a = call.input(0), call.input(1), call.attributes
    type_, count, rows = text_type(logits.dtype), math.prod(bias.shape), math.prod(logits.shape[:-1])
    k, groups, few, best = a["top_k"], a.get("n_group", 1), a.get("topk_group", 1), a.get("group_topk", 2)
    if type_ not in _FLOATS or len(bias.shape) != 1 or logits.shape[-1:] != bias.shape or bias.dtype != np.float32:
        return None
    full = call.outputs[0] is None
    size = count // groups if groups > 0 else 0
    if min(k, best, few, size) < 1 or size * groups != count or few > groups or k > count or (full and groups > 1):
        raise ValueError(f"top_k {k}, n_group {groups}, topk_group {few} and group_topk {best} for {count} experts")
    if not rows:
        return Job()
    scratch, shape = Scratch(call), (rows, count)
    weight = " ".join(statements("w", "Sigmoid", ["x0"], ["f32"], "f32", {}))
    scores = call.write(1) if call.wanted(1) is not None else scratch.take(rows * count, 4)
    biased = space(shape, [dense(shape), (0, 1), dense(shape)])
    given = [(call.read(0), type_), (call.read(1), "f32")]
    launches = [Pass(given, (scores, "f32"), biased, f"{weight} y0 = w + x1;").launch("scored", block)]
    if call.wanted(2) is not None:
        walked = space(shape, [dense(shape)] * 2)
        launches.append(Pass(given[:1], (call.write(2), "f32"), walked, f"{weight} y0 = w;").launch("weights", block))
    if full:
        return Job(launches, scratch.nbytes)
    sums: list[Ref] = []
    if few < groups:
        sums = [scratch.take(rows * groups, 4)]
        numbers = (rows * groups, size, min(best, size))
        launches.append(
            _launch("summed", experts.sums_of_best("summed"), (scores, *sums), numbers, rows * groups, block)
        )
    text = experts.routed("routed", type_, grouped=bool(sums), sentinel=a.get("router_sentinel", -10000.0))
    refs, sizes = (call.read(0), scores, *sums, call.write()), (rows * count, count, min(k, few * size), size, few)
    launches.append(_launch("routed", text, refs, sizes, rows * count, block))
    return Job(launches, scratch.nbytes)


def _routed(
    call: NodeCall, type_: str, sizes: tuple[int, int, int], picked: Ref, shares: Ref, block: int
) -> Launch | None:
    a, weighted = call.attributes, call.op_type == "QMoE" and call.given(_ROUTER_WEIGHTS) is not None
    scores, own = call.input(1), call.given(_ROUTER_WEIGHTS)
    if weighted and own is not None and (own.dtype, own.shape) != (scores.dtype, scores.shape):
        return None
    if a.get("use_sparse_mixer", 0) and sizes[2] != 2:
        return None
    normalized = bool(a.get("normalize_routing_weights", 0)) or (call.op_type == "QMoE" and not weighted)
    text = experts.chosen(
        "chosen", type_, sparse=bool(a.get("use_sparse_mixer", 0)), weighted=weighted, normalized=normalized
    )
    refs = (call.read(1), *([call.read(_ROUTER_WEIGHTS)] if weighted else []), picked, shares)
    return _launch("chosen", text, refs, sizes, sizes[0], block)


def _layer(call: NodeCall, number: int, count: int, depth: int, rows: str, *, gathered: bool) -> _Layer | None:
    """A layer; None where there is none, or its operands do not fit."""
    weights, scales, zeros, bias = _PARTS[call.op_type][number]
    w, b = call.given(weights), call.given(bias)
    if w is None or len(w.shape) != 3 or w.shape[0] != count:
        return None
    bias_type = None if b is None else text_type(b.dtype)
    tensors = [call.read(weights)]
    block, bits, columns = depth, 0, w.shape[1]
    form = experts.Layer(rows, text_type(w.dtype), bias_type, gathered)
    if scales is None or zeros is None:
        turned = w.shape[2] != depth
        columns = w.shape[2] if turned else w.shape[1]
        if form.weights not in _FLOATS or (turned and w.shape[1] != depth):
            return None
        form = experts.Layer(rows, form.weights, bias_type, gathered, turned)
    else:
        bits, scale, zero = _bits(call.attributes, number), call.input(scales), call.given(zeros)
        blocked = call.attributes.get("block_size", 0)
        block = blocked or depth
        blocks = -(-depth // max(block, 1))
        per = 8 // bits
        whole = (count, columns) if not blocked else (count, columns, blocks)
        packed = (count, -(-columns // per)) if not blocked else (count, columns, -(-blocks // per))
        if w.shape[2] * per != depth or depth % experts.WORD or block % experts.WORD:
            return None
        if math.prod(scale.shape) != math.prod(whole) or (
            zero is not None and math.prod(zero.shape) != math.prod(packed)
        ):
            return None
        if (
            form.weights != "u8"
            or text_type(scale.dtype) not in _FLOATS
            or (zero is not None and zero.dtype != np.uint8)
        ):
            return None
        tensors += [call.read(scales), *([call.read(zeros)] if zero is not None else [])]
        form = experts.Layer(
            rows, "u8", bias_type, gathered, False, bits, text_type(scale.dtype), zero is not None, bool(blocked)
        )
    if b is not None and (b.shape != (count, columns) or bias_type not in _FLOATS):
        return None
    tensors += [call.read(bias)] if b is not None else []
    return _Layer(form, tuple(tensors), columns, depth, -(-depth // max(block, 1)), max(block, 1))


def _width(made: _Layer, lanes: int) -> int:
    """Elements of the vectors that a layer's weights are unpacked into; 0 where its kernel has none."""
    fit = (n for n in (16, 8) if n <= lanes and made.depth % n == 0 and made.block % n == 0)
    return next(fit, 0) if made.form.bits and made.form.rows == "f32" else 0


def _bits(attributes: Mapping[str, Any], number: int) -> int:
    return int(attributes.get(f"fc{number + 1}_expert_weight_bits", 0) or attributes.get("expert_weight_bits", 4))


def _launch(name: str, text: str, refs: tuple[Ref, ...], scalars: tuple[int, ...], points: int, block: int) -> Launch:
    return Launch(text, name, refs, integers(*scalars), -(-points // block), block)
