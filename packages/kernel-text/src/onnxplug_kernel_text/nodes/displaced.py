"""DeformConv, up to its product, and Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug_kernel_text.displaced import displaced
from onnxplug_kernel_text.fold import folded
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type
from onnxplug_kernel_text.nodes.windows import interleaved
from onnxplug_kernel_text.types import FLOATS


def samples(call: NodeCall, to: Ref, block: int) -> Job | None:
    """What DeformConv multiplies its weights with, into ``to``: (images, channels, elements of a filter, places) of the arithmetic type.
    None for operands that do not fit."""
    x, weights, out = call.input(0).shape, call.input(1).shape, call.output().shape
    parts, type_, rank = call.attributes.get("offset_group", 1), text_type(call.input(0).dtype), len(x) - 2
    elements, places = math.prod(weights[2:]), math.prod(out[2:])
    mask = call.given(4)
    if type_ not in FLOATS or parts < 1 or x[1] % parts or len(out) != len(x):
        return None
    if out[:2] != (x[0], weights[0]) or list(out[2:]) != places_of(call, x[2:], weights[2:]):
        return None
    if call.input(2).shape != (x[0], parts * elements * rank, *out[2:]):
        return None
    if mask is not None and mask.shape != (x[0], parts * elements, *out[2:]):
        return None
    if any(spec is not None and spec.dtype != call.input(0).dtype for spec in call.inputs):
        return None
    points = x[0] * parts * elements * places
    if not points or not x[1]:
        return Job()
    if 0 in x[2:]:
        return None
    strides, gaps, before = window(call, rank)[:3]
    numbers = interleaved(x[2:], out[2:], weights[2:], strides, gaps, before)
    tensors = (call.read(0), call.read(2), *([call.read(4)] if mask is not None else []), to)
    scalars = integers(points, x[1] // parts, elements, places, *numbers)
    text = displaced("samples", type_, rank, mask is not None)
    return Job([Launch(text, "samples", tensors, scalars, -(-points // block), block)])


def col2im(call: NodeCall, block: int) -> Job | None:
    """Col2Im; None for types that are not written."""
    x, out, type_ = call.input(0).shape, call.output().shape, text_type(call.input(0).dtype)
    image, blocks = call.value(1), call.value(2)
    assert image is not None and blocks is not None
    extents, elements = ([int(n) for n in value.reshape(-1)] for value in (image, blocks))
    rank = len(extents)
    if not type_ or type_ == "b8":
        return None
    if rank < 1 or len(elements) != rank or len(x) != 3 or min(*extents, *elements) < 1:
        raise ValueError(f"columns of shape {x} do not make images of {extents} from blocks of {elements}")
    counts = places_of(call, extents, elements)
    if min(counts) < 1 or x[1] % math.prod(elements) or x[2] != math.prod(counts):
        raise ValueError(f"columns of shape {x} are not those of blocks of {elements} in an image of {extents}")
    if out != (x[0], x[1] // math.prod(elements), *extents):
        return None
    points = math.prod(out)
    if not points:
        return Job()
    strides, gaps, before = window(call, rank)[:3]
    numbers = interleaved(extents, counts, elements, strides, gaps, before)
    refs = call.read(0), call.write()
    text = folded(call.op_type, type_, rank)
    return Job([Launch(text, call.op_type, refs, integers(points, *numbers), -(-points // block), block)])


def places_of(call: NodeCall, extents: Sequence[int], elements: Sequence[int]) -> list[int]:
    """How many places a window has along each axis, 0 where it does not fit."""
    strides, gaps, before, after = window(call, len(extents))
    return [
        max(0, (n + b + e - (k - 1) * g - 1) // s + 1)
        for n, k, s, g, b, e in zip(extents, elements, strides, gaps, before, after, strict=True)
    ]


def window(call: NodeCall, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, and padding before and behind. ValueError where these are not one for each axis, or do not go on."""
    strides, gaps, pads = (
        list(call.attributes.get(name) or [default] * count)
        for name, default, count in (("strides", 1, rank), ("dilations", 1, rank), ("pads", 0, 2 * rank))
    )
    if len(strides) != rank or len(gaps) != rank or len(pads) != 2 * rank or min(*strides, *gaps, 1) < 1:
        raise ValueError(f"strides {strides}, dilations {gaps} and pads {pads} do not go with {rank} axes")
    return strides, gaps, pads[:rank], pads[rank:]
