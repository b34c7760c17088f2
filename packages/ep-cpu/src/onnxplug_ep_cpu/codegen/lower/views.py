"""Operators that move no data: their result is another view of the operand. Concatenation and copies with them."""

from __future__ import annotations

from dataclasses import replace

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.joins import kept_as, stacked
from onnxplug_ep_cpu.codegen.lower.loops import converted
from onnxplug_ep_cpu.codegen.lower.numbered import respell
from onnxplug_ep_cpu.codegen.lower.support import attributes, axis_of, of, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import NARROW, Tensor


def _movable(node: NodeView) -> str | None:
    return typed(node.inputs[0], SIZES) or typed(node.outputs[0], SIZES)


@lowering("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", supports=_movable)
@lowering("ExpandDims", supports=_movable, domain="com.microsoft")
def reshape(b: Lowering, node: NodeView) -> None:
    """The same elements under another shape."""
    (x, *_), (y, *_) = node.inputs, node.outputs
    assert x is not None and y is not None
    if x.name in b.words:
        respell(b, node)
    tensor, again = b.unread(x)
    view = tensor.reshaped(b.shape(y))
    b.define(y, again(view if view is not None else _reshaped(b.copied(tensor, range(len(tensor.shape))), b.shape(y))))


def _reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    view = tensor.reshaped(shape)
    assert view is not None, "a dense tensor has a view of any shape"
    return view


def _dropout_supports(node: NodeView) -> str | None:
    if any(v is not None for v in node.outputs[1:]):
        return "its mask is wanted"
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is not None and (training.constant is None or bool(training.constant)):
        return "it may be in training mode"
    if node.since_version < 7 and not node.attributes.get("is_test", 0):
        return "it is in training mode"
    return _movable(node)


@lowering("Dropout", supports=_dropout_supports)
def dropout(b: Lowering, node: NodeView) -> None:
    """Nothing is dropped in inference."""
    reshape(b, node)


@lowering("Transpose", supports=of(SIZES))
def transpose(b: Lowering, node: NodeView) -> None:
    """Dimensions in another order."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    tensor, again = b.unread(x)
    order = attributes(node, perm=tuple(reversed(range(len(tensor.shape)))))["perm"]
    if len(order) != len(tensor.shape):  # which shape inference lets pass
        raise Unsupported(f"its order is of {len(order)} dimensions, '{x.name}' has {len(tensor.shape)}")
    b.define(y, again(tensor.transposed(order)))


@lowering("Concat", supports=of(SIZES))
def concat(b: Lowering, node: NodeView) -> None:
    """Inputs side by side along an axis; one already written in its place is not copied."""
    (y,) = node.outputs
    assert y is not None
    inputs = [v for v in node.inputs if v is not None]
    places = respell(b, node) if any(v.name in b.words for v in inputs) else None
    rank = len(b.shape(y))
    axis = axis_of(node.attributes.get("axis", 1), rank)
    tensors = places or [b.lies(v) for v in inputs]
    held = b.values.get(y.name)
    if isinstance(held, Tensor):
        whole = held
    else:
        last = all(t.is_channels_last and not t.is_dense for t in tensors) and axis == 1
        order = (0, *range(2, rank), 1) if last else stacked(b, node, axis)
        whole = b.output(y, order, kept_as(b, node) or b.element(y))
    if whole.element not in NARROW and places is None:
        tensors = [b.read(v) for v in inputs]
    start = 0
    for tensor in tensors:
        part = replace(whole.shift(start * whole.strides[axis]), shape=tensor.shape)
        if tensor.buffer is not part.buffer or tensor.offset != part.offset:
            converted(b.program, b.target, tensor, part)
        start += tensor.shape[axis]
