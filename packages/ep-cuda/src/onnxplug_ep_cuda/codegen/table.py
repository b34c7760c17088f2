"""Which operators have generated kernels: a lowering gives the launches of a node for known shapes, or None, which leaves it to the
portable kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxplug_ep_cuda.codegen import attention, lines
from onnxplug_ep_cuda.codegen.launch import Call, Job

Lower = Callable[[Call], Job | None]
_MS = "com.microsoft"

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
    ("", "Attention"): attention.node,
}
"""(domain, operator) -> its lowering."""
