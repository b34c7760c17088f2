"""Adding up windows in images."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, dense_strides
from onnxplug_kernels.windows import windows

MOST = 64
"""Elements of a window, each of which is a pass over the image."""


def _supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], FLOATS) or typed(node.outputs[0], FLOATS)


@lowering("Col2Im", supports=_supports)
def col2im(b: Lowering, node: NodeView) -> None:
    """Each element of the windows is added, all windows at once, to the pixels that are as far into a stride as it is: these lie
    together until all are added."""
    (x, image_shape, block_shape), (y,) = node.inputs, node.outputs
    assert x is not None and image_shape is not None and block_shape is not None and y is not None
    image, block, shape = b.numbers(image_shape), b.numbers(block_shape), b.shape(y)
    if image is None or block is None:
        raise Unsupported("the shape of the image or of a block depends on data")
    given = {name: node.attributes[name] for name in ("strides", "dilations", "pads") if name in node.attributes}
    moves = windows(image, block, **given)
    area, (images, channels), rank = math.prod(block), shape[:2], len(image)
    source = b.dense(x)
    if area > MOST or 0 in (*source.shape, *shape):
        raise Unsupported(f"windows of {area} elements are not generated")
    if source.shape != (images, channels * area, math.prod(moves.output)) or shape[2:] != tuple(image):
        raise Unsupported("the windows do not suit the image")
    reach = [p + n + q for p, n, q in zip(moves.begins, image, moves.ends, strict=True)]
    sizes = tuple(-(-n // s) for n, s in zip(reach, moves.strides, strict=True))
    apart = b.scratch((images, channels, *moves.strides, *sizes))
    write_map(b.program, b.target, ex.IDENTITY, [b.zeros(1).viewed((1,), (0,))], apart)
    lead, inner, phases = source.strides[0], apart.strides[2 + rank :], apart.strides[2 : 2 + rank]
    part, steps = (images, channels, *moves.output), dense_strides((area, *moves.output))
    for number, position in enumerate(moves.positions()):
        far = [divmod(k * d, s) for k, d, s in zip(position, moves.dilations, moves.strides, strict=True)]
        first = sum(q * i + r * p for (q, r), i, p in zip(far, inner, phases, strict=True))
        pixels = apart.shift(first).viewed(part, (*apart.strides[:2], *inner))
        element = source.shift(number * steps[0]).viewed(part, (lead, area * steps[0], *steps[1:]))
        write_map(b.program, b.target, (("leaf", 0), ("leaf", 1), ("add", 0, 1)), [pixels, element], pixels)
    together = tuple(d for axis in range(rank) for d in (2 + rank + axis, 2 + axis))
    whole = (images, channels, *(n * s for n, s in zip(sizes, moves.strides, strict=True)))
    joined = apart.transposed((0, 1, *together))
    made = joined.reshaped(whole)
    if made is None:
        made = b.scratch(whole)
        copy(b.program, b.target, joined, made.viewed(joined.shape, dense_strides(joined.shape)))
    b.define(y, made.shift(_start(moves.begins, made.strides[2:])).viewed(shape, made.strides))


def _start(begins: Ints, strides: Ints) -> int:
    return sum(p * s for p, s in zip(begins, strides, strict=True))
