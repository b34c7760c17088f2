"""Which operators have generated kernels: a lowering gives the launches of a node for known shapes, or None, which leaves it to the
portable kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from onnxplug.contract import NodeView
from onnxplug_ep_cuda.codegen import lines, written
from onnxplug_ep_cuda.codegen.kernel import Counted, CountedKernel, GeneratedKernel, Made
from onnxplug_ep_cuda.codegen.launch import Call, Lower, watched, where_known
from onnxplug_ep_cuda.codegen.passes import passing
from onnxplug_kernel_text.nodes import (
    attention,
    attention_contrib,
    grouped,
    hybrid,
    integers,
    nbits,
    qlinear,
    quantize,
    rotary,
    selection,
)
from onnxplug_kernel_text.nodes.faults import NO_KEY
from onnxplug_kernel_text.nodes.indexing import booleans_joined
from onnxplug_kernel_text.nodes.integers import by_groups
from onnxplug_kernel_text.nodes.suppression import largest

_MS = "com.microsoft"


def _grouped(call: Call) -> attention.Problem | None:
    return grouped.described(call, grouped.Faults(call.fault(), call.fault(NO_KEY)))


DESCRIBED: Mapping[tuple[str, str], Callable[[Call], attention.Problem | None]] = {
    ("", "Attention"): attention.described,
    (_MS, "MultiHeadAttention"): attention_contrib.described,
    (_MS, "GroupQueryAttention"): _grouped,
}
"""(domain, operator) -> what attention a node is; None leaves it to the portable kernel."""

CACHES: Mapping[tuple[str, str], frozenset[int]] = {
    ("", "Attention"): frozenset({4, 5}),
    (_MS, "MultiHeadAttention"): frozenset({6, 7}),
    (_MS, "GroupQueryAttention"): frozenset({3, 4}),
}
"""Inputs that may be empty: in the first step there are no keys from before."""
ON_DEVICE: Mapping[tuple[str, str], frozenset[int]] = {
    (_MS, "GroupQueryAttention"): frozenset({grouped.LAST}),
    ("", "RoiAlign"): frozenset({1, 2}),
}
"""Inputs that portable kernels want on the host, and generated ones where the device computed them."""

LOWERINGS: Mapping[tuple[str, str], Lower] = {
    **{("", op): lines.softmax for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{
        ("", f"Reduce{name}"): where_known(lines.reduce)
        for name in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    **{("", op): lines.arg for op in ("ArgMax", "ArgMin")},
    **{("", op): lines.layer_norm for op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")},
    (_MS, "SimplifiedLayerNormalization"): lines.layer_norm,
    ("", "InstanceNormalization"): lines.instance_norm,
    ("", "GroupNormalization"): lines.group_norm,
    **{(_MS, op): lines.skip_norm for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")},
    **{name: functools.partial(attention.node, describe) for name, describe in DESCRIBED.items()},
    (_MS, "EmbedLayerNormalization"): lines.embed_norm,
    ("", "LpNormalization"): lines.lp_norm,
    ("", "LRN"): lines.lrn,
    **{("", op): lines.whole for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    ("", "TopK"): where_known(written.top_k),
    ("", "Col2Im"): where_known(written.col2im),
    ("", "GridSample"): written.grid_sample,
    ("", "RoiAlign"): written.roi_align,
    ("", "ReverseSequence"): written.reverse_sequence,
    ("", "Gather"): written.gather,
    ("", "GatherElements"): written.gather_elements,
    **{(domain, "GatherND"): written.gather_nd for domain in ("", _MS)},
    ("", "OneHot"): where_known(written.one_hot),
    ("", "RotaryEmbedding"): watched(rotary.embedding),
    (_MS, "RotaryEmbedding"): watched(rotary.embedding_contrib),
    (_MS, "MRotaryEmbedding"): watched(rotary.embedding_of_three),
    **{(domain, "LinearAttention"): written.linear_attention for domain in ("", _MS)},
    **{(domain, "CausalConvWithState"): written.causal_convolution for domain in ("", _MS)},
    **{(_MS, op): written.mixture for op in ("MoE", "QMoE")},
    (_MS, "GatedRMSNorm"): lines.gated_norm,
    (_MS, "LinearAttentionGate"): passing(hybrid.gates),
    (_MS, "QEmbedLayerNormalization"): lines.embed_norm,
    **{(domain, "QuantizeLinear"): passing(quantize.quantize) for domain in ("", _MS)},
    **{(domain, "DequantizeLinear"): passing(quantize.dequantize) for domain in ("", _MS)},
    ("", "DynamicQuantizeLinear"): quantize.dynamic_quantize,
    ("", "MatMulInteger"): by_groups(integers.matmul_integer),
    ("", "QLinearMatMul"): by_groups(integers.qlinear_matmul),
    (_MS, "MatMulIntegerToFloat"): by_groups(integers.matmul_integer_to_float),
    (_MS, "DynamicQuantizeMatMul"): by_groups(integers.dynamic_matmul),
    (_MS, "MatMulNBits"): nbits.matmul_nbits,
    ("", "ConvInteger"): by_groups(integers.conv_integer),
    ("", "QLinearConv"): by_groups(integers.qlinear_conv),
    (_MS, "QLinearConv"): by_groups(integers.qlinear_conv),
    (_MS, "QGemm"): by_groups(integers.qgemm),
    **{(_MS, op): passing(qlinear.binary) for op in ("QLinearAdd", "QLinearMul")},
    **{(_MS, op): passing(qlinear.unary) for op in ("QLinearSigmoid", "QLinearLeakyRelu")},
    (_MS, "QLinearWhere"): passing(qlinear.where),
    (_MS, "QLinearConcat"): passing(qlinear.concat),
    (_MS, "QLinearGlobalAveragePool"): qlinear.global_average,
}
"""(domain, operator) -> its lowering."""


ALONE: Mapping[tuple[str, str], tuple[type[GeneratedKernel], Lower, Made, Callable[[NodeView], str | None] | None]] = {
    **{
        ("", op): (GeneratedKernel, written.scatter_elements, written.as_first, booleans_joined)
        for op in ("Scatter", "ScatterElements")
    },
    ("", "ScatterND"): (GeneratedKernel, written.scatter_nd, written.as_first, booleans_joined),
    ("", "NonMaxSuppression"): (CountedKernel, written.suppress, largest, None),
}
"""(domain, operator) that no portable function is for -> its kernel, lowering, result, and what says why a node is declined."""

COUNTED: Mapping[tuple[str, str], tuple[Lower, Made, Counted]] = {
    ("", "NonZero"): (written.non_zero, selection.most_places, selection.places_axis),
    ("", "Compress"): (written.compress, selection.most_slices, selection.slices_axis),
}
"""(domain, operator) whose result is as long as the data decides -> its lowering, None for what is left to the portable function; the
longest result; the dimension that is counted."""
