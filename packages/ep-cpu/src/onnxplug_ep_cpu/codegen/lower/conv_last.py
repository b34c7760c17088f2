"""Convolution of images whose channels are declared last, by filters whose channels are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug_ep_cpu.codegen.lower.choice import Layer
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.conv import biased, chosen, convolved_by, supported
from onnxplug_ep_cpu.codegen.lower.declared import channels_second, image_shape, pend_image, read_image
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.taps import window

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.tensor import Tensor


@dataclass(frozen=True)
class _Turned:
    """Filters with channels second, made of others: what lowerings of convolutions ask of a value that is no constant."""

    name: str
    constant: None = None


@lowering("NhwcConv", domain=MS, supports=supported)
def nhwc_conv(b: Lowering, node: NodeView) -> None:
    """Convolution by filters that are turned once per session, where they are constant; like computed ones they are packed in each run."""
    (x, w, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    weights, groups = image_shape(b, node, w), node.attributes.get("group", 1)
    turned = cast(ValueView, _Turned(f"{w.name} channels second"))
    if turned.name not in b.values:

        def fill(source: Tensor, result: Tensor) -> None:
            copy(b.packing, b.target, channels_second(source), result)

        b.define(turned, in_form(b, w, "channels second", weights, fill))
        b.specs[turned.name] = TensorSpec(np.dtype(np.float32), weights)
    source = read_image(b, node, x)
    moves = window(node, source.shape[2:], weights[2:])
    layer = Layer(image_shape(b, node, y), weights, moves, groups, b.varies(y))
    algorithm, _ = chosen(b, layer, source.shape[2:], False)
    pending = convolved_by(b, source, turned, layer, algorithm)
    pend_image(b, node, y, biased(b, pending, rest[0] if rest else None))
