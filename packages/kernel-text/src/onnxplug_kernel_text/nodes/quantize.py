"""Quantization and its inverse: one pass over the elements, two where they decide the scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxplug.contract import TensorSpec
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, Pass, integers, text_type
from onnxplug_kernel_text.quantize import GROUP, by_extremes, extremes, saturated

_INTEGERS = ("i8", "u8", "i16", "u16")
_FLOATS = ("f32", "f16", "bf16")
_ALIGNMENT = 256
_SPAN = 4096
"""Elements of a part whose extremes a block finds."""


def quantize(call: NodeCall) -> Pass | None:
    """QuantizeLinear to integers, divided in float32; None for other divisions."""
    out = text_type(call.output().dtype)
    precision = call.attributes.get("precision", 1)
    if text_type(call.input(1).dtype) != "f32" or out not in _INTEGERS or precision not in (0, 1):
        return None
    return _by_element(call, saturated("y0", "(f32)x0 / x1", "x2" if call.given(2) is not None else None, out))


def dequantize(call: NodeCall) -> Pass | None:
    """DequantizeLinear of integers, computed in float32."""
    types = text_type(call.input(1).dtype), text_type(call.output().dtype)
    if any(t not in _FLOATS for t in types):
        return None
    zero = " - (f32)x2" if call.given(2) is not None else ""
    return _by_element(call, f"y0 = ((f32)x0{zero}) * x1;")


def _by_element(call: NodeCall, body: str) -> Pass | None:
    """A pass over x, its scale and its zero point, each entry for a tensor, an element of an axis, or a block along it."""
    x, parameters = call.input(0), [spec for spec in call.inputs[1:3] if spec is not None]
    types = [text_type(spec.dtype) for spec in (x, *parameters, call.output())]
    shape = x.shape or (1,)
    axis = 0 if len(shape) == 1 else call.attributes.get("axis", 1) % len(shape)
    split = _split(shape, parameters, axis, call.attributes.get("block_size", 0))
    if split is None or not all(types):
        return None
    whole, entries = split
    walked = space(whole, [dense(whole), *(broadcast(entry, whole) for entry in entries), dense(whole)])
    inputs = [(call.read(n), type_) for n, type_ in enumerate(types[:-1])]
    return Pass(inputs, (call.write(), types[-1]), walked, body)


def _split(
    shape: tuple[int, ...], parameters: Sequence[TensorSpec], axis: int, block: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]]] | None:
    """The shape of x, its axis cut into blocks where that is asked for, and the parameters' shapes to be broadcast to it. None where
    blocks do not divide the axis."""
    sizes = [math.prod(spec.shape) for spec in parameters]
    if all(size == 1 for size in sizes):
        return shape, [(1,) for _ in parameters]
    blocked = block or any(len(spec.shape) > 1 for spec in parameters)
    if not blocked:
        along = tuple(shape[axis] if k == axis else 1 for k in range(len(shape)))
        known = all(size in (1, shape[axis]) for size in sizes)
        return (shape, [(1,) if size == 1 else along for size in sizes]) if known else None
    if any(len(spec.shape) != len(shape) for spec in parameters):
        return None
    count = parameters[0].shape[axis]
    fits = count and shape[axis] % count == 0 and block in (0, shape[axis] // count)
    if not fits or any(tuple(spec.shape) != (*shape[:axis], count, *shape[axis + 1 :]) for spec in parameters):
        return None
    whole = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
    return whole, [(*shape[:axis], count, 1, *shape[axis + 1 :]) for _ in parameters]


@dataclass(frozen=True)
class Quantized:
    """Where ``dynamic`` leaves what it made: numbers of type u8, their scale (f32) and zero point."""

    numbers: Ref
    scale: Ref
    zero: Ref


def dynamic_quantize(call: NodeCall, *, alone: bool = False) -> Job | None:
    """DynamicQuantizeLinear; ``alone``: work-items have parts of their own, as processors want it."""
    made = Quantized(*(call.write(n) for n in range(3)))
    elements = math.prod(call.input(0).shape)
    launches, nbytes = _dynamic(call.read(0), elements, made, call.scratch(4), alone)
    return Job(launches, nbytes)


def dynamic(
    source: Ref, elements: int, scratch: Callable[[int, int], Ref], alone: bool
) -> tuple[list[Launch], Quantized, int]:
    """Launches that quantize into scratch memory, where the results are, and the bytes of that memory. ``scratch`` makes an argument of
    the size of its elements and an offset in them; ``alone`` as of ``dynamic_quantize``."""
    numbers = -(-elements // _ALIGNMENT) * _ALIGNMENT
    made = Quantized(scratch(1, 0), scratch(4, numbers // 4), scratch(1, numbers + 4))
    launches, nbytes = _dynamic(source, elements, made, scratch(4, (numbers + _ALIGNMENT) // 4), alone)
    return launches, made, numbers + _ALIGNMENT + nbytes


def _dynamic(source: Ref, elements: int, made: Quantized, part: Ref, alone: bool) -> tuple[list[Launch], int]:
    groups, block = max(1, min(GROUP, -(-elements // _SPAN))), 1 if alone else GROUP
    scalars = integers(elements, groups)
    first = Launch(extremes("extremes", alone), "extremes", (source, part), scalars, groups, block)
    tensors = (source, part, made.numbers, made.scale, made.zero)
    return [first, Launch(by_extremes("quantized", alone), "quantized", tensors, scalars, groups, block)], 8 * groups
