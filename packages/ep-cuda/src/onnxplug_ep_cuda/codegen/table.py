"""Which operators have generated kernels: a lowering gives the launches of a node for known shapes, or None, which leaves it to the
portable kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from onnxplug_ep_cuda.codegen import lines
from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_ep_cuda.codegen.passes import passing
from onnxplug_kernel_text.nodes import attention, attention_contrib, grouped, integers, nbits, qlinear, quantize, rotary
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.integers import by_groups

Lower = Callable[[Call], Job | None]
_MS = "com.microsoft"

DESCRIBED: Mapping[tuple[str, str], Callable[[NodeCall], attention.Problem | None]] = {
    ("", "Attention"): attention.described,
    (_MS, "MultiHeadAttention"): attention_contrib.described,
    (_MS, "GroupQueryAttention"): grouped.described,
}
"""(domain, operator) -> what attention a node is; None leaves it to the portable kernel."""

CACHES: Mapping[tuple[str, str], frozenset[int]] = {
    ("", "Attention"): frozenset({4, 5}),
    (_MS, "MultiHeadAttention"): frozenset({6, 7}),
    (_MS, "GroupQueryAttention"): frozenset({3, 4}),
}
"""Inputs that may be empty: in the first step there are no keys from before."""
ON_DEVICE: Mapping[tuple[str, str], frozenset[int]] = {(_MS, "GroupQueryAttention"): frozenset({grouped.LAST})}
"""Inputs that portable kernels want on the host, and generated ones where the device computed them."""

LOWERINGS: Mapping[tuple[str, str], Lower] = {
    **{("", op): lines.softmax for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{
        ("", f"Reduce{name}"): lines.reduce
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
    ("", "RotaryEmbedding"): rotary.embedding,
    (_MS, "RotaryEmbedding"): rotary.embedding_contrib,
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
