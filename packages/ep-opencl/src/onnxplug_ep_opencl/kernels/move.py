"""Operators that only move elements: every one is a walk over some space with strides for reading and strides for writing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract.shapes import broadcast as fitting
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy, fill, launch
from onnxplug_ep_opencl.launch import Launch
from onnxplug_ep_opencl.unknown_shapes import axes_from_front
from onnxplug_kernel_text.layout import Space, broadcast, dense, space
from onnxplug_kernel_text.types import literal, raw
from onnxplug_kernels.refusals import Refusal


def same(call: Call) -> list[Launch]:
    """Reshape and whatever else only changes the shape."""
    shape, out, walk = call.input(0).shape, call.output().shape, ((1,), (1,))
    if math.prod(shape) != math.prod(out):
        raise ValueError(f"{list(shape)} does not have as many elements as {list(out)}")
    return copy(call.target, call.op_type, call.read(0), call.write(), (math.prod(out),), walk)


def bit_cast(call: Call) -> list[Launch]:
    """BitCast, between numbers of one width."""
    if call.input(0).dtype.itemsize != call.output().dtype.itemsize:
        raise ValueError(f"{call.input(0).dtype} and {call.output().dtype} are not of the same width")
    return same(call)


def transpose(call: Call) -> list[Launch]:
    """Transpose."""
    shape = call.input(0).shape
    order = call.attributes.get("perm") or list(range(len(shape)))[::-1]
    strides, out = dense(shape), call.output().shape
    walks = (tuple(strides[k] for k in order), dense(out))
    return copy(call.target, call.op_type, call.read(0), call.write(), out, walks)


def expand(call: Call) -> list[Launch]:
    """Expand."""
    shape, out, wanted = call.input(0).shape, call.output().shape, call.value(1)
    if wanted is None or fitting([shape, tuple(wanted.reshape(-1).tolist())]) != out:
        raise Refusal("invalid expand shape")
    return copy(call.target, call.op_type, call.read(0), call.write(), out, (broadcast(shape, out), dense(out)))


def tile(call: Call) -> list[Launch]:
    """Tile: each dimension becomes two, the repeats and the extent."""
    shape, out = call.input(0).shape, call.output().shape
    strides, made = dense(shape), dense(out)
    doubled = [n for o, s in zip(out, shape, strict=True) for n in (o // max(s, 1), s)]
    reading = tuple(n for s in strides for n in (0, s))
    writing = tuple(n for m, s in zip(made, shape, strict=True) for n in (m * s, m))
    return copy(call.target, call.op_type, call.read(0), call.write(), doubled, (reading, writing))


def concat(call: Call) -> list[Launch]:
    """Concat: one walk for each input."""
    out = call.output().shape
    axis = call.attributes.get("axis", 1) % len(out)
    strides, at = dense(out), 0
    made: list[Launch] = []
    for index, spec in enumerate(call.inputs):
        assert spec is not None
        walks = (dense(spec.shape), strides)
        made += copy(call.target, call.op_type, call.read(index), call.write(0, at * strides[axis]), spec.shape, walks)
        at += spec.shape[axis]
    return made


def split(call: Call) -> list[Launch]:
    """Split: one walk for each output."""
    shape = call.input(0).shape
    axis = call.attributes.get("axis", 0) % len(shape)
    if call.version >= 13:
        call.value(1)  # lengths, which the outputs' shapes then show
    strides, at = dense(shape), 0
    made: list[Launch] = []
    for index, spec in enumerate(call.outputs):
        if spec is None:
            raise ValueError("Split: an output is omitted")
        walks = (strides, dense(spec.shape))
        made += copy(call.target, call.op_type, call.read(0, at * strides[axis]), call.write(index), spec.shape, walks)
        at += spec.shape[axis]
    return made


def slice_(call: Call) -> list[Launch]:
    """Slice: the first element and a stride in each dimension."""
    shape, out = call.input(0).shape, call.output().shape
    starts = call.numbers(1, "starts") or []
    call.value(2)
    axes = axes_from_front(call.numbers(3, "axes") or range(len(starts)), len(shape))
    if axes is None:
        raise Refusal("'axes' has an axis outside of the tensor dimension count, or duplicates")
    steps = call.numbers(4, "steps") or [1] * len(starts)
    strides = list(dense(shape))
    first = 0
    for start, k, step in zip(starts, axes, steps, strict=True):
        extent = shape[k]
        start += extent if start < 0 else 0
        start = min(max(start, 0), extent if step > 0 else extent - 1)
        first += start * strides[k]
        strides[k] *= step
    if math.prod(out) == 0:
        return []
    walks = (tuple(strides), dense(out))
    return copy(call.target, call.op_type, call.read(0, first), call.write(), out, walks)


def depth_to_space(call: Call) -> list[Launch]:
    """DepthToSpace."""
    n, c, h, w = call.input(0).shape
    b = call.attributes["blocksize"]
    row_major = call.attributes.get("mode", "DCR") == "DCR"
    out = dense(call.output().shape)
    deep = (n, b, b, c // (b * b), h, w) if row_major else (n, c // (b * b), b, b, h, w)
    blocks = (out[2], out[3])
    writing = (out[0], *blocks, out[1]) if row_major else (out[0], out[1], *blocks)
    walks = (dense(deep), (*writing, out[2] * b, out[3] * b))
    return copy(call.target, call.op_type, call.read(0), call.write(), deep, walks)


def space_to_depth(call: Call) -> list[Launch]:
    """SpaceToDepth."""
    n, c, h, w = call.input(0).shape
    b = call.attributes["blocksize"]
    read = dense((n, c, h, w))
    blocks, spots = (read[2], read[3]), (read[2] * b, read[3] * b)
    if call.attributes.get("mode", "DCR") == "DCR":
        out, reading = (n, b, b, c, h // b, w // b), (read[0], *blocks, read[1], *spots)
    else:
        out, reading = (n, c, b, b, h // b, w // b), (read[0], read[1], *blocks, *spots)
    walks = (reading, dense(out))
    return copy(call.target, call.op_type, call.read(0), call.write(), out, walks)


def pad(call: Call) -> list[Launch]:
    """Pad: constant, edge, reflect, wrap; negative amounts cut off. Rectangles of the output that continue the input one way in each
    dimension are walked one after another."""
    shape, out = call.input(0).shape, call.output().shape
    amounts = call.numbers(1, "pads")
    axes = call.numbers(3, "axes") if call.given(3) is not None else list(range(len(shape)))
    mode = call.attributes.get("mode", "constant")
    before, after = [0] * len(shape), [0] * len(shape)
    assert amounts is not None and axes is not None
    for n, axis in enumerate(axes):
        before[axis % len(shape)], after[axis % len(shape)] = amounts[n], amounts[n + len(axes)]
    if mode != "constant" and any(
        max(b, a) > 0 and n + min(b, 0) + min(a, 0) <= 0 for n, b, a in zip(shape, before, after, strict=True)
    ):
        raise Refusal(f"mode {mode} cannot extend an axis without elements")
    made = _padding(call) if mode == "constant" else []
    parts = [_stretches(mode, extent, b, a) for extent, b, a in zip(shape, before, after, strict=True)]
    reading, writing = dense(shape), dense(out)
    for pieces in itertools.product(*parts):
        extents = [p[0] for p in pieces]
        source = sum(p[1] * s for p, s in zip(pieces, reading, strict=True))
        place = sum(p[2] * s for p, s in zip(pieces, writing, strict=True))
        walks = (tuple(p[3] * s for p, s in zip(pieces, reading, strict=True)), writing)
        made += copy(call.target, "pad", call.read(0, source), call.write(0, place), extents, walks)
    return made


def _padding(call: Call) -> list[Launch]:
    """The constant, everywhere."""
    out = call.output()
    count, type_ = math.prod(out.shape), text_type(out.dtype)
    if call.version >= 11 and call.given(2) is not None:
        bits = raw(out.dtype.itemsize)
        walked = space((count,), [(0,), (1,)])
        return launch(call.target, "fill", [(call.read(2), bits)], [(call.write(), bits)], walked, "y0 = x0;")
    return fill(call.target, "fill", call.write(), type_, count, literal(call.attributes.get("value", 0.0), type_))


Stretch = tuple[int, int, int, int]
"""Elements, first one read, first one written, step of reading."""


def _stretches(mode: str, extent: int, before: int, after: int) -> list[Stretch]:
    """A dimension's output as stretches of its input."""
    total = before + extent + after
    low, high = max(before, 0), min(before + extent, total)
    made: list[Stretch] = [(high - low, low - before, low, 1)] if high > low else []
    if mode == "constant":
        return made
    kept = max(extent + min(before, 0) + min(after, 0), 0)
    base = max(-before, 0)
    if mode == "edge":
        made += [(before, base, 0, 0)] if before > 0 else []
        made += [(after, base + kept - 1, before + extent, 0)] if after > 0 else []
        return made
    for at in range(total):  # rarely more than a few
        if low <= at < high:
            continue
        offset = at - max(before, 0)
        if mode == "wrap":
            source = offset % kept
        else:
            turn = max(2 * (kept - 1), 1)
            source = offset % turn
            source = min(source, turn - source) if kept > 1 else 0
        made.append((1, base + source, at, 1))
    return _runs(made)


def _runs(stretches: list[Stretch]) -> list[Stretch]:
    """Neighbouring single elements that are read one way joined into stretches."""
    made: list[Stretch] = []
    for count, source, place, step in stretches:
        if made and count == 1:
            held, first, at, way = made[-1]
            if place == at + held:
                moved = source - (first + (held - 1) * way)
                if held == 1 and moved in (1, -1):
                    made[-1] = (2, first, at, moved)
                    continue
                if held > 1 and moved == way:
                    made[-1] = (held + 1, first, at, way)
                    continue
        made.append((count, source, place, step))
    return made


def constant_of_shape(call: Call) -> list[Launch]:
    """ConstantOfShape."""
    call.value(0)
    out = call.output()
    value = call.attributes.get("value")
    type_ = text_type(out.dtype)
    number = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    return fill(call.target, call.op_type, call.write(), type_, math.prod(out.shape), literal(number, type_))


def range_(call: Call) -> list[Launch]:
    """Range."""
    values = [call.value(n) for n in range(3)]
    assert values[0] is not None and values[2] is not None
    if not np.asarray(values[2]).any():
        raise Refusal("delta in Range operator can not be zero!")
    out = call.output()
    type_ = text_type(out.dtype)
    start, step = (literal(np.asarray(v).reshape(-1)[0].item(), type_) for v in (values[0], values[2]))
    count = math.prod(out.shape)
    body = f"y0 = {start} + c0 * {step};"
    return (
        launch(call.target, call.op_type, [], [(call.write(), type_)], space((count,), [(1,)]), body) if count else []
    )


def eye_like(call: Call) -> list[Launch]:
    """EyeLike."""
    out = call.output()
    type_, shape = text_type(out.dtype), out.shape
    walks = [(shape[1], 1)]
    body = f"y0 = c1 - c0 == {call.attributes.get('k', 0)};"
    return launch(call.target, call.op_type, [], [(call.write(), type_)], unjoined(shape, walks), body)


def trilu(call: Call) -> list[Launch]:
    """Trilu."""
    value = call.value(1)
    k = 0 if value is None else int(value.reshape(-1)[0])
    shape = call.output().shape
    type_ = raw(call.output().dtype.itemsize)
    flat = (math.prod(shape[:-2]), *shape[-2:])
    k = max(-(2**30), min(k, 2**30))
    kept = f"c2 - c1 >= {k}" if call.attributes.get("upper", 1) else f"c2 - c1 <= {k}"
    walked = unjoined(flat, [dense(flat), dense(flat)])
    return launch(
        call.target, call.op_type, [(call.read(0), type_)], [(call.write(), type_)], walked, f"y0 = ({kept}) ? x0 : 0;"
    )


def unjoined(shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> Space:
    """A space whose dimensions stay as they are, for bodies that read coordinates."""
    return Space(tuple(shape), tuple(strides))
