"""A concatenation that is quantized: every part is quantized into its place, so no floats are written."""

from __future__ import annotations

from dataclasses import replace

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.fuse import Group, Nodes, pattern
from onnxplug_ep_cpu.codegen.lower import qparts
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import is_lowered
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.quantize import quantized
from onnxplug_ep_cpu.codegen.lower.quantized import MS, wants_wide, zero_of
from onnxplug_ep_cpu.codegen.lower.support import axis_of
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last


@pattern("QuantizeLinear")
@pattern("QuantizeLinear", domain=MS)
def quantized_concat(node: NodeView, nodes: Nodes) -> Group | None:
    """The concatenation and the quantization of it."""
    joined = nodes.maker(node.inputs[0], "Concat")
    if joined is None or not (is_lowered(node) and is_lowered(joined)) or qparts.by_axis(node):
        return None
    return Group((joined, node), lambda b: _lower(b, joined, node))


def _lower(b: Lowering, joined: NodeView, node: NodeView) -> bool:
    (y,) = node.outputs
    assert y is not None
    shape = b.shape(y)
    axis, zero = axis_of(joined.attributes.get("axis", 1), len(shape)), zero_of([*node.inputs, None][2])
    assert zero is not None
    if wants_wide(b, y, zero):
        return False
    inputs = [v for v in joined.inputs if v is not None]
    held = [b.pending(v) for v in inputs]
    last = axis == 1 and len(shape) > 2 and all(_lies_by_pixels(x) for x in held)
    whole = b.output(y, channels_last(len(shape)) if last else None, b.element(y))
    start = 0
    for value in inputs:
        made = quantized(b, node, value, b.shape(value), wide=False)
        part = replace(whole.shift(start * whole.strides[axis]), shape=made.shape)
        start += made.shape[axis]
        if isinstance(made, Pending) and (last or made.anchor is None):
            b.write_to(made, part)
        else:  # a product writes evenly spaced rows only
            copy(b.program, b.target, b.write(made) if isinstance(made, Pending) else made, part)
    return True


def _lies_by_pixels(held: Tensor | Pending) -> bool:
    """Whether a part has channels innermost, or will be written so."""
    if isinstance(held, Tensor):
        return held.is_channels_last and not held.is_dense
    return held.layout == channels_last(len(held.shape))
