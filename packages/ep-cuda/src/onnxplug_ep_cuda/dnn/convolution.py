"""cuDNN's graph of a convolution. Building one needs cuDNN, but no GPU where a device is described."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cudnn

from onnxplug_ep_cuda.conv.problem import Convolution, Ints, nhwc
from onnxplug_kernel_text.layout import dense

X, W, BIAS, RESIDUAL, Y = range(1, 6)
"""Identifiers of the tensors: keys of what a plan is executed with."""

_TYPES = {
    "float32": cudnn.data_type.FLOAT,
    "float16": cudnn.data_type.HALF,
    "bfloat16": cudnn.data_type.BFLOAT16,
}


@dataclass(frozen=True)
class ConvolutionGraph:
    """A convolution as a problem for cuDNN."""

    conv: Convolution

    @property
    def dtype(self) -> str:
        return self.conv.dtype

    def graph(self, **place: Any) -> Any:
        """Its graph."""
        return graph(self.conv, **place)

    def sizes(self) -> dict[int, int]:
        """Elements of each tensor by identifier."""
        conv = self.conv
        shapes = {X: conv.x, W: conv.w, BIAS: (conv.y[1],), RESIDUAL: conv.y, Y: conv.y}
        return {uid: math.prod(shape) for uid, shape in shapes.items()}


def graph(conv: Convolution, **place: Any) -> Any:
    """The graph: convolution, bias, residual, activation, computed in float32. ``place``: ``handle`` of a device, or
    ``device_property`` of one that is described."""
    dtype, channels = _TYPES[conv.dtype], conv.y[1]
    made = cudnn.pygraph(
        io_data_type=dtype,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        **place,
    )

    def tensor(name: str, uid: int, shape: Ints) -> Any:
        found = made.tensor(name=name, dim=list(_images(shape)), stride=channels_last(_images(shape)))
        found.set_uid(uid)
        return found

    flat = len(conv.x) == 3
    moves = {
        "pre_padding": [*[0] * flat, *conv.begins], "post_padding": [*[0] * flat, *conv.ends],
        "stride": [*[1] * flat, *conv.strides], "dilation": [*[1] * flat, *conv.dilations],
    }  # fmt: skip
    x, w, sizes = tensor("x", X, conv.x), tensor("w", W, conv.w), _images(conv.y)
    if conv.transposed:
        y = made.conv_dgrad(loss=x, filter=w, **moves)
        y.set_dim(list(sizes)).set_stride(channels_last(sizes))
    else:
        y = made.conv_fprop(x, w, **moves)
    if conv.bias:
        y = made.bias(name="bias", input=y, bias=tensor("b", BIAS, (1, channels, *[1] * (len(conv.y) - 2))))
    if conv.residual:
        y = made.add(a=y, b=tensor("z", RESIDUAL, conv.y))
    if conv.clip is not None:
        bounds = {"lower_clip": conv.clip.low, "upper_clip": conv.clip.high}
        y = made.relu(input=y, **{name: float(bound) for name, bound in bounds.items() if bound is not None})
    y.set_output(True).set_data_type(dtype).set_dim(list(sizes)).set_stride(channels_last(sizes))
    y.set_uid(Y)
    return made


def _images(shape: Ints) -> Ints:
    """Sizes with the second spatial axis that cuDNN wants of a line."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def channels_last(shape: Ints) -> list[int]:
    """Strides, in the order (N, C, *spatial), of a tensor whose channels are neighbours."""
    first, *steps, of_channel = dense(nhwc(shape))
    return [first, of_channel, *steps]
