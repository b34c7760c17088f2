"""Images whose channels are declared last, as onnxruntime's optimizer writes quantized convolutions and pools: views of those whose
channels come second. Their memory is what kernels work on anyway."""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last


def declares_last(node: NodeView) -> bool:
    """Whether the node's image and result have their channels last."""
    return node.op_type.startswith("Nhwc") or bool(node.attributes.get("channels_last", 0))


def image_shape(b: Lowering, node: NodeView, value: ValueView) -> Ints:
    """The shape of a node's image or result with channels second."""
    shape = b.shape(value)
    return (shape[0], shape[-1], *shape[1:-1]) if declares_last(node) else shape


def read_image(b: Lowering, node: NodeView, x: ValueView, dense: bool = True) -> Tensor:
    """A node's image with channels second; ``dense``: channels lie innermost and nothing has gaps."""
    if declares_last(node):
        return channels_second(b.dense(x) if dense else b.read(x))
    return b.in_order(x, channels_last(len(b.shape(x)))) if dense else b.read(x)


def output_image(b: Lowering, node: NodeView, y: ValueView, element: str) -> Tensor:
    """Where to write a node's result, with channels second and innermost."""
    if declares_last(node):
        return channels_second(b.output(y, element=element))
    return b.output(y, channels_last(len(b.shape(y))), element)


def pend_image(b: Lowering, node: NodeView, y: ValueView, pending: Pending) -> None:
    """``y`` is a pending value of channels second."""
    if declares_last(node):
        b.write_to(pending, output_image(b, node, y, pending.element))
    else:
        b.pend(y, pending)


def channels_second(tensor: Tensor) -> Tensor:
    """A tensor whose channels are declared last."""
    last = len(tensor.shape) - 1
    return tensor.transposed((0, last, *range(1, last)))
