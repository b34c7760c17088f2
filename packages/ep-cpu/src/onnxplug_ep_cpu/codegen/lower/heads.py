"""Heads of an attention as views of what projections and caches hold, and the attention over them."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen.lower.attention import Heads, attend
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import converted, copy
from onnxplug_ep_cpu.codegen.lower.masks import Scores
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def split_heads(tensor: Tensor, heads: int) -> Tensor:
    """[batch, rows, heads * size] as [batch, heads, rows, size]."""
    batch, rows, width = tensor.shape
    if heads < 1 or width % heads:
        raise Unsupported(f"a width of {width} does not divide into {heads} heads")
    size = width // heads
    outer, row, step = tensor.strides
    return tensor.viewed((batch, heads, rows, size), (outer, size * step, row, step))


def part(tensor: Tensor, axis: int, start: int, count: int) -> Tensor:
    """``count`` entries of a dimension from ``start`` on."""
    shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
    moved = tensor.shift(start * tensor.strides[axis]) if math.prod(shape) else tensor
    return replace(moved, shape=shape)


def optional(b: Lowering, value: ValueView | None) -> Tensor | None:
    """An optional operand in memory."""
    return None if value is None else b.read(value)


def cache(b: Lowering, value: ValueView | None) -> Tensor | None:
    """An optional cache of keys or values as it lies: of 16 bits, only what is new is rounded."""
    return None if value is None else b.lies(value)


def present_of(b: Lowering, value: ValueView | None, past: Tensor | None) -> Tensor | None:
    """Where the cache goes that comes of ``past``, in the same element type; None where it is not wanted."""
    if value is None:
        return None
    return b.output(value, element="float32" if past is None else past.element)


def joined(b: Lowering, past: Tensor | None, new: Tensor, present: Tensor | None) -> Tensor:
    """Keys or values behind those of the past, [batch, heads, rows, size], as that lies; in ``present`` if that is wanted."""
    before = 0 if past is None else past.shape[2]
    if present is None:
        if past is None or not before:
            return new
        present = b.scratch((*new.shape[:2], before + new.shape[2], new.shape[3]), element=past.element)
    if present.shape != (*new.shape[:2], before + new.shape[2], new.shape[3]):
        raise Unsupported("keys and values of the past and the present differ in shape")
    if past is not None and before:
        copy(b.program, b.target, past, part(present, 2, 0, before))
    converted(b.program, b.target, new, part(present, 2, before, new.shape[2]))
    return present


def write_attention(
    b: Lowering, y: ValueView, heads: Heads, scores: Scores, seen: int | None, packed: bool = True
) -> None:
    """``y`` is the attention of the heads, [batch, rows, heads * columns] where ``packed``."""
    target = b.output(y)
    out = split_heads(target, heads.q.shape[1]) if packed else target
    if out.size == 0:
        return
    if not heads.fine:
        raise Unsupported(f"queries {heads.q.shape}, keys {heads.k.shape} and values {heads.v.shape} do not fit")
    attend(b, heads, out, scores.expr, scores.leaves, seen=seen, hidden=bool(scores.leaves) or seen is not None)
