"""Operators of language models that are not attention alone: LinearAttention, CausalConvWithState, GatedRMSNorm, LinearAttentionGate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernel_text import causal, gated
from onnxplug_kernel_text import linear_attention as linear
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes.attention_contrib import Scratch
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, Pass, integers, text_type
from onnxplug_kernel_text.nodes.lines import Division

_FLOATS = ("f16", "bf16", "f32")
_DECAYING, _LEARNING = ("gated", "gated_delta"), ("delta", "gated_delta")
_OTHER = ("input_channel_offset", "input_channels", "state_length", "state_update_capacity", "state_window")
_ACTIVATIONS = ("none", "silu", "swish")


def linear_attention(call: NodeCall, span: int, block: int) -> Job | None:
    """LinearAttention, of com.microsoft too: a work-item has ``span`` columns of a head's state, ``block`` of them are a group. None for
    operands that do not fit."""
    query, key, value, past, decay, beta = (call.given(n) for n in range(6))
    a = call.attributes
    if query is None or key is None or value is None:
        return None
    heads, queries, rule = a["kv_num_heads"], a["q_num_heads"], a.get("update_rule", "gated_delta")
    window = a.get("state_window", 0)
    given = [spec for spec in (query, key, value, decay, beta) if spec is not None]
    state = query.dtype if past is None else past.dtype
    types = text_type(query.dtype), text_type(state)
    if (decay is None) == (rule in _DECAYING) or (beta is None) == (rule in _LEARNING) or min(heads, queries) < 1:
        return None
    if not set(types) <= set(_FLOATS) or any(s.dtype != query.dtype or len(s.shape) != 3 for s in given):
        return None
    if max(heads, queries) % min(heads, queries) or any(s.shape[:2] != query.shape[:2] for s in given):
        return None
    batch, length, width = query.shape
    size, value_size = key.shape[2] // heads, value.shape[2] // heads
    if (width, key.shape[2], value.shape[2]) != (queries * size, heads * size, heads * value_size):
        return None
    if (decay is not None and decay.shape[2] not in (heads, heads * size)) or not 0 <= window <= 8:
        return None
    if beta is not None and beta.shape[2] not in (1, heads):
        return None
    states, slots = batch * heads * size * value_size, max(window, 1)
    whole = (batch, heads, size, value_size)
    if past is not None and past.shape != ((window, *whole) if window else whole):
        return None
    by_key = decay is not None and decay.shape[2] == heads * size
    form = linear.Form(*types, past is not None, decay is not None, by_key, beta is not None)
    span = min(span, max(value_size, 1))
    parts = -(-value_size // span)
    points = batch * heads * parts
    if not points:
        return Job()
    scratch = Scratch(call)
    begin = scratch.take(states, 4)
    present = call.write(1) if call.wanted(1) is not None else scratch.take(slots * states, np.dtype(state).itemsize)
    tensors = [call.read(n) for n in range(6) if call.given(n) is not None]
    group, shared = max(1, queries // heads), max(1, heads // queries)
    rates = 0 if beta is None else beta.shape[2]
    scalars = integers(
        points, parts, heads, group, shared, length, size, value_size, rates, (slots - 1) * states, slots, states
    )
    scale = np.float32(a.get("scale", 0.0) or 1 / math.sqrt(size or 1))
    text = linear.recurrence(call.op_type, form, span, even=value_size % span == 0)
    refs = (*tensors, call.write(), present, begin)
    return Job([Launch(text, call.op_type, refs, (*scalars, scale), -(-points // block), block)], scratch.nbytes)


def unconvolved(node: NodeView | NodeCall) -> str | None:
    """Why a CausalConvWithState is declined."""
    other = [n for n in _OTHER if node.attributes.get(n, 0)]
    if other or node.attributes.get("state_channels_last", -1) >= 0 or node.attributes.get("ndim", 1) != 1:
        return f"{', '.join(other) or 'a state of another layout'}: states as long as the filter and laid out as the input only"
    activation = node.attributes.get("activation", "none")
    return None if activation in _ACTIVATIONS else f"activation {activation!r}"


def causal_convolution(call: NodeCall, block: int) -> Job | None:
    """CausalConvWithState, of com.microsoft too; None for operands that do not fit."""
    x, weight, bias, past = call.input(0), call.input(1), call.given(2), call.given(3)
    a, type_ = call.attributes, text_type(x.dtype)
    last, dilation = bool(a.get("channels_last", 0)), a.get("dilation", 1)
    if unconvolved(call) is not None or type_ not in _FLOATS:
        return None
    if any(s is not None and s.dtype != x.dtype for s in (weight, bias, past)):
        return None
    if len(x.shape) < 3 or len(weight.shape) != 3 or dilation < 1 or (len(x.shape) > 3 and not last):
        return None
    taps = weight.shape[2]
    length, channels = (x.shape[1], x.shape[2:]) if last else (x.shape[2], x.shape[1:2])
    batch, count, reach = x.shape[0], math.prod(channels), (taps - 1) * dilation
    kept = (batch, reach, *channels) if last else (batch, *channels, reach)
    if taps < 1 or weight.shape[:2] != (count, 1) or (past is not None and past.shape != kept):
        return None
    if bias is not None and bias.shape != (count,):
        return None

    def strides(positions: int) -> tuple[int, int, int]:
        return (positions * count, 1, count) if last else (count * positions, positions, 1)

    scalars = (count, length, reach, taps, dilation, *strides(length), *strides(reach))
    gated_ = a.get("activation", "none") != "none"
    before = [call.read(3)] if past is not None else []
    biased = [call.read(2)] if bias is not None else []
    text = causal.convolution(call.op_type, type_, bias=bool(biased), past=bool(before), gated=gated_)
    launches = []

    def launch(name: str, text: str, refs: Sequence[Ref], points: int) -> None:
        if points:
            launches.append(Launch(text, name, tuple(refs), integers(points, *scalars), -(-points // block), block))

    launch(call.op_type, text, [call.read(0), call.read(1), *biased, *before, call.write()], batch * count * length)
    if call.wanted(1) is not None:
        text = causal.state("state", type_, past=bool(before))
        launch("state", text, [call.read(0), *before, call.write(1)], batch * count * reach)
    return Job(launches)


def gated_norm(call: NodeCall, division: Division) -> Job | None:
    """GatedRMSNorm; None for operands that do not fit."""
    x, scale, gate = call.input(0), call.input(1), call.input(2)
    type_, length = text_type(x.dtype), math.prod(scale.shape)
    activation = call.attributes.get("activation", "silu")
    if type_ not in _FLOATS or {scale.dtype, gate.dtype} != {x.dtype} or gate.shape != x.shape or len(scale.shape) != 1:
        return None
    if not length or not x.shape or x.shape[-1] % length or activation not in ("silu", "swish", "sigmoid"):
        return None
    lines = math.prod(x.shape) // length
    group = division.share(lines, length, 1)
    if not group:  # the kernel is written for groups
        return None
    text = gated.normalisation(call.op_type, type_, group=group, whole=activation != "sigmoid")
    scalars = (*integers(length), np.float32(call.attributes.get("epsilon", 1e-5)))
    tensors = [call.read(0), call.read(1), call.read(2), call.write()]
    return Job([division.launch(call.op_type, text, tensors, scalars, lines, group)] if lines else [])


def gates(call: NodeCall) -> list[Pass] | None:
    """LinearAttentionGate: decay_scale * softplus(a + dt_bias), and the sigmoid of b."""
    a, bias, scale, b = call.input(0), call.input(1), call.input(2), call.given(3)
    type_ = text_type(a.dtype)
    fits = all(len(s.shape) <= len(a.shape) and np.broadcast_shapes(s.shape, a.shape) == a.shape for s in (bias, scale))
    if type_ not in _FLOATS or not fits or {bias.dtype, scale.dtype} != {np.dtype(np.float32)}:
        return None
    walk = dense(a.shape)
    walked = space(a.shape, [walk, *(broadcast(s.shape, a.shape) for s in (bias, scale)), walk])
    body = " ".join(["const f32 s = x0 + x1;", *statements("t", "Softplus", ["s"], ["f32"], "f32", {}), "y0 = x2 * t;"])
    inputs = [(call.read(0), type_), (call.read(1), "f32"), (call.read(2), "f32")]
    made = [Pass(inputs, (call.write(), type_), walked, body)]
    if call.wanted(1) is not None:
        if b is None:
            return None
        body = " ".join([*statements("t", "Sigmoid", ["x0"], ["f32"], "f32", {}), "y0 = t;"])
        kind = text_type(b.dtype)
        made.append(Pass([(call.read(3), kind)], (call.write(1), kind), space(b.shape, [dense(b.shape)] * 2), body))
    return made
