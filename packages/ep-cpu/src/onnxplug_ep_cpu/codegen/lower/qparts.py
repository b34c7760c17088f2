"""QuantizeLinear in blocks, whose scales and zero points may be computed: one loop over what is quantized, seen with its blocks as an
axis of their own."""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS, saturated
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor


def unfit(node: NodeView) -> str | None:
    """Why a QuantizeLinear in blocks is not generated, or None."""
    x, scale, *rest = node.inputs
    reason = typed(x, FLOAT32) or typed(scale, FLOAT32) or typed(node.outputs[0], EIGHT_BITS)
    if reason or node.attributes.get("precision", 0) not in (0, 1):
        return reason or "quantization in another precision is not generated"
    ranks = {rank(v) for v in (x, scale, *rest) if v is not None}
    if len(ranks) > 1 or 0 in ranks:
        return "its scales are not in blocks"
    assert x is not None and x.shape is not None
    axis, block = _axis(node, len(x.shape)), node.attributes["block_size"]
    if not 0 <= axis < len(x.shape) or block < 0:
        return "it has no such axis or blocks"
    size = x.shape[axis]
    return "its last block is not whole" if isinstance(size, int) and size % block else None


def _axis(node: NodeView, dims: int) -> int:
    """The axis that has blocks, counted from the front."""
    axis = int(node.attributes.get("axis", 1)) if dims > 1 else 0
    return axis + dims if axis < 0 else axis


def quantize_blocks(b: Lowering, node: NodeView) -> None:
    """round(x / scale) + zero point, saturated, each block of an axis by numbers of its own."""
    (x, scale, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and scale is not None and y is not None
    shape, element = b.shape(x), b.element(y)
    axis, block = _axis(node, len(shape)), int(node.attributes["block_size"])
    blocks = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :])
    parameters = [v for v in (scale, *rest) if v is not None]
    if shape[axis] % block or any(b.shape(v) != blocks for v in parameters):
        raise Unsupported("scales or zero points are not one for each whole block")
    apart = (*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])

    def spread(value: ValueView, sizes: tuple[int, ...]) -> Tensor:
        view = b.dense(value).reshaped(sizes)
        assert view is not None, "a view of a dense tensor"
        return view

    once = (*shape[:axis], shape[axis] // block, 1, *shape[axis + 1 :])
    leaves = [spread(x, apart), *(spread(v, once) for v in parameters)]
    build = ex.Build()
    value = build("div", build("leaf", 0), build("leaf", 1))
    if len(parameters) > 1:  # rounded before it is shifted, which rounds it no further
        value = build("add", build("round", value), build("leaf", 2))
    expr = build.finish(saturated(build, value, 0, element, False))
    out = b.output(y, element=element)
    target = out.reshaped(apart)
    made = Pending(apart, expr, list(leaves), element=element)
    if target is None:
        whole = b.write(made).reshaped(shape)
        assert whole is not None
        b.define(y, whole)
    else:
        b.write_to(made, target)
