"""Average pooling of quantized images."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.declared import image_shape, pend_image, read_image
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.qconv import depthwise, pending_sums
from onnxplug_ep_cpu.codegen.lower.qgemm import (
    scalar,
)
from onnxplug_ep_cpu.codegen.lower.quantized import (
    MS,
    parameters,
    quantized_types,
    zero_of,
)
from onnxplug_ep_cpu.codegen.lower.requantize import as_bytes
from onnxplug_ep_cpu.codegen.lower.support import number, rank
from onnxplug_kernels.windows import windows


def _global_supports(node: NodeView) -> str | None:
    reason = quantized_types(node, 0) or parameters(node, 1, 2, 3, 4)
    return reason or (None if rank(node.inputs[0]) in (3, 4, 5) else "the rank is not one of an image")


@lowering("QLinearGlobalAveragePool", domain=MS, supports=_global_supports)
def global_average(b: Lowering, node: NodeView) -> None:
    """The mean of each channel: exact sums, scaled once."""
    x, x_scale, x_zero, y_scale, y_zero = node.inputs
    (y,) = node.outputs
    assert x is not None and y is not None
    source, shape = read_image(b, node, x), image_shape(b, node, y)
    pixels = math.prod(source.shape[2:])
    step, zero, out_zero = number(x_scale), scalar(b, x_zero, b.element(x)), zero_of(y_zero)
    assert step is not None and out_zero is not None
    moves = windows(source.shape[2:], source.shape[2:])
    ones = np.ones((pixels, shape[1]), np.float32)
    emit = depthwise(b, shape, source, zero, moves, ones, np.zeros(shape[1], np.int32), False)
    pending = pending_sums(b, shape, emit)
    # As an operand: a constant would be another kernel's where the image's size is another.
    pending.leaves.append(b.tensor_of(np.full((1,) * len(shape), step / pixels, np.float32)))
    build = ex.Build()
    mean = build("mul", build("to_float32", build("leaf", 0)), build("leaf", 1))
    value = build("div", mean, build("const", number(y_scale) or 0.0))
    pend_image(b, node, y, as_bytes(b, y, pending, build, value, out_zero))
