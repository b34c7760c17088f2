"""Quantized operators that are computed in floating point: the products and the softmax of attention.

Numbers of 8 bits less their zero points are exact in float32, and so are sums of up to 256 of their products.
"""

from __future__ import annotations

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Pending
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.matmul import product_of_tensors
from onnxplug_ep_cpu.codegen.lower.norm_affine import grown
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, saturated
from onnxplug_ep_cpu.codegen.lower.quantized import MS, floats_of, number, parameters, quantized_types, zero_of
from onnxplug_ep_cpu.codegen.lower.softmax import axes_of, softmaxed
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, typed
from onnxplug_ep_cpu.codegen.tensor import Tensor


def product_of_quantized(b: Lowering, node: NodeView) -> None:
    """A QLinearMatMul of two computed operands."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs
    (y,) = node.outputs
    assert x is not None and w is not None and y is not None
    scales = [np.float32(number(value) or 0) for value in (x_scale, w_scale, y_scale)]
    pending = product_of_tensors(b, b.shape(y), _floats(b, x, x_zero), _floats(b, w, w_zero))
    _quantize(b, y, pending, float(scales[0] * scales[1] / scales[2]), y_zero)


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
