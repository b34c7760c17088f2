"""NonZero and Compress, whose results are as long as the data says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import group_of
from onnxplug_ep_opencl.kernels.lines import alone
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text import selection
from onnxplug_kernel_text.nodes.launch import integers
from onnxplug_kernel_text.types import raw
from onnxplug_kernels.refusals import Refusal

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
    """Compress's result if the condition is true everywhere. Refusal where the axis is not one of the tensor's."""
    x, condition = inputs
    assert x is not None and condition is not None
    shape, axis = _along(x.shape, node.attributes.get("axis"))
    return TensorSpec(x.dtype, (*shape[:axis], min(math.prod(condition.shape), shape[axis]), *shape[axis + 1 :]))


def slices_axis(node: NodeView, rank: int) -> int:
    """The dimension of Compress's result that the data decides."""
    axis: int = node.attributes.get("axis", 0)
    return axis % max(rank, 1)


def _along(shape: tuple[int, ...], axis: int | None) -> tuple[tuple[int, ...], int]:
    if axis is None:
        return (math.prod(shape),), 0
    if not -len(shape) <= axis < len(shape):
        raise Refusal(f"no axis {axis} in {shape}")
    return shape, axis % len(shape)


def non_zero(call: Call) -> Job:
    """NonZero."""
    shape, type_ = call.input(0).shape, text_type(call.input(0).dtype)
    points, rank = math.prod(shape), len(shape)
    direct = rank == 1  # places are coordinates
    begin = _bytes(points)
    places = call.write(0) if direct else call.scratch(8, begin // 8)
    launches = _listed(call, 0, type_, points, places)
    if rank > 1:
        refs = [places, call.write(1), call.write(0)]
        text = selection.coordinates("coordinates", rank)
        launches.append(_each(call, "coordinates", text, refs, points, *shape[1:]))
    return Job(launches, begin + (0 if direct else 8 * points))


def compress(call: Call) -> Job:
    """Compress."""
    x, out = call.input(0), call.output()
    shape, axis = _along(x.shape, call.attributes.get("axis"))
    most, inner, outer = out.shape[axis], math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
    begin = _bytes(most)
    places, type_ = call.scratch(8, begin // 8), raw(x.dtype.itemsize)
    launches = _listed(call, 1, "b8", most, places)
    refs = [call.read(0), places, call.write(1), call.write(0)]
    text = selection.taken("taken", type_)
    launches.append(_each(call, "taken", text, refs, outer * most * inner, shape[axis], inner, outer))
    return Job(launches, begin + 8 * most)


def _runs(points: int) -> tuple[int, int]:
    """How many runs there are, and how long they are."""
    each = max(_RUN, -(-points // _RUNS))
    return -(-points // each), each


def _bytes(points: int) -> int:
    """What the counts of all runs take in the scratch memory's beginning."""
    return -(-_runs(points)[0] * 8 // ALIGNMENT) * ALIGNMENT


def _listed(call: Call, index: int, type_: str, points: int, places: Ref) -> list[Launch]:
    """The launches that list the places of an input's first elements that are not zero, and tell the second output how many they are."""
    runs, each = _runs(points)
    group, scalars, counts = alone(call.target), integers(points, each, runs), call.scratch(8)
    items = (-(-runs // group) * group,), (group,)
    last = [call.read(index), counts, places, call.write(1)]
    return [
        Launch(selection.counted("counted", type_), "counted", [call.read(index), counts], scalars, *items),
        Launch(selection.listed("listed", type_), "listed", last, scalars, *items),
    ]


def _each(call: Call, name: str, source: str, refs: Sequence[Ref], points: int, *scalars: int) -> Launch:
    """One work-item for each of ``points``."""
    group = group_of(call.target, points)
    return Launch(source, name, refs, integers(points, *scalars), (-(-points // group) * group,), (group,))
