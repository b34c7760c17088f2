"""NonZero and Compress, whose results are as long as the data says. ``alone``: work-items of a group that have a run of elements each,
``block``: of one that have an element each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernel_text import selection
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.indexing import launched
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type
from onnxplug_kernel_text.types import raw

ALIGNMENT = 256
"""Bytes that parts of the scratch memory begin at multiples of."""
_RUNS = 1024
"""Runs that elements are divided into, at most: each work-item adds up what those before its own hold."""
_RUN = 256
"""Elements of a run, at least."""


def most_places(node: NodeView, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    """NonZero's result if no element is zero."""
    x = inputs[0]
    assert x is not None
    return TensorSpec(np.dtype(np.int64), (len(x.shape), math.prod(x.shape)))


def most_slices(node: NodeView, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    """Compress's result if the condition is true everywhere. ValueError where the axis is not one of the tensor's."""
    x, condition = inputs
    assert x is not None and condition is not None
    shape, axis = _along(x.shape, node.attributes.get("axis"))
    return TensorSpec(x.dtype, (*shape[:axis], min(math.prod(condition.shape), shape[axis]), *shape[axis + 1 :]))


def places_axis(node: NodeView, rank: int) -> int:
    """The dimension of NonZero's result that the data decides."""
    return 1


def slices_axis(node: NodeView, rank: int) -> int:
    """The dimension of Compress's result that the data decides."""
    axis: int = node.attributes.get("axis", 0)
    return axis % max(rank, 1)


def _along(shape: tuple[int, ...], axis: int | None) -> tuple[tuple[int, ...], int]:
    if axis is None:
        return (math.prod(shape),), 0
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"no axis {axis} in {shape}")
    return shape, axis % len(shape)


def non_zero(call: NodeCall, alone: int, block: int) -> Job | None:
    """NonZero; a second output, one int64, is told how many places there are. None for types that are not written."""
    shape, type_ = call.input(0).shape, text_type(call.input(0).dtype)
    if not type_:
        return None
    points, rank = math.prod(shape), len(shape)
    direct = rank == 1  # places are coordinates
    begin = _bytes(points)
    places = call.write(0) if direct else call.scratch(8, begin // 8)
    launches = _listed(call, 0, type_, points, places, alone)
    if rank > 1:
        refs = (places, call.write(1), call.write(0))
        text = selection.coordinates("coordinates", rank)
        launches += launched("coordinates", text, refs, block, points, *shape[1:])
    return Job(launches, begin + (0 if direct else 8 * points))


def compress(call: NodeCall, alone: int, block: int) -> Job | None:
    """Compress; a second output, one int64, is told how many slices there are. None for elements that no register holds."""
    x, out = call.input(0), call.output()
    if x.dtype.itemsize > _WIDEST:
        return None
    shape, axis = _along(x.shape, call.attributes.get("axis"))
    most, inner, outer = out.shape[axis], math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
    begin = _bytes(most)
    places = call.scratch(8, begin // 8)
    launches = _listed(call, 1, "b8", most, places, alone)
    refs = (call.read(0), places, call.write(1), call.write(0))
    text = selection.taken("taken", raw(x.dtype.itemsize))
    launches += launched("taken", text, refs, block, outer * most * inner, shape[axis], inner, outer)
    return Job(launches, begin + 8 * most)


_WIDEST = 8
"""Bytes of an element."""


def _runs(points: int) -> tuple[int, int]:
    """How many runs there are, and how long they are."""
    each = max(_RUN, -(-points // _RUNS))
    return -(-points // each), each


def _bytes(points: int) -> int:
    """What the counts of all runs take in the scratch memory's beginning."""
    return -(-_runs(points)[0] * 8 // ALIGNMENT) * ALIGNMENT


def _listed(call: NodeCall, index: int, type_: str, points: int, places: Ref, alone: int) -> list[Launch]:
    """The launches that list the places of an input's first elements that are not zero, and tell the second output how many they are."""
    if points == 0:
        return []
    runs, each = _runs(points)
    scalars, counts, grid = integers(points, each, runs), call.scratch(8), -(-runs // alone)
    given, last = (call.read(index), counts), (call.read(index), counts, places, call.write(1))
    return [
        Launch(selection.counted("counted", type_), "counted", given, scalars, grid, alone),
        Launch(selection.listed("listed", type_), "listed", last, scalars, grid, alone),
    ]
