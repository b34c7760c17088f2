"""QAttention of com.microsoft: self-attention whose projection multiplies 8-bit numbers."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.lower.attention_contrib import self_attention
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.qgemm import scalar
from onnxplug_ep_cpu.codegen.lower.qmatmul import array_at, in_floats, products_of, weights_support
from onnxplug_ep_cpu.codegen.lower.quantized import MS, quantized_types, single
from onnxplug_ep_cpu.codegen.lower.support import FLOAT32, attributes, rank, require, typed


def _supports(node: NodeView) -> str | None:
    x, _, bias, x_scale, w_scale, mask, x_zero, _, past = [*node.inputs, *[None] * 4][:9]
    given = attributes(node, do_rotary=0, past_present_share_buffer=0)
    if given["do_rotary"] or given["past_present_share_buffer"]:
        return "neither rotation nor a past in the memory of the present is generated"
    if rank(x) != 3 or (mask is not None and rank(mask) not in (1, 2, 3, 4)):
        return "the rank of an operand is not what the operator takes"
    reason = quantized_types(node, 0, 1) or weights_support(node, 1, 7) or single(x_scale) or single(x_zero)
    reason = reason or typed(mask, {"int32"})
    return reason or next(
        (why for v in (bias, x_scale, w_scale, past, *node.outputs) if (why := typed(v, FLOAT32))), None
    )


@lowering("QAttention", supports=_supports, domain=MS)
def quantized_attention(b: Lowering, node: NodeView) -> None:
    """Attention of x W scaled back to floats, plus bias."""
    x, w, bias, x_scale, w_scale, mask, x_zero, _, past = [*node.inputs, *[None] * 4][:9]
    assert x is not None and w is not None and x_scale is not None and w_scale is not None
    depth, width = b.shape(w)
    require(None if b.shape(x)[2] == depth and width % 3 == 0 else "the weights do not suit their operand")
    shape = (*b.shape(x)[:2], width)
    product = products_of(b, shape, b.read(x), scalar(b, x_zero, b.element(x)), w, array_at(b, node, 7))
    projected = b.write(in_floats(b, product, b.read(x_scale), w_scale, bias))
    self_attention(b, node, projected, [width // 3] * 3, mask, past, None)
