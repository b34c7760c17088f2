"""Attention: where work-items share local memory one kernel, else products around a softmax of the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.lines import alone
from onnxplug_ep_opencl.kernels.product import Product, Side, matmul, multiply
from onnxplug_ep_opencl.kernels.quantized import product as multiplied
from onnxplug_ep_opencl.kernels.shared import shared, unfit
from onnxplug_ep_opencl.kernels.tiles import Work, by_registers, usual
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text.attention import GROUP, Form
from onnxplug_kernel_text.attention_rows import weights
from onnxplug_kernel_text.nodes import attention as one
from onnxplug_kernel_text.nodes import attention_contrib as contrib
from onnxplug_kernel_text.nodes import grouped, unwritten
from onnxplug_kernel_text.nodes.attention import Problem
from onnxplug_kernel_text.nodes.faults import NO_KEY
from onnxplug_kernel_text.nodes.integers import attention_projection
from onnxplug_kernel_text.types import literal
from onnxplug_kernels.refusals import require_total

_LOCAL_BYTES = 48 << 10
"""Of local memory that the one kernel may take."""
_ALIGNMENT = 256
_QUANTIZED_MASK, _QUANTIZED_PAST = 5, 8
"""Inputs of QAttention."""


def multi_head(call: Call) -> Job:
    """MultiHeadAttention of domain com.microsoft."""
    return attended(call, contrib.described(call))


def group_query(call: Call) -> Job:
    """GroupQueryAttention of domain com.microsoft."""
    past, total = call.given(grouped.PAST_KEY), call.value(grouped.TOTAL)
    held = 0 if past is None or len(past.shape) != 4 else past.shape[2]
    if total is not None:
        require_total(total, call.input(grouped.QUERY).shape[1], held)
    faults = grouped.Faults(call.fault(), call.fault(NO_KEY))
    return attended(call, grouped.described(call, faults))


def attention(call: Call) -> Job:
    """Attention-23 and later."""
    return attended(call, one.described(call))


def self_attention(call: Call) -> Job:
    """Attention of domain com.microsoft: the input projection, its bias included, into scratch memory, then the rest."""
    x, w = call.input(0), call.input(1)
    projected = TensorSpec(x.dtype, (*x.shape[:2], w.shape[1]))
    scratch = contrib.Scratch(call)
    to = scratch.take(math.prod(projected.shape), x.dtype.itemsize)
    product = matmul(replace(call, op_type="MatMul", inputs=[x, w], outputs=[projected]))
    biased = call.given(2) is not None
    if biased:
        bias = Side(call.read(2), product.out.element, (0,) * len(product.batch), 0, 1)
        product = replace(product, others=[bias], body="y = x + e0;")
    product = replace(product, out=replace(product.out, ref=to))
    before = multiply(call.target, "projection", product, call.scratch(1, scratch.nbytes))
    rest = attended(call, contrib.self_attention(call, to, scratch, biased=biased))
    return Job([*before.launches, *rest.launches], max(scratch.nbytes + before.workspace, rest.workspace))


def quantized_attention(call: Call) -> Job:
    """QAttention of domain com.microsoft: as above, behind a product of 8-bit matrices."""
    x, w, scale = call.input(0), call.input(1), call.input(3)
    # Attention of floats, whose mask and past are other inputs.
    floats = [TensorSpec(scale.dtype, spec.shape) for spec in (x, w)]
    moved = [call.given(_QUANTIZED_MASK), call.given(_QUANTIZED_PAST), *[None] * (len(call.inputs) - 5)]
    plain = replace(call, op_type="Attention", inputs=[*floats, call.input(2), *moved])
    scratch = contrib.Scratch(plain)
    to = scratch.take(math.prod(x.shape[:2]) * w.shape[1], scale.dtype.itemsize)
    made = attention_projection(call, to)
    if made is None:
        unfit(call)
    rest = attended(plain, contrib.self_attention(plain, to, scratch, biased=True))
    numbers = {3: _QUANTIZED_MASK, 4: _QUANTIZED_PAST}
    behind = [
        replace(step, tensors=[replace(ref, number=numbers.get(ref.number, ref.number)) for ref in step.tensors])
        for step in rest.launches
    ]
    before = multiplied(call, replace(made, workspace=scratch.nbytes))
    return Job([*before.launches, *behind], max(before.workspace, rest.workspace))


def attended(call: Call, problem: Problem | None) -> Job:
    """The launches of an attention. Refusal where there is none, because shapes do not fit one another."""
    if problem is None:
        unfit(call)
    target = call.target
    if 0 in problem.shape[:4] or not problem.shape[-1]:
        return Job(shared(target, problem.before), problem.held)
    fits = problem.fits and target.largest_group >= GROUP and target.local_memory >= _LOCAL_BYTES
    if fits and not by_registers(target):
        made = one.job(problem, call.scratch(1).number)
        return Job(shared(target, made.launches), made.workspace)
    return _products(call, problem)


def _products(call: Call, problem: Problem) -> Job:
    """Scores, their weights, and the values so weighted, of which the first two lie in scratch memory."""
    batch, heads, kv_heads, queries, keys, size, value_size = problem.shape
    rows, together = batch * heads * queries, heads // kv_heads
    nbytes = -(-rows * keys * 4 // _ALIGNMENT) * _ALIGNMENT
    begin = -(-problem.held // _ALIGNMENT) * _ALIGNMENT
    scores, kept = (call.scratch(4, (begin + n * nbytes) // 4) for n in range(2))
    free = call.scratch(1, begin + 2 * nbytes)
    stack, plane = (batch, kv_heads, together), queries * keys
    lying = kv_heads * together * plane, together * plane, plane

    def grouped(view: one.View) -> tuple[int, int, int]:
        """Strides over the stack of what queries' heads own."""
        return view.strides[0], view.strides[1] * together, view.strides[1]

    def multiplied(name: str, left: Side, right: Side, out: Side, columns: int, depth: int, body: str) -> Job:
        work = Work(
            "f32", "as it is", "turned" if right.row == 1 else "as it is", math.prod(stack), queries, columns, depth
        )
        tile = usual(call.target, work)
        product = Product(left, right, out, stack, queries, columns, depth, tile, body=body)
        return multiply(call.target, name, product, free)

    q, k, v, y = problem.q, problem.k, problem.v, problem.y
    first = multiplied(
        "scores",
        Side(q.ref, problem.type, grouped(q), q.strides[2], 1),
        Side(k.ref, problem.type, (*k.strides[:2], 0), k.strides[3], k.strides[2]),
        Side(scores, "f32", lying, keys, 1),
        keys, size, f"y = {literal(problem.scale, 'f32')} * x;",
    )  # fmt: skip
    last = multiplied(
        "weighted",
        Side(kept, "f32", lying, keys, 1),
        Side(v.ref, problem.type, (*v.strides[:2], 0), v.strides[2], 1),
        Side(y.ref, problem.type, grouped(y), y.strides[2], 1),
        value_size, keys, "y = x;",
    )  # fmt: skip
    launches = [
        *shared(call.target, problem.before),
        *first.launches,
        _weights(call, problem, scores, kept),
        *last.launches,
    ]
    return Job(launches, begin + 2 * nbytes + max(first.workspace, last.workspace))


def _weights(call: Call, problem: Problem, scores: Ref, kept: Ref) -> Launch:
    batch, heads, _, queries, keys, size, value_size = problem.shape
    form = Form(
        problem.type, size, value_size, problem.mask_type, lengths=problem.lengths is not None,
        window=problem.left >= 0 or problem.right >= 0, cap=problem.cap > 0, zeros=problem.zeros,
    )  # fmt: skip
    tensors, step = [scores], 1
    rows = batch * heads * queries
    numbers = [rows, queries, keys, heads, problem.offset, problem.left, problem.right]
    if problem.mask is not None:
        *strides, step = problem.mask.strides
        numbers += [*strides, problem.mask_keys]
        tensors.append(problem.mask.ref)
    tensors += [*([problem.lengths] if problem.lengths is not None else []), kept]
    scalars: Sequence[Any] = [*map(np.int64, numbers), np.float32(problem.cap)]
    told = None
    if problem.scores is not None:
        tensors.append(problem.scores[0])
        told = problem.scores[1], problem.kept
    group = alone(call.target)
    return Launch(
        weights("weights", form, step, told), "weights", tensors, scalars, (-(-rows // group) * group,), (group,)
    )


def other(node: NodeView) -> str | None:
    """Attention-23 that is not computed."""
    if node.attributes.get("softmax_precision", 1) != 1:
        return f"softmax_precision={node.attributes['softmax_precision']}: softmax is in float32"
    if len({_has(node.inputs, 4), _has(node.inputs, 5), _has(node.outputs, 1), _has(node.outputs, 2)}) > 1:
        return "caches of which one is not given, or not asked for"
    return None if one_type(node) else "queries, keys and values of several types"


def one_type(node: NodeView) -> bool:
    """Whether queries, keys and values are of one type."""
    return len({value and value.dtype for value in node.inputs[:3]}) == 1


def kept_elsewhere(node: NodeView) -> str | None:
    """MultiHeadAttention that is not computed."""
    if node.attributes.get("unidirectional", 0) and _has(node.outputs, 3):
        return "scores of the future, which hold the lowest number, are asked for"
    return "caches that are written in place" if any(_has(node.inputs, n) for n in (8, 9)) else None


def beyond_groups(node: NodeView) -> str | None:
    """GroupQueryAttention that is not computed."""
    if any(_has(node.inputs, n) for n in grouped.BEYOND) or _has(node.outputs, 3):
        return "a score of no key, scales of caches of integers, weights of norms, lengths of the new rows, or scores that are asked for"
    for name in ("smooth_softmax", "sliding_window_cache"):
        if node.attributes.get(name, 0) == 1:
            return f"{name}=1"
    alike = (grouped.KEY, grouped.VALUE, grouped.PAST_KEY, grouped.PAST_VALUE)
    kinds = {value.dtype for n in alike if (value := node.inputs[n] if _has(node.inputs, n) else None) is not None}
    query = node.inputs[grouped.QUERY]
    return "queries, keys, values and caches of several types" if query and kinds - {query.dtype} else None


def unprojected(node: NodeView) -> str | None:
    """QAttention whose caches are written in place, whose keys are turned or whose product is not written."""
    return in_place(node) or unwritten.product(node)


def in_place(node: NodeView) -> str | None:
    """Attention of domain com.microsoft whose caches are written in place, or whose keys are turned."""
    if node.attributes.get("do_rotary", 0):
        return "do_rotary"
    return (
        "caches that are written in place"
        if node.attributes.get("past_present_share_buffer", 0) or (node.op_type == "Attention" and _has(node.inputs, 6))
        else None
    )


def _has(values: Sequence[Any], index: int) -> bool:
    return index < len(values) and values[index] is not None
