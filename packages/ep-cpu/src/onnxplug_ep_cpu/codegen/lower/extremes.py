"""The places of the largest or smallest elements along an axis."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.reduce import ArgExtreme
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.lines import across, split
from onnxplug_ep_cpu.codegen.lower.support import NUMBERS, attributes, axis_of, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def _place_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], NUMBERS | {"uint8", "int8"}) or typed(node.outputs[0], {"int64"})


@lowering("ArgMax", "ArgMin", supports=_place_supports)
def place_of_extreme(b: Lowering, node: NodeView) -> None:
    """The index of the largest or smallest element along an axis."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    given = attributes(node, axis=0, keepdims=1, select_last_index=0)
    tensor = b.read(x)
    axis = axis_of(given["axis"], len(tensor.shape))
    if tensor.shape[axis] == 0:
        raise Unsupported("there is no place in nothing")
    b.define(
        y, b.reshaped(places(b, tensor, axis, node.op_type == "ArgMax", bool(given["select_last_index"])), b.shape(y))
    )


def places(b: Lowering, tensor: Tensor, axis: int, largest: bool = True, last: bool = False) -> Tensor:
    """Where the extremes along an axis are, as int64; the axis stays as a dimension of size 1."""
    small = tuple(1 if d == axis else n for d, n in enumerate(tensor.shape))
    for again in (False, True):
        turned = [*(d for d in range(len(small)) if d != axis), axis] if again else across(b, tensor, [axis])
        tensor = b.copied(tensor, turned) if turned else tensor
        order = sorted(range(len(small)), key=lambda d: (-tensor.strides[d], d))
        result = b.scratch(small, order, "int64")
        lines = split([result.broadcast(tensor.shape), tensor], [axis], main=1)
        if lines is not None:
            break
    assert lines is not None, "a line along the contiguous axis of a copy"
    kernel = ArgExtreme(lines.along, len(lines.outer), lines.operands((1,)), largest, last)
    if result.size:
        lines.call(b, kernel, 4.0)
    return result
