"""Operators that walk lines of a tensor: reductions, softmax, normalisations. How lines are divided among work-items is the device's
(``Division``). A lowering gives None for types that no kernel is written for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from onnxplug_kernel_text.layout import Space, broadcast, dense, space
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, Pass, integers, text_type
from onnxplug_kernel_text.norm import across_channels, normalisation
from onnxplug_kernel_text.reduce import arg_reduction, reduction
from onnxplug_kernel_text.skip import skip_normalisation
from onnxplug_kernel_text.softmax import softmax as softmax_text
from onnxplug_kernel_text.types import FLOATS

_WIDE = ("f16", "bf16", "f32", "f64", "i32", "i64", "u32", "u64")
_NARROW = (*_WIDE, "i8", "u8", "b8")
_FLOAT32 = ("f16", "bf16", "f32")
"""Types of normalisations with statistics, which are float32, of which epsilon is one."""
_SUMS = frozenset({"ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1"})


@dataclass(frozen=True)
class Division:
    """``share(lines, length, stride)``: work-items that share a line, 0 where one has it alone, None where the lines are left to others;
    ``alone``: work-items of a group that have a line each."""

    share: Callable[[int, int, int], int | None]
    alone: int

    def launch(
        self, name: str, text: str, tensors: Sequence[Ref], scalars: Sequence[np.generic], lines: int, group: int
    ) -> Launch:
        """One launch over that many lines."""
        grid = lines if group else -(-lines // self.alone)
        return Launch(text, name, tuple(tensors), tuple(scalars), grid, group or self.alone)


def softmax(call: NodeCall, division: Division) -> Job | None:
    """Softmax, LogSoftmax and Hardmax; before version 13 over all dimensions from ``axis`` on."""
    x = call.input(0)
    type_, rank = text_type(x.dtype), max(len(x.shape), 1)
    axis = call.attributes.get("axis", -1 if call.version >= 13 else 1)
    if type_ not in FLOATS:
        return None
    if 0 in x.shape:
        return Job()
    if call.version < 13:
        length, stride = math.prod(x.shape[axis + rank * (axis < 0) :]), 1
    else:
        length, stride = (x.shape[axis], math.prod(x.shape[axis % rank + 1 :])) if x.shape else (1, 1)
    lines = math.prod(x.shape) // length
    group = division.share(lines, length, stride)
    if group is None:
        return None
    text, scalars = softmax_text(call.op_type, call.op_type, type_, group), integers(lines, length, stride)
    return Job([division.launch(call.op_type, text, [call.read(0), call.write()], scalars, lines, group)])


def reduce(call: NodeCall, division: Division) -> Job | None:
    """ReduceSum and its family. Dimensions come as attribute ``axes`` or as the second input; none means all, or with
    ``noop_with_empty_axes`` no reduction."""
    x = call.input(0)
    type_ = text_type(x.dtype)
    taken = _NARROW if call.op_type in ("ReduceMax", "ReduceMin") else _WIDE if call.op_type in _SUMS else FLOATS
    if type_ not in taken or call.output().dtype != x.dtype:
        return None
    axes = call.numbers(1, "axes")
    if not axes:
        axes = [] if call.attributes.get("noop_with_empty_axes", 0) else list(range(len(x.shape)))
    of_nothing = call.op_type == "ReduceMean" and 0 in x.shape  # which is 0, as onnxruntime has it
    operator = "ReduceSum" if of_nothing else call.op_type
    return reduced(call, operator, {axis % len(x.shape) for axis in axes} if x.shape else set(), division)


def whole(call: NodeCall, division: Division) -> Job | None:
    """GlobalAveragePool, GlobalMaxPool and GlobalLpPool of p 1 and 2, and AveragePool of one window: reductions over the spatial
    dimensions."""
    if text_type(call.input(0).dtype) not in FLOATS:
        return None
    norm = {1: "ReduceL1", 2: "ReduceL2"}.get(call.attributes.get("p", 2))
    operator = {"GlobalMaxPool": "ReduceMax", "GlobalLpPool": norm}.get(call.op_type, "ReduceMean")
    if operator is None:
        return None
    return reduced(call, operator, set(range(2, len(call.input(0).shape))), division)


def reduced(
    call: NodeCall, operator: str, over: set[int], division: Division, into: tuple[Ref, int] | None = None
) -> Job | None:
    """``into``: where so many results go, if not to the output."""
    x = call.input(0)
    strides = dense(x.shape)
    kept = _walk(x.shape, strides, [k for k in range(len(x.shape)) if k not in over])
    gone = _walk(x.shape, strides, sorted(over))
    target, points = (call.write(), math.prod(call.output().shape)) if into is None else into
    if points == 0:
        return Job()
    group = division.share(points, gone.points, gone.strides[0][-1] if gone.shape else 1)
    if group is None:
        return None
    text = reduction(call.op_type, operator, text_type(x.dtype), len(kept.shape), len(gone.shape), group)
    scalars = integers(points, *kept.shape[1:], *kept.strides[0], *gone.shape, *gone.strides[0])
    return Job([division.launch(call.op_type, text, [call.read(0), target], scalars, points, group)])


def _walk(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> Space:
    return space(tuple(shape[k] for k in axes), [tuple(strides[k] for k in axes)])


def lp_norm(call: NodeCall, division: Division) -> Job | None:
    """LpNormalization: where the norm is zero the result is zero."""
    x, type_ = call.input(0), text_type(call.input(0).dtype)
    if type_ not in FLOATS:
        return None
    axis = call.attributes.get("axis", -1) % len(x.shape)
    norms = tuple(1 if k == axis else extent for k, extent in enumerate(x.shape))
    made = call.scratch(x.dtype.itemsize)
    if math.prod(x.shape) == 0:
        return Job()
    before = reduced(call, f"ReduceL{call.attributes.get('p', 2)}", {axis}, division, (made, math.prod(norms)))
    if before is None:
        return None
    walked = space(x.shape, [dense(x.shape), broadcast(norms, x.shape), dense(x.shape)])
    inputs = [(call.read(0), type_), (made, type_)]
    after = Pass(inputs, (call.write(), type_), walked, "y0 = x1 == 0 ? 0 : x0 / x1;")
    return Job([*before.launches, after.launch("divided", division.alone)], math.prod(norms) * x.dtype.itemsize)


def arg(call: NodeCall, division: Division) -> Job | None:
    """ArgMax and ArgMin."""
    x = call.input(0)
    type_ = text_type(x.dtype)
    if type_ in ("", "b8"):
        return None
    axis = call.attributes.get("axis", 0) % max(len(x.shape), 1)
    length, stride = (x.shape[axis], math.prod(x.shape[axis + 1 :])) if x.shape else (1, 1)
    points = math.prod(call.output().shape)
    if points == 0:
        return Job()
    group = division.share(points, length, stride)
    if group is None:
        return None
    last = bool(call.attributes.get("select_last_index", 0))
    text = arg_reduction(call.op_type, call.op_type == "ArgMax", last, type_, group)
    scalars = integers(points, length, stride)
    return Job([division.launch(call.op_type, text, [call.read(0), call.write()], scalars, points, group)])


def _normalised(
    call: NodeCall,
    lines: int,
    length: int,
    pick: tuple[int, int, int],
    division: Division,
    *,
    centred: bool,
    statistics: Mapping[int, str] = MappingProxyType({}),
) -> Job | None:
    x, scale, bias = call.input(0), call.input(1), call.given(2)
    types = text_type(x.dtype), text_type(scale.dtype)
    taken = _FLOAT32 if statistics or not centred else FLOATS
    if types[0] not in taken or types[1] not in FLOATS or call.output().dtype not in (x.dtype, scale.dtype):
        return None
    if any(call.output(n).dtype != np.float32 for n in statistics) or (bias is not None and bias.dtype != scale.dtype):
        return None
    if lines * length == 0:
        return Job()
    group = division.share(lines, length, 1)
    if group is None:
        return None
    named = [*statistics.values()]
    text = normalisation(
        call.op_type, *types, bias=bias is not None, centred=centred, statistics=named, group=group,
        made=text_type(call.output().dtype),
    )  # fmt: skip
    tensors = [call.read(0), call.read(1), *([call.read(2)] if bias is not None else []), call.write()]
    tensors += [call.write(n) for n in statistics]
    scalars = [*integers(lines, length, *pick), np.float32(call.attributes.get("epsilon", 1e-5))]
    return Job([division.launch(call.op_type, text, tensors, scalars, lines, group)])


def layer_norm(call: NodeCall, division: Division) -> Job | None:
    """LayerNormalization, RMSNormalization, SimplifiedLayerNormalization; their scale has the shape that is normalised."""
    shape = call.input(0).shape
    axis = call.attributes.get("axis", -1) % len(shape)
    centred = call.op_type == "LayerNormalization"
    made = {1: "mean", 2: "spread"} if centred else {1: "spread"}
    wanted = {n: s for n, s in made.items() if call.wanted(n) is not None}
    plain = all(spec is None or tuple(spec.shape) == shape[axis:] for spec in call.inputs[1:])
    stashed = wanted and call.attributes.get("stash_type", 1) != 1
    if not plain or stashed or text_type(call.input(0).dtype) not in _FLOAT32:
        return None
    lines, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    return _normalised(call, lines, length, (1, 0, 1), division, centred=centred, statistics=wanted)


def instance_norm(call: NodeCall, division: Division) -> Job | None:
    """InstanceNormalization: lines are the channels of each image."""
    shape = call.input(0).shape
    length = math.prod(shape[2:])
    return _normalised(call, shape[0] * shape[1], length, (shape[1], 1, max(length, 1)), division, centred=True)


def group_norm(call: NodeCall, division: Division) -> Job | None:
    """GroupNormalization: lines are groups of channels; version 18 has a scale for each group, 21 for each channel."""
    shape, groups = call.input(0).shape, call.attributes["num_groups"]
    spatial = math.prod(shape[2:])
    length = shape[1] // groups * spatial
    pick = (groups, 1, max(length, 1)) if call.version < 21 else (groups, shape[1] // groups, max(spatial, 1))
    return _normalised(call, shape[0] * groups, length, pick, division, centred=True)


def skip_norm(call: NodeCall, division: Division) -> Job | None:
    """SkipLayerNormalization (x, skip, gamma, beta, bias) and SkipSimplifiedLayerNormalization (x, skip, gamma, bias)."""
    x, skip = call.input(0), call.input(1)
    centred = call.op_type == "SkipLayerNormalization"
    type_, length = text_type(x.dtype), x.shape[-1]
    beta, bias = (3, 4) if centred else (None, 3)
    given = [n for n in (2, beta, bias) if n is not None and call.given(n) is not None]
    if type_ not in _FLOAT32 or any(call.input(n).dtype != x.dtype for n in (1, *given)):
        return None
    if skip.shape not in (x.shape, (1, *x.shape[1:]), x.shape[1:]):
        return None
    if any(call.input(n).shape != (length,) for n in given):
        return None
    made = [n for n in (1, 2, 3) if call.wanted(n) is not None]
    if any(call.output(n).dtype != np.float32 for n in made if n < 3) or (not centred and 1 in made):
        return None
    lines = math.prod(x.shape[:-1])
    if lines * length == 0:
        return Job()
    group = division.share(lines, length, 1)
    if not group:  # the kernel is written for groups
        return None
    text = skip_normalisation(
        call.op_type, type_, beta=beta in given, bias=bias in given, centred=centred,
        mean=1 in made, spread=2 in made, total=3 in made, group=group,
    )  # fmt: skip
    tensors = [call.read(n) for n in (0, 1, *given)] + [call.write(n) for n in (0, *made)]
    scalars = [*integers(lines, length, math.prod(skip.shape[:-1])), np.float32(call.attributes.get("epsilon", 1e-12))]
    return Job([division.launch(call.op_type, text, tensors, scalars, lines, group)])


def lrn(call: NodeCall, division: Division) -> Job | None:
    """LRN, a work-item an element."""
    shape, size, type_ = call.input(0).shape, call.attributes["size"], text_type(call.input(0).dtype)
    if type_ not in FLOATS:
        return None
    points = math.prod(shape)
    if points == 0:
        return Job()
    defaults = (("alpha", float(np.float32(1e-4))), ("beta", 0.75), ("bias", 1.0))
    alpha, beta, bias = (call.attributes.get(n, d) for n, d in defaults)
    number = np.float64 if type_ == "f64" else np.float32
    scalars = [
        *integers(points, shape[1], math.prod(shape[2:]), size),
        number(alpha / size),
        number(beta),
        number(bias),
    ]
    text = across_channels(call.op_type, type_)
    return Job([division.launch(call.op_type, text, [call.read(0), call.write()], scalars, points, 0)])
