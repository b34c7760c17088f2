"""Quantized operators that are computed in floating point: the products and the softmax of attention, means of windows.

Numbers of 8 bits less their zero points are exact in float32, and so are sums of up to ``EXACT`` of their products.
"""

from __future__ import annotations

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.declared import channels_second, declares_last
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.matrices import product_of_tensors
from onnxplug_ep_cpu.codegen.lower.norm_affine import grown
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pool import averaged
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, saturated
from onnxplug_ep_cpu.codegen.lower.quantized import MS, divided, floats_of, parameters, quantized_types, zero_of
from onnxplug_ep_cpu.codegen.lower.softmax import axes_of, softmaxed
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, number, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last

EXACT = 256
"""255 * 255 times as much is below 2**24."""


def product_of_quantized(b: Lowering, node: NodeView) -> None:
    """A QLinearMatMul of two computed operands."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs
    (y,) = node.outputs
    assert x is not None and w is not None and y is not None
    scales = [np.float32(number(value) or 0) for value in (x_scale, w_scale, y_scale)]
    pending = product_of_tensors(b, b.shape(y), _floats(b, x, x_zero), _floats(b, w, w_zero))
    _quantize(b, y, pending, float(scales[0] * scales[1] / scales[2]), y_zero)


def product_of_integers(b: Lowering, shape: Ints, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Pending:
    """The int32 product of two computed tensors of bytes, each with its zero point, which may be computed too."""
    x, w = (_less(b, *operand) for operand in (left, right))
    depth, total = x.shape[-1], None
    for start in range(0, depth, EXACT):  # a sum of floats goes no further than floats hold all integers
        count = min(EXACT, depth - start)
        part = (
            x.shift(start * x.strides[-1]).viewed((*x.shape[:-1], count), x.strides),
            w.shift(start * w.strides[-2]).viewed((*w.shape[:-2], count, w.shape[-1]), w.strides),
        )
        build = ex.Build()
        value = build("to_int32", build("leaf", 0))
        expr = build.finish(value if total is None else build("add", value, build("leaf", 1)))
        made = grown(b, product_of_tensors(b, shape, *part), expr, [] if total is None else [total])
        made.element = "int32"
        total = b.write(made)
    if total is None:
        raise Unsupported("sums of nothing")
    return Pending(shape, ex.IDENTITY, [total], element="int32")


def _less(b: Lowering, tensor: Tensor, zero: Tensor) -> Tensor:
    """The tensor less its zero point as float32; what is int16 is less it already."""
    build = ex.Build()
    leaf, leaves = build("leaf", 0), [tensor]
    if tensor.element != "int16":
        leaf, leaves = build("sub", leaf, build("leaf", 1)), [tensor, zero.reshaped(()) or zero]
    result = b.scratch(tensor.shape)
    write_map(b.program, b.target, build.finish(leaf), leaves, result)
    return result


def _softmax_supports(node: NodeView) -> str | None:
    reason = quantized_types(node, 0) or typed(node.outputs[0], EIGHT_BITS) or parameters(node, 1, 2, 3, 4)
    return reason or typed(node.inputs[1], FLOAT32) or typed(node.inputs[3], FLOAT32)


@lowering("QLinearSoftmax", domain=MS, supports=_softmax_supports)
def softmax(b: Lowering, node: NodeView) -> None:
    """Softmax of the dequantized values, quantized again."""
    x, scale, _, y_scale, y_zero = [*node.inputs, None][:5]
    (y,) = node.outputs
    assert x is not None and y is not None
    shape = b.shape(y)
    axes = axes_of(len(shape), node.attributes.get("axis", -1), node.attributes["opset"] >= 13)
    tensor, order = _floats(b, x, None, number(scale) or 0.0), tuple(range(len(shape)))
    pending = softmaxed(b, shape, axes, (ex.IDENTITY, [tensor], order))
    _quantize(b, y, pending, float(np.float32(1) / np.float32(number(y_scale) or 0)), y_zero)


def _pool_supports(node: NodeView) -> str | None:
    known = "the rank is not one of an image" if rank(node.inputs[0]) < 3 else None
    return known or quantized_types(node, 0) or parameters(node, 1, 2, 3, 4)


@lowering("QLinearAveragePool", domain=MS, supports=_pool_supports)
def average_pool(b: Lowering, node: NodeView) -> None:
    """The means of windows of the dequantized values, quantized again; the zero point is added before rounding."""
    x, scale, zero, y_scale, y_zero = [*node.inputs, None][:5]
    (y,) = node.outputs
    assert x is not None and y is not None
    tensor, point, made_point, shape = b.read(x), zero_of(zero), zero_of(y_zero), b.shape(y)
    assert point is not None and made_point is not None
    build = ex.Build()
    value = floats_of(build, build("leaf", 0), tensor, build("const", number(scale) or 0.0), point)
    source = b.write(Pending(tensor.shape, build.finish(value), [tensor]))
    last = declares_last(node)
    made = averaged(b, node, channels_second(source) if last else source, y)
    made = made.transposed(channels_last(len(shape))) if last else made
    if made.shape != shape:
        raise Unsupported("the size of the result is not certain")
    build = ex.Build()
    value = build("add", divided(b, build, build("leaf", 0), number(y_scale) or 0.0), build("const", float(made_point)))
    expr = build.finish(saturated(build, value, 0, b.element(y), False))
    b.pend(y, Pending(shape, expr, [made], element=b.element(y)))


def _floats(b: Lowering, value: ValueView, zero: ValueView | None, scale: float = 1.0) -> Tensor:
    """(value - zero point) * scale as float32, as the value lies."""
    tensor, point = b.read(value), zero_of(zero)
    assert point is not None
    build = ex.Build()
    expr = build.finish(floats_of(build, build("leaf", 0), tensor, build("const", scale), point))
    result = b.scratch(tensor.shape)
    write_map(b.program, b.target, expr, [tensor], result)
    return result


def _quantize(b: Lowering, y: ValueView, pending: Pending, factor: float, y_zero: ValueView | None) -> None:
    zero = zero_of(y_zero)
    assert zero is not None
    build = ex.Build()
    value = build("mul", build("leaf", 0), build("const", factor))
    pending = grown(b, pending, build.finish(saturated(build, value, zero, b.element(y), False)), [])
    pending.element = b.element(y)
    b.pend(y, pending)
