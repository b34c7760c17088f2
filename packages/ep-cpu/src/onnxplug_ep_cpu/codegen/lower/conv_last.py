"""Convolution of images whose channels are declared last, by filters whose channels are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug_ep_cpu.codegen.lower.choice import Layer
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.conv import biased, chosen, convolved_by, supported
from onnxplug_ep_cpu.codegen.lower.declared import channels_second, image_shape, pend_image, read_image
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.taps import window


@dataclass(frozen=True)
class _Turned:
    """Filters with channels second, seen as a value: what lowerings of convolutions ask of one."""

    name: str
    given: ValueView

    @property
    def constant(self) -> np.ndarray | None:
        return _second(self.given.constant)

    def view(self) -> np.ndarray | None:
        return _second(self.given.view())

    def release(self) -> None:
        self.given.release()


def _second(filters: np.ndarray | None) -> np.ndarray | None:
    return None if filters is None else np.moveaxis(filters, -1, 1)


@lowering("NhwcConv", domain=MS, supports=supported)
def nhwc_conv(b: Lowering, node: NodeView) -> None:
    """Convolution by filters with channels second; constant ones are packed once, computed ones in each run."""
    (x, w, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    weights, groups = image_shape(b, node, w), node.attributes.get("group", 1)
    turned = cast(ValueView, _Turned(f"{w.name} channels second", w))
    if turned.name not in b.specs:
        b.specs[turned.name] = TensorSpec(np.dtype(np.float32), weights)
        if w.name in b.prepared.constant:
            b.prepared.constant.add(turned.name)
        else:
            b.define(turned, channels_second(b.dense(w)))
    source = read_image(b, node, x)
    moves = window(node, source.shape[2:], weights[2:])
    layer = Layer(image_shape(b, node, y), weights, moves, groups, b.varies(y))
    algorithm = chosen(b, node, layer, source.shape, w, turned)
    pending = convolved_by(b, source, turned, layer, algorithm)
    pend_image(b, node, y, biased(b, pending, rest[0] if rest else None))
