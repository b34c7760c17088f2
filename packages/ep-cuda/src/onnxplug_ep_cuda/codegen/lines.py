"""Operators that walk lines of a tensor, a block or a thread a line: softmax, reductions, normalisations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from onnxplug_ep_cuda.codegen.launch import Call, Job, Launch, Ref, integers, text_type
from onnxplug_kernel_text.layout import Space, dense, space
from onnxplug_kernel_text.nodes.embed import embedded
from onnxplug_kernel_text.norm import normalisation
from onnxplug_kernel_text.reduce import arg_reduction, reduction
from onnxplug_kernel_text.skip import skip_normalisation
from onnxplug_kernel_text.softmax import softmax as softmax_text
from onnxplug_kernel_text.types import FLOATS

_SHORT = 32
"""Elements of a line up to which one thread takes it."""
_MANY = 8192
"""Lines from which on threads that take one each fill the device, if neighbours read neighbours."""
_LONG = 1 << 16
"""Elements of a line from which on it should be divided among blocks where there are few lines."""
_ALONE = 128
_WIDE = ("f16", "bf16", "f32", "f64", "i32", "i64", "u32", "u64")
_NARROW = (*_WIDE, "i8", "u8", "b8")
_FLOAT32 = ("f16", "bf16", "f32")
"""Types of normalisations: epsilon and the statistics are float32."""
_SUMS = frozenset({"ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1"})


def together(lines: int, length: int, stride: int) -> int:
    """Threads of a block that shares a line; 0: a thread has it alone."""
    if length <= _SHORT or (stride >= _SHORT and lines >= _MANY):
        return 0
    return min(512, max(64, 1 << (length // 4 - 1).bit_length()))


def launch(name: str, text: str, tensors: Sequence[Ref], scalars: Sequence[np.generic], lines: int, group: int) -> Job:
    """One launch over that many lines."""
    grid = lines if group else -(-lines // _ALONE)
    return Job([Launch(text, name, tuple(tensors), tuple(scalars), grid, group or _ALONE)])


def softmax(call: Call) -> Job | None:
    """Softmax, LogSoftmax and Hardmax; before version 13 over all dimensions from ``axis`` on."""
    x = call.input(0)
    type_, rank = text_type(x.dtype), len(x.shape)
    if type_ not in FLOATS or rank == 0:
        return None
    axis = call.attributes.get("axis", -1 if call.version >= 13 else 1)
    if call.version >= 13:
        length, stride = x.shape[axis], math.prod(x.shape[axis % rank + 1 :])
    else:
        length, stride = math.prod(x.shape[axis if axis >= 0 else axis + rank :]), 1
    lines = math.prod(x.shape) // length
    group = together(lines, length, stride)
    text = softmax_text(call.op_type, call.op_type, type_, group)
    return launch(call.op_type, text, [call.read(0), call.write()], integers(lines, length, stride), lines, group)


def reduce(call: Call) -> Job | None:
    """ReduceSum and its family. Few long lines are CuPy's, which divides a line among blocks."""
    x = call.input(0)
    type_, axes = text_type(x.dtype), _axes(call)
    taken = _NARROW if call.op_type in ("ReduceMax", "ReduceMin") else _WIDE if call.op_type in _SUMS else FLOATS
    if type_ not in taken or not axes or call.output().dtype != x.dtype:
        return None
    over = {axis % len(x.shape) for axis in axes}
    strides = dense(x.shape)
    kept = _walk(x.shape, strides, [k for k in range(len(x.shape)) if k not in over])
    gone = _walk(x.shape, strides, sorted(over))
    points, length = kept.points, gone.points
    if length >= _LONG and points < 64:
        return None
    group = together(points, length, gone.strides[0][-1])
    text = reduction(call.op_type, call.op_type, type_, len(kept.shape), len(gone.shape), group)
    scalars = integers(points, *kept.shape[1:], *kept.strides[0], *gone.shape, *gone.strides[0])
    return launch(call.op_type, text, [call.read(0), call.write()], scalars, points, group)


def _axes(call: Call) -> list[int] | None:
    """The reduced axes; None or empty where nothing is reduced or nobody knows yet."""
    rank = len(call.input(0).shape)
    given = call.given(1)
    if given is not None and given.constant is None:
        return None
    axes = call.attributes.get("axes") if given is None else given.constant.reshape(-1).tolist()  # type: ignore[union-attr]
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        return None
    return [int(axis) for axis in axes] if axes else list(range(rank))


def _walk(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> Space:
    return space(tuple(shape[k] for k in axes), [tuple(strides[k] for k in axes)])


def arg(call: Call) -> Job | None:
    """ArgMax and ArgMin."""
    x = call.input(0)
    type_ = text_type(x.dtype)
    if type_ in ("", "b8") or not x.shape:
        return None
    axis = call.attributes.get("axis", 0) % len(x.shape)
    length, stride = x.shape[axis], math.prod(x.shape[axis + 1 :])
    lines = math.prod(x.shape) // length
    if length >= _LONG and lines < 64:
        return None
    group = together(lines, length, stride)
    last = bool(call.attributes.get("select_last_index", 0))
    text = arg_reduction(call.op_type, call.op_type == "ArgMax", last, type_, group)
    return launch(call.op_type, text, [call.read(0), call.write()], integers(lines, length, stride), lines, group)


def _normalised(
    call: Call,
    lines: int,
    length: int,
    pick: tuple[int, int, int],
    *,
    centred: bool,
    statistics: Mapping[int, str] = MappingProxyType({}),
) -> Job | None:
    x, scale, bias = call.input(0), call.input(1), call.given(2)
    types = text_type(x.dtype), text_type(scale.dtype)
    float32 = all(call.output(n).dtype == np.float32 for n in statistics)
    if types[0] not in _FLOAT32 or types[1] not in _FLOAT32 or call.output().dtype != x.dtype or not float32:
        return None
    if bias is not None and bias.dtype != scale.dtype:
        return None
    group = max(together(lines, length, 1), 32)
    named = [*statistics.values()]
    text = normalisation(call.op_type, *types, bias=bias is not None, centred=centred, statistics=named, group=group)
    tensors = [call.read(0), call.read(1), *([call.read(2)] if bias is not None else []), call.write()]
    tensors += [call.write(n) for n in statistics]
    scalars = [*integers(lines, length, *pick), np.float32(call.attributes.get("epsilon", 1e-5))]
    return launch(call.op_type, text, tensors, scalars, lines, group)


def layer_norm(call: Call) -> Job | None:
    """LayerNormalization, RMSNormalization, SimplifiedLayerNormalization; their scale has the shape that is normalised."""
    shape = call.input(0).shape
    axis = call.attributes.get("axis", -1) % len(shape)
    centred = call.op_type == "LayerNormalization"
    made = {1: "mean", 2: "spread"} if centred else {1: "spread"}
    wanted = {n: s for n, s in made.items() if call.wanted(n) is not None}
    plain = all(spec is None or tuple(spec.shape) == shape[axis:] for spec in call.inputs[1:])
    if not plain or (wanted and call.attributes.get("stash_type", 1) != 1):
        return None
    lines, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    return _normalised(call, lines, length, (1, 0, 1), centred=centred, statistics=wanted)


def instance_norm(call: Call) -> Job | None:
    """InstanceNormalization: lines are the channels of each image."""
    shape = call.input(0).shape
    length = math.prod(shape[2:])
    return _normalised(call, shape[0] * shape[1], length, (shape[1], 1, length), centred=True)


def group_norm(call: Call) -> Job | None:
    """GroupNormalization: lines are groups of channels; version 18 has a scale for each group, 21 for each channel."""
    shape, groups = call.input(0).shape, call.attributes["num_groups"]
    spatial = math.prod(shape[2:])
    length = shape[1] // groups * spatial
    pick = (groups, 1, length) if call.version < 21 else (groups, shape[1] // groups, spatial)
    return _normalised(call, shape[0] * groups, length, pick, centred=True)


def skip_norm(call: Call) -> Job | None:
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
    made = [n for n in (1, 2, 3) if call.wanted(n) is not None]
    if any(call.output(n).dtype != np.float32 for n in made if n < 3) or (not centred and 1 in made):
        return None
    lines = math.prod(x.shape[:-1])
    group = max(together(lines, length, 1), 32)
    text = skip_normalisation(
        call.op_type, type_, beta=beta in given, bias=bias in given, centred=centred,
        mean=1 in made, spread=2 in made, total=3 in made, group=group,
    )  # fmt: skip
    tensors = [call.read(n) for n in (0, 1, *given)] + [call.write(n) for n in (0, *made)]
    period = math.prod(skip.shape[:-1])
    scalars = [*integers(lines, length, period), np.float32(call.attributes.get("epsilon", 1e-12))]
    return launch(call.op_type, text, tensors, scalars, lines, group)


def embed_norm(call: Call) -> Job | None:
    """EmbedLayerNormalization of domain com.microsoft."""
    return embedded(call, max(together(math.prod(call.input(0).shape), call.input(2).shape[1], 1), 32))
