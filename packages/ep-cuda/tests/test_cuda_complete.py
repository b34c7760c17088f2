"""No operator with kernels of its own is forgotten: each is claimed, and each is among the nodes that are compiled for every architecture
and launched."""

from __future__ import annotations

from test_cuda_attention_contrib import every_contrib
from test_cuda_generated import every_attention, every_kind
from test_cuda_grouped import every_grouped
from test_cuda_integers import every_quantized
from test_cuda_written import every_written

from onnxplug_ep_cuda.codegen.table import ALONE, COUNTED, DESCRIBED, LOWERINGS
from onnxplug_ep_cuda.registry import claimable

GENERATED = {*LOWERINGS, *ALONE, *COUNTED, *DESCRIBED}
MAKERS = (every_kind, every_attention, every_contrib, every_grouped, every_quantized, every_written)


def test_every_operator_with_kernels_is_claimed() -> None:
    claimed = {(entry.domain, entry.op_type) for entry, *_ in claimable()}
    assert claimed >= GENERATED


def test_every_operator_with_kernels_is_compiled_and_launched() -> None:
    launched = {(node.domain, node.op_type) for make in MAKERS for node in make() if node.job() is not None}
    assert launched >= GENERATED
