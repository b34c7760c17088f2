"""Slicing, splitting, broadcasting and gathering: views where strides can say it, copies where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.sizes import greatest, portion
from onnxplug_ep_cpu.codegen.kernels.gather import Gather
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import accepted, lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, reorder, reorders
from onnxplug_ep_cpu.codegen.lower.picking import pick, suits
from onnxplug_ep_cpu.codegen.lower.support import attributes, axis_of, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import NARROW, Ints, Tensor

BLOCK = 4096
"""Elements of one item of a gather."""


def _data(node: NodeView) -> str | None:
    return next((r for v in (node.inputs[0], *node.outputs) if (r := typed(v, SIZES))), None)


def _numbers(b: Lowering, node: NodeView, index: int, name: str) -> list[int] | None:
    """A list of integers given by an input, or by an attribute in older versions."""
    if name in node.attributes:
        return [int(n) for n in node.attributes[name]]
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return None
    numbers = b.numbers(value)
    if numbers is None:
        raise Unsupported(f"'{value.name}' depends on data")
    return numbers


@lowering("Slice", supports=_data)
def slice_(b: Lowering, node: NodeView) -> None:
    """A view; steps backwards are copied, since kernels expect strides that are not negative."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    if accepted(node) and not b.knows(y):
        return  # who reduces it reads what it is cut of
    (tensor, again), shape = b.unread(x), b.shape(y)
    starts = _numbers(b, node, 1, "starts") or []
    axes = _numbers(b, node, 3, "axes")
    steps = _numbers(b, node, 4, "steps") or [1] * len(starts)
    strides, shift, backwards = list(tensor.strides), 0, False
    for axis, start, step in zip(axes if axes is not None else range(len(starts)), starts, steps, strict=True):
        axis %= len(shape)
        size = tensor.shape[axis]
        start = start + size if start < 0 else start
        start = min(max(start, 0), size - 1 if step < 0 else size)
        shift += start * strides[axis]
        strides[axis] *= step
        backwards |= step < 0 and shape[axis] > 1
    if 0 in shape:
        shift = 0
    view = replace(tensor.shift(shift), shape=shape, strides=tuple(strides))
    if not backwards:
        b.define(y, again(view))
    elif tensor.element in (*NARROW, b.element(y)):  # as it lies
        copy(b.program, b.target, view, b.output(y, element=tensor.element))
    else:
        b.define(y, again(b.copied(view, range(len(shape)))))


def _split_supports(node: NodeView) -> str | None:
    return "a part is left out" if any(part is None for part in node.outputs) else _data(node)


@lowering("Split", supports=_split_supports)
def split(b: Lowering, node: NodeView) -> None:
    """Views one after the other."""
    x = node.inputs[0]
    assert x is not None
    tensor, again = b.unread(x)
    axis = axis_of(node.attributes.get("axis", 0), len(tensor.shape))
    if sum(b.shape(part)[axis] for part in node.outputs if part is not None) != tensor.shape[axis]:
        raise Unsupported("the parts are not the whole")
    start = 0
    for part in node.outputs:
        assert part is not None
        shape = b.shape(part)
        b.define(part, again(replace(tensor.shift(start * tensor.strides[axis]), shape=shape)))
        start += shape[axis]


@lowering("Expand", supports=_data)
def expand(b: Lowering, node: NodeView) -> None:
    """A broadcast view."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    b.define(y, b.lies(x).broadcast(b.shape(y)))


@lowering("ConstantOfShape", supports=lambda node: typed(node.outputs[0], SIZES))
def constant_of_shape(b: Lowering, node: NodeView) -> None:
    """A broadcast view of one element."""
    (y,) = node.outputs
    assert y is not None
    element = node.attributes.get("value", np.zeros(1, np.float32))
    b.define(y, b.read(b.prepared.table(node, "element", element.reshape(()).copy)).broadcast(b.shape(y)))


@lowering(
    "Tile", supports=lambda node: _data(node) or ("its older form is not generated" if node.since_version < 6 else None)
)
def tile(b: Lowering, node: NodeView) -> None:
    """A copy of a view in which every dimension is repeated."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    tensor, shape = b.lies(x), b.shape(y)
    if tensor.size == 0 or math.prod(shape) == 0:
        b.define(y, b.scratch(shape, element=tensor.element))
        return
    times = [n // m for n, m in zip(shape, tensor.shape, strict=True)]
    dims = tuple(n for pair in zip(times, tensor.shape, strict=True) for n in pair)
    strides = tuple(s for stride in tensor.strides for s in (0, stride))
    view = replace(tensor, shape=dims, strides=strides)
    repeated = view.reshaped(shape)
    if repeated is not None:
        b.define(y, repeated)
        return
    result = b.output(y, element=tensor.element)
    cut = tuple(s * step for s, n in zip(result.strides, tensor.shape, strict=True) for step in (n, 1))
    copy(b.program, b.target, view, result.viewed(dims, cut))


def _gather_supports(node: NodeView) -> str | None:
    return _data(node) or typed(node.inputs[1], {"int32", "int64"})


@lowering("Gather", supports=_gather_supports)
def gather(b: Lowering, node: NodeView) -> None:
    """Slices along an axis. A single constant index is a view."""
    (x, indices), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and y is not None
    tensor, again = b.unread(x)
    dims = len(tensor.shape)
    axis = axis_of(attributes(node, axis=0)["axis"], dims)
    size, rest = tensor.shape[axis], tensor.shape[axis + 1 :]
    if size == 0 != math.prod(b.shape(indices)):
        raise Unsupported("there is nothing to take")
    known = b.numbers(indices) if math.prod(b.shape(indices)) == 1 else None
    if known is not None and -size <= known[0] < size:
        at = known[0] % size
        kept = (*tensor.strides[:axis], *[0] * len(b.shape(indices)), *tensor.strides[axis + 1 :])
        b.define(y, again(replace(tensor.shift(at * tensor.strides[axis]), shape=b.shape(y), strides=kept)))
        return
    if (
        axis == dims - 1
        and indices.constant is not None
        and len(b.shape(indices)) == 1
        and tensor.element == b.element(y)
    ):
        places = [int(place) for place in indices.constant % max(size, 1)]
        if ((-size <= indices.constant) & (indices.constant < size)).all() and columns(b, y, tensor, places):
            return
    outer = tensor.shape[:axis]
    merged = tensor.reshaped((math.prod(outer), size, math.prod(rest)))
    if merged is None or (merged.shape[2] != 1 and merged.strides[2] != 1):
        tensor = b.copied(tensor, range(dims))
        merged = tensor.reshaped((math.prod(outer), size, math.prod(rest)))
    assert merged is not None
    if tensor.element in (*NARROW, b.element(y)):
        _gather(b, y, merged, b.dense(indices), (size,), (merged.strides[1],))
        return
    out = b.scratch(b.shape(y), element=tensor.element)
    gathered(b, out, merged, b.dense(indices), (size,), (merged.strides[1],))
    b.define(y, again(out))


@lowering("GatherND", supports=_gather_supports)
def gather_nd(b: Lowering, node: NodeView) -> None:
    """Slices that index tuples name."""
    (x, indices), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and y is not None
    tensor, tuples = b.dense(x), b.dense(indices)
    batch = node.attributes.get("batch_dims", 0)
    end = batch + tuples.shape[-1]
    many, inner = tensor.shape[:batch], tensor.shape[batch:end]
    if many != tuples.shape[:batch] or len(inner) < tuples.shape[-1]:
        raise Unsupported("the indices are not those of the data's batches")
    merged = tensor.reshaped((math.prod(many), *inner, math.prod(tensor.shape[end:])))
    assert merged is not None
    _gather(b, y, merged, tuples, inner, tensor.strides[batch:end], batch > 0)


def _gather(
    b: Lowering, y: ValueView, data: Tensor, indices: Tensor, sizes: Ints, strides: Sequence[int], apart: bool = False
) -> None:
    place = b.output(y, element=data.element)
    out = place if place.is_dense else b.scratch(place.shape, element=data.element)
    gathered(b, out, data, indices, sizes, strides, apart=apart)
    if out is not place:
        copy(b.program, b.target, out, place)


def columns(b: Lowering, y: ValueView, tensor: Tensor, wanted: Sequence[int]) -> bool:
    """Elements of the last axis, whose places are known; False where that is not quicker than looking each up, or rows do not lie
    at one distance."""
    *lead, size = tensor.shape
    rows = tensor.reshaped((math.prod(lead), size)) if lead else None
    if rows is None or not wanted or not 0 <= min(wanted) <= max(wanted) < size:
        return False
    whole = len(wanted) == size == rows.strides[0] and rows.strides[1] == 1 and reorders(b.target, size, rows.shape[0])
    if not whole and not suits(rows.shape[0], len(wanted), tensor.itemsize):
        return False
    place = b.output(y, element=tensor.element)
    out = place if place.is_dense else b.scratch(place.shape, element=tensor.element)
    if whole:
        reorder(b.program, rows, out, tuple(wanted), rows.shape[0])
    else:
        pick(b.program, b.target, out, rows, rows.strides[0], [at * rows.strides[1] for at in wanted])
    if out is not place:
        copy(b.program, b.target, out, place)
    return True


def gather_rows(b: Lowering, table: ValueView, indices: ValueView) -> Tensor:
    """The rows of a table that indices, none below 0, name: [..., columns]."""
    data, places = b.dense(table), b.dense(indices)
    out = b.scratch((*places.shape, data.shape[1]), element=data.element)
    gathered(
        b,
        out,
        data.viewed((1, *data.shape), (0, *data.strides)),
        places,
        (data.shape[0],),
        (data.shape[1],),
        negative=False,
    )
    return out


def refuse_none(sizes: Sequence[int]) -> None:
    """Raise Unsupported where indices are to name something of no elements: kernels take the first for what is not there."""
    if 0 in sizes:
        raise Unsupported("indices name something of no elements")


def gathered(
    b: Lowering,
    out: Tensor,
    data: Tensor,
    indices: Tensor,
    sizes: Ints,
    strides: Sequence[int],
    negative: bool = True,
    apart: bool = False,
) -> None:
    """Write ``out``, which is [outer, tuples, slice] without gaps; ``data`` is [outer, indexed dimensions, slice]. The outer ones
    have the same indices, or, ``apart``, each its own."""
    unit, depth = data.itemsize, len(sizes)
    if out.size == 0 and (apart or indices.size == 0):
        return
    refuse_none(sizes)
    outer, count = (data.shape[0], data.shape[-1]) if out.size else (1, 0)  # indices of nothing are checked, too
    tuples = indices.size // depth // (outer if apart else 1)
    block = portion(tuples, BLOCK // greatest(1, count))
    blocks = -(-tuples // block)
    args: list[int | Ref] = [
        out.ref, data.ref, indices.ref, Ref(STATUS_WORD), count, tuples, block, blocks, unit * count,
        unit * count * tuples, unit * data.strides[0], indices.itemsize * depth * tuples if apart else 0,
    ]  # fmt: skip
    for size, stride in zip(sizes, strides, strict=True):
        args += [size, unit * stride]
    kernel = Gather(unit, depth, 8 * indices.itemsize, negative)
    b.program.call(kernel, args, blocks * outer, out.size * unit * 0.1 + 4.0 * tuples * outer)
