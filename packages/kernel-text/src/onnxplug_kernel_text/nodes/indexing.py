"""Operators that read or write where an index tensor says, that turn sequences round, or that put one value among others. ``block``:
work-items of a group. An index that is out of bounds reads zero and writes nothing, and is told of in ``fault``: a tensor of one i32, and
the number that is left there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernel_text import indexing
from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, copied, filled, integers, text_type
from onnxplug_kernel_text.nodes.windows import steps
from onnxplug_kernel_text.types import raw

WIDEST = 8
"""Bytes of an element that a register holds."""


def launched(name: str, text: str, refs: Sequence[Ref], block: int, points: int, *scalars: int) -> list[Launch]:
    """One work-item for each of ``points``; none where there are none."""
    if points == 0:
        return []
    return [Launch(text, name, tuple(refs), integers(points, *scalars), -(-points // block), block)]


def gather(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job | None:
    """Gather. None, here and of the two that follow, for elements that no register holds and operands that do not go together."""
    data, places, rank = call.input(0), call.input(1), len(call.input(0).shape)
    axis = call.attributes.get("axis", 0)
    if data.dtype.itemsize > WIDEST or not -rank <= axis < rank:
        return None
    axis %= rank
    out, inner = (*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]), math.prod(data.shape[axis + 1 :])
    if call.output().shape != out:
        return None
    text = indexing.gather(call.op_type, raw(data.dtype.itemsize), text_type(places.dtype))
    scalars = (fault[1], math.prod(places.shape), inner, data.shape[axis])
    return Job(_read(call, fault, text, block, math.prod(out), *scalars))


def gather_elements(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job | None:
    """GatherElements."""
    data, places, rank = call.input(0), call.input(1), len(call.input(0).shape)
    axis = call.attributes.get("axis", 0)
    if data.dtype.itemsize > WIDEST or len(places.shape) != rank or not -rank <= axis < rank:
        return None
    axis %= rank
    pairs = enumerate(zip(places.shape, data.shape, strict=True))
    if any(k != axis and m > n for k, (m, n) in pairs) or call.output().shape != places.shape:
        return None
    strides = dense(data.shape)
    others = [0 if k == axis else s for k, s in enumerate(strides)]
    text = indexing.gather_elements(call.op_type, raw(data.dtype.itemsize), text_type(places.dtype), rank)
    scalars = (fault[1], *places.shape[1:], *others, data.shape[axis], strides[axis])
    return Job(_read(call, fault, text, block, math.prod(places.shape), *scalars))


def gather_nd(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job | None:
    """GatherND."""
    data, places = call.input(0), call.input(1)
    batch, depth = call.attributes.get("batch_dims", 0), places.shape[-1] if places.shape else 0
    if data.dtype.itemsize > WIDEST or not 0 <= depth <= len(data.shape) - batch:
        return None
    if places.shape[:batch] != data.shape[:batch] or len(places.shape) <= batch:
        return None
    out = (*places.shape[:-1], *data.shape[batch + depth :])
    if call.output().shape != out:
        return None
    indexed, strides = (shape[batch : batch + depth] for shape in (data.shape, dense(data.shape)))
    each, tuples = math.prod(data.shape[batch + depth :]), math.prod(places.shape[batch:-1])
    text = indexing.gather_nd(call.op_type, raw(data.dtype.itemsize), text_type(places.dtype), depth)
    scalars = (fault[1], each, tuples, math.prod(data.shape[batch:]), *indexed, *strides)
    return Job(_read(call, fault, text, block, math.prod(out), *scalars))


def bounds(call: NodeCall, fault: tuple[Ref, int], block: int, low: int, high: int) -> Job:
    """A look at the first operand, of integers: each is in ``low`` to ``high`` - 1, or is told of."""
    places = call.input(0)
    text = indexing.bounds("bounds", text_type(places.dtype))
    refs = [call.read(0), fault[0]]
    return Job(launched("bounds", text, refs, block, math.prod(places.shape), fault[1], low, high))


def scatter_elements(call: NodeCall, fault: tuple[Ref, int], block: int, *, apart: bool) -> Job:
    """ScatterElements and its predecessor Scatter: the data, then the updates over it, a line along the axis after the other; ``apart``:
    updates that are not joined come in any order, a work-item each."""
    data, places, updates = call.input(0), call.input(1), call.input(2)
    if updates.shape != places.shape:
        raise ValueError(f"updates of shape {updates.shape} for indices of shape {places.shape}")
    axis = call.attributes.get("axis", 0) % len(data.shape)
    join = call.attributes.get("reduction", "none")
    reading, writing = dense(places.shape), dense(data.shape)
    if apart and join == "none":
        walked, extents, moves = (
            range(len(data.shape)),
            list(places.shape),
            [0 if k == axis else s for k, s in enumerate(writing)],
        )
        along = (1, 0, data.shape[axis], writing[axis])
    else:
        walked = [k for k in range(len(data.shape)) if k != axis] or [axis]  # type: ignore[assignment]
        extents = [places.shape[k] if k != axis else 1 for k in walked]
        moves = [writing[k] for k in walked]
        along = (places.shape[axis], reading[axis], data.shape[axis], writing[axis])
    text = indexing.scatter_elements("scatter", _moved(call, join), text_type(places.dtype), join, len(extents))
    scalars = (fault[1], *extents[1:], *(reading[k] for k in walked), *moves, *along)
    points = math.prod(extents) if math.prod(places.shape) else 0
    refs = [call.read(1), call.read(2), call.write(), fault[0]]
    return Job([*_data(call, block), *launched("scatter", text, refs, block, points, *scalars)])


def scatter_nd(call: NodeCall, fault: tuple[Ref, int], block: int, *, apart: bool) -> Job:
    """ScatterND: the data, then the updates over it; ``apart`` as above."""
    data, places = call.input(0), call.input(1)
    depth, join = places.shape[-1], call.attributes.get("reduction", "none")
    each, tuples = math.prod(data.shape[depth:]), math.prod(places.shape[:-1])
    if call.input(2).shape != (*places.shape[:-1], *data.shape[depth:]):
        raise ValueError(f"updates of shape {call.input(2).shape} for indices {places.shape} of {data.shape} elements")
    apart = apart and join == "none"
    text = indexing.scatter_nd("scatter", _moved(call, join), text_type(places.dtype), join, depth, apart)
    refs = [call.read(1), call.read(2), call.write(), fault[0]]
    scalars = (fault[1], each, tuples, *data.shape[:depth], *dense(data.shape)[:depth])
    points = each * tuples if apart else each
    return Job([*_data(call, block), *launched("scatter", text, refs, block, points, *scalars)])


def tensor_scatter(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job:
    """TensorScatter: the cache, then the update over it; without indices from the cache's beginning on."""
    cache, update, places = call.input(0).shape, call.input(1).shape, call.given(2)
    axis, mode = call.attributes.get("axis", -2), call.attributes.get("mode", "linear")
    axis += len(cache) if axis < 0 else 0
    alike = len(cache) == len(update) and all(
        m == n for k, (m, n) in enumerate(zip(cache, update, strict=True)) if k != axis
    )
    if not 0 < axis < len(cache) or not alike or call.input(0).dtype != call.input(1).dtype:
        raise ValueError(f"no update of shape {update} along axis {axis} for a cache of shape {cache}")
    if update[axis] > cache[axis] or (places is not None and places.shape != cache[:1]):
        raise ValueError(
            f"{update[axis]} steps do not fit into a cache of {cache[axis]}, or as many indices are not given"
        )
    type_, inner = raw(call.input(0).dtype.itemsize), math.prod(cache[axis + 1 :])
    if places is None:
        behind = dense(cache)
        walked = dense(update), behind
        if not math.prod(update):
            return Job(_data(call, block))
        return Job([*_data(call, block), copied(call.read(1), call.write(), update, walked).launch("update", block)])
    text = indexing.tensor_scatter("scatter", type_, mode == "circular")
    scalars = (fault[1], math.prod(cache[1:axis]), update[axis], inner, cache[axis])
    refs = [call.read(1), call.read(2), call.write(), fault[0]]
    return Job([*_data(call, block), *launched("scatter", text, refs, block, math.prod(update), *scalars)])


def max_unpool(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job:
    """MaxUnpool: zeros, then the elements where they were found."""
    x, out = call.input(0), call.output()
    call.value(2)  # the shape of the output, which then shows it
    window, rank = call.attributes["kernel_shape"], len(x.shape) - 2
    pads = call.attributes.get("pads") or [0] * (2 * rank)
    strides, _ = steps(call, rank)
    if call.input(1).shape != x.shape or not rank == len(window) == len(strides) == len(pads) // 2:
        raise ValueError(f"indices of shape {call.input(1).shape} and a window of {window} for elements of {x.shape}")
    sizes = zip(x.shape[2:], strides, window, pads[:rank], pads[rank:], strict=True)
    own = (*x.shape[:2], *((n - 1) * s + k - b - e for n, s, k, b, e in sizes))
    if len(out.shape) != len(own) or any(n < m or m < 0 for n, m in zip(out.shape, own, strict=True)):
        raise ValueError(f"output_shape {list(out.shape)} is less than {list(own)}")
    zeros = filled(call.write(), text_type(out.dtype), math.prod(out.shape), "0")
    text = indexing.max_unpool("unpool", raw(x.dtype.itemsize), len(own))
    refs = [call.read(0), call.read(1), call.write(), fault[0]]
    scalars = (fault[1], math.prod(own), *own[1:], *dense(out.shape))
    moved = launched("unpool", text, refs, block, math.prod(x.shape), *scalars)
    return Job([*([zeros.launch("zeros", block)] if math.prod(out.shape) else []), *moved])


def unknown_mode(node: NodeView) -> str | None:
    """A mode that TensorScatter does not have."""
    mode = node.attributes.get("mode", "linear")
    return None if mode in ("linear", "circular") else f"mode {mode!r} is not known"


def booleans_joined(node: NodeView) -> str | None:
    """Sums and products of booleans are left alone."""
    value, join = node.inputs[0], node.attributes.get("reduction", "none")
    return f"reduction {join} of booleans" if join != "none" and value is not None and value.dtype == np.bool_ else None


def reverse_sequence(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job:
    """ReverseSequence."""
    data, lengths = call.input(0), call.input(1)
    strides = dense(data.shape)
    time, batch = call.attributes.get("time_axis", 0), call.attributes.get("batch_axis", 1)
    if lengths.shape != (data.shape[batch],):
        raise ValueError(f"lengths of shape {lengths.shape} for {data.shape[batch]} sequences")
    text = indexing.reverse_sequence(call.op_type, raw(data.dtype.itemsize), text_type(lengths.dtype))
    refs = [call.read(0), call.read(1), call.write(), fault[0]]
    scalars = (fault[1], data.shape[time], strides[time], data.shape[batch], strides[batch])
    return Job(launched(call.op_type, text, refs, block, math.prod(data.shape), *scalars))


def one_hot(call: NodeCall, block: int) -> Job:
    """OneHot."""
    call.value(1)  # the depth, which the output's shape then shows
    places, out = call.input(0), call.output()
    axis = call.attributes.get("axis", -1) % len(out.shape)
    text = indexing.one_hot(call.op_type, text_type(places.dtype), raw(out.dtype.itemsize))
    refs, extents = [call.read(0), call.read(2), call.write()], (out.shape[axis], math.prod(out.shape[axis + 1 :]))
    return Job(launched(call.op_type, text, refs, block, math.prod(out.shape), *extents))


def _read(call: NodeCall, fault: tuple[Ref, int], text: str, block: int, points: int, *scalars: int) -> list[Launch]:
    refs = [call.read(0), call.read(1), call.write(), fault[0]]
    return launched(call.op_type, text, refs, block, points, *scalars)


def _data(call: NodeCall, block: int) -> list[Launch]:
    count = math.prod(call.input(0).shape)
    return [copied(call.read(0), call.write(), (count,), ((1,), (1,))).launch("copy", block)] if count else []


def _moved(call: NodeCall, join: str) -> str:
    dtype = call.input(0).dtype
    return raw(dtype.itemsize) if join == "none" else text_type(dtype)
