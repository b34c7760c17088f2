"""QuantizeLinear by several scales, along an axis or in blocks, and DequantizeLinear in blocks. Scales and zero points of blocks may be
computed: one loop over what is quantized, seen with its blocks as an axis of their own."""

from __future__ import annotations

from dataclasses import replace

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qgemm import saturated
from onnxplug_ep_cpu.codegen.lower.quantized import constant_numbers
from onnxplug_ep_cpu.codegen.lower.support import rank
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def unfit(node: NodeView) -> str | None:
    """Why the blocks of its first operand are not generated, whatever their types are, or None."""
    x, scale, *rest = node.inputs
    ranks = {rank(v) for v in (x, scale, *rest) if v is not None}
    if len(ranks) > 1 or 0 in ranks:
        return "its scales are not in blocks"
    if x is None or x.shape is None:
        return "its rank is not known"
    axis, block = _axis(node, len(x.shape)), node.attributes["block_size"]
    if not 0 <= axis < len(x.shape) or block < 0:
        return "it has no such axis or blocks"
    size = x.shape[axis]
    return "its last block is not whole" if isinstance(size, int) and size % block else None


def _axis(node: NodeView, dims: int) -> int:
    """The axis that has blocks, counted from the front."""
    axis = int(node.attributes.get("axis", 1)) if dims > 1 else 0
    return axis + dims if axis < 0 else axis


def by_axis(node: NodeView) -> bool:
    """Whether its constant scales or zero points are more than one."""
    return any(v is not None and v.constant is not None and v.constant.size != 1 for v in node.inputs[1:])


def quantize_axis(b: Lowering, node: NodeView) -> None:
    """round(x / scale) + zero point, saturated, each entry of an axis by numbers of its own."""
    (x, *parameters), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    tensor = b.read(x)
    axis = _axis(node, len(tensor.shape))
    leaves: list[Tensor | None] = [tensor]
    for value in parameters:
        array = b.constant(value)
        if array is None:
            continue
        if not 0 <= axis < len(tensor.shape) or array.size not in (1, tensor.shape[axis]):
            raise Unsupported("scales or zero points are not one for each entry of the axis")
        leaves.append(along(constant_numbers(b, array.reshape(-1)), axis, len(tensor.shape)))
    b.pend(y, Pending(tensor.shape, _shifted(len(leaves) > 2, b.element(y)), leaves, element=b.element(y)))


def along(vector: Tensor, axis: int, dims: int) -> Tensor:
    """A vector as a tensor of ``dims`` axes, all but one of size 1."""
    shape = tuple(vector.size if d == axis else 1 for d in range(dims))
    return replace(vector, shape=shape, strides=tuple(int(d == axis) for d in range(dims)))


def _shifted(has_zero: bool, element: str) -> ex.Expr:
    """round(leaf 0 / leaf 1) + leaf 2, saturated."""
    build = ex.Build()
    value = build("div", build("leaf", 0), build("leaf", 1))
    if has_zero:  # rounded before it is shifted, which rounds it no further
        value = build("add", build("round", value), build("leaf", 2))
    return build.finish(saturated(build, value, 0, element, False))


def quantize_blocks(b: Lowering, node: NodeView) -> None:
    """round(x / scale) + zero point, saturated, each block of an axis by numbers of its own."""
    (y,) = node.outputs
    assert y is not None
    operands = [v for v in node.inputs if v is not None]
    _by_block(b, node, operands, _shifted(len(operands) > 2, b.element(y)))


def dequantize_blocks(b: Lowering, node: NodeView) -> None:
    """(x - zero point) * scale, each block of an axis by numbers of its own."""
    x, scale, *rest = node.inputs
    assert x is not None and scale is not None
    element = b.read(x).element
    points = [v for v in rest if v is not None] if element == b.element(x) else []  # int16 of bytes is less it already
    build = ex.Build()
    value = build("leaf", 0)
    value = build("to_float32", value) if element == "int32" else value
    if points:
        point = build("leaf", 2)
        value = build("sub", value, build("to_float32", point) if element == "int32" else point)
    _by_block(b, node, [x, scale, *points], build.finish(build("mul", value, build("leaf", 1))))


def _by_block(b: Lowering, node: NodeView, operands: list[ValueView], expr: ex.Expr) -> None:
    """``expr`` of x and the parameters, each of which has an element for a block. Unsupported where it has not."""
    x, *parameters = operands
    (y,) = node.outputs
    assert y is not None
    shape, element = b.shape(x), b.element(y)
    axis, block = _axis(node, len(shape)), int(node.attributes["block_size"])
    blocks = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :])
    if shape[axis] % block or any(b.shape(v) != blocks for v in parameters):
        raise Unsupported("scales or zero points are not one for each whole block")
    apart = (*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])

    def spread(value: ValueView, sizes: tuple[int, ...]) -> Tensor:
        view = b.dense(value).reshaped(sizes)
        assert view is not None, "a view of a dense tensor"
        return view

    once = (*shape[:axis], shape[axis] // block, 1, *shape[axis + 1 :])
    made = Pending(apart, expr, [spread(x, apart), *(spread(v, once) for v in parameters)], element=element)
    target = b.output(y, element=element).reshaped(apart)
    if target is None:
        whole = b.write(made).reshaped(shape)
        assert whole is not None
        b.define(y, whole)
    else:
        b.write_to(made, target)
