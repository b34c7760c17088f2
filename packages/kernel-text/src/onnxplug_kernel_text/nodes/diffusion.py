"""Operators that onnxruntime's optimizer joins in diffusion models, and gates and softmax with a bias: GroupNorm, SkipGroupNorm, BiasAdd,
BiasSplitGelu, SwiGLU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.group_norm import Form, normalisation
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.launch import Job, Pass, integers, text_type
from onnxplug_kernel_text.nodes.lines import Division
from onnxplug_kernel_text.types import literal

_FLOATS = ("f16", "bf16", "f32")


def group_norm(call: NodeCall, division: Division) -> Job | None:
    """GroupNorm and SkipGroupNorm; None for operands that do not fit."""
    x, gamma, beta, skip, bias = (call.given(n) for n in range(5))
    if x is None or gamma is None or beta is None or len(x.shape) < 2:
        return None
    a, last = call.attributes, bool(call.attributes.get("channels_last", 1))
    groups, channels = a["groups"], x.shape[-1 if last else 1]
    around = x.shape[1:-1] if last else x.shape[2:]
    positions, images = math.prod(around), x.shape[0]
    form = Form(
        text_type(x.dtype), text_type(gamma.dtype), last, skip is not None, bias is not None, call.wanted(1) is not None,
        bool(a["activation"]),
    )  # fmt: skip
    if form.type not in _FLOATS or form.scale not in _FLOATS or gamma.dtype != beta.dtype:
        return None
    if groups < 1 or channels % groups or any(s is not None and s.dtype != x.dtype for s in (skip, bias)):
        return None
    if any(s is not None and s.shape != (channels,) for s in (gamma, beta, bias)):
        return None
    steps = (0, 0, 0)
    if skip is not None:
        ones = (1,) * len(around)
        if skip.shape == x.shape:
            each = positions * channels
            steps = (each, 1, channels) if last else (each, positions, 1)
        elif skip.shape in ((images, channels), (images, *ones, channels) if last else (images, channels, *ones)):
            steps = (channels, 1, 0)
        else:
            return None
    lines = images * groups
    group = division.share(lines, channels // groups * positions, 1)
    if not group:  # the kernel is written for groups
        return None
    if not math.prod(x.shape):
        return Job()
    tensors = [call.read(n) for n in range(5) if call.given(n) is not None]
    tensors += [call.write(), *([call.write(1)] if form.total else [])]
    numbers = integers(groups, channels // groups, positions, *steps)
    scalars = (*numbers, np.float32(a.get("epsilon", 1e-5)))
    return Job(
        [division.launch(call.op_type, normalisation(call.op_type, form, group), tensors, scalars, lines, group)]
    )


def bias_add(call: NodeCall) -> Pass | None:
    """BiasAdd: the sum of all inputs."""
    out = call.output()
    return _over(call, out.shape, [(n, call.input(n).shape, 0) for n in range(3)], "y0 = x0 + x1 + x2;")


def split_gelu(call: NodeCall) -> Pass | None:
    """BiasSplitGelu: the left half of the sum times Gelu of the right one."""
    x, bias, half = call.input(0), call.input(1), call.output().shape[-1]
    if not x.shape or x.shape[-1] != 2 * half or bias.shape != (2 * half,):
        return None
    body = " ".join([*statements("t", "Gelu", ["(x1 + x3)"], ["f32"], "f32", {}), "y0 = (x0 + x2) * t;"])
    reads = [(0, x.shape, 0), (0, x.shape, half), (1, bias.shape, 0), (1, bias.shape, half)]
    return _over(call, call.output().shape, reads, body)


def swiglu(call: NodeCall) -> Pass | None:
    """SwiGLU of domain com.microsoft, not rounded in between."""
    gate, up, a, out = call.input(0), call.given(1), call.attributes, call.output().shape
    if up is None and (not gate.shape or gate.shape[-1] != 2 * out[-1]):
        return None
    if up is not None and up.shape != gate.shape:
        return None
    reads = [(0, gate.shape, 0), (1, up.shape, 0) if up is not None else (0, gate.shape, out[-1])]
    limit, lines = a.get("limit", 0.0), ["f32 g = x0, u = x1;"]
    if limit > 0:
        most = literal(limit, "f32")
        lines.append(f"g = g > {most} ? {most} : g; u = u > {most} ? {most} : u < -{most} ? -{most} : u;")
    lines.append(f"g = g / ((f32)1 + EXP(-({literal(a.get('activation_alpha', 1.0), 'f32')} * g)));")
    lines.append(f"y0 = g * (u + {literal(a.get('activation_beta', 0.0), 'f32')});")
    return _over(call, out, reads, " ".join(lines))


def rounded(node: NodeView) -> str | None:
    """SwiGLU whose first product is rounded to the type of the result."""
    return "round_activation" if node.attributes.get("round_activation", 0) else None


def _over(
    call: NodeCall, shape: Sequence[int], reads: Sequence[tuple[int, Sequence[int], int]], body: str
) -> Pass | None:
    """A pass over a result of that shape. ``reads``: number and shape of an input, and from which element of its lines on."""
    inputs, walks, rank = [], [], len(shape)
    for number, given, first in reads:
        kind = text_type(call.input(number).dtype)
        if kind not in _FLOATS or len(given) > rank:
            return None
        taken = (*given[:-1], shape[-1]) if given and given[-1] == 2 * shape[-1] else tuple(given)
        if np.broadcast_shapes(taken, tuple(shape)) != tuple(shape):
            return None
        steps = dense(given)
        missing = (0,) * (rank - len(given))
        walks.append((*missing, *(0 if n == 1 else s for n, s in zip(taken, steps, strict=True))))
        inputs.append((call.read(number, first), kind))
    walked = space(tuple(shape), [*walks, dense(shape)])
    return Pass(inputs, (call.write(), text_type(call.output().dtype)), walked, body)
