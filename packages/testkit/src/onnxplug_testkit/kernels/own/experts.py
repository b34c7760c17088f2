"""The kit's own structures of com.microsoft's mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import GONE, U8, F, Operand, OwnNode, bytes_of, ms, real


def expert_nodes() -> Iterator[OwnNode]:
    """All of them."""
    rows, scores = real(2, 5, 16), real(10, 3)
    first, bias, second, third = (
        real(3, 8, 16, low=-1, high=1),
        real(3, 8),
        real(3, 16, 8, low=-1, high=1),
        real(3, 8, 16),
    )
    for name in ("relu", "gelu", "silu", "identity"):
        yield _moe([rows, scores, first, bias, second, real(3, 16)], [F], name, k=2, activation_type=name)
    gated = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    yield _moe([rows, scores, first, GONE, second, GONE, third, bias], [F], "gated", **gated)
    for fusion in (1, 2):
        more = {
            "activation_type": "swiglu",
            "activation_alpha": 1.5,
            "activation_beta": 1.0,
            "swiglu_limit": 2.0,
            "swiglu_fusion": fusion,
        }
        halved = [rows, scores, real(3, 16, 16, low=-1, high=1), real(3, 16), second]
        yield _moe(halved, [F], f"swiglu_{fusion}", k=1, **more)
    yield _moe([rows, scores, first, GONE, second], [F], "sparse", k=2, use_sparse_mixer=1)
    for bits in (4, 8):
        packed = [(bytes_of(np.uint8, *s, bits * n // 8, high=255), U8) for *s, n in ((3, 8, 16), (3, 16, 8))]
        scales = [real(3, n, low=0.01, high=0.1) for n in (8, 16)]
        given = [rows, scores, packed[0], scales[0], bias, packed[1], scales[1]]
        yield ms("QMoE", given, [F], f"{bits}", k=2, expert_weight_bits=bits)
    packed = [(bytes_of(np.uint8, *s, high=255), U8) for s in ((3, 16, 8), (3, 16, 8))]
    scales = [real(3, 16, 1, low=0.01, high=0.1)] * 2
    zeros = [(bytes_of(np.uint8, 3, 16, 1, high=15), U8)] * 2
    blocks = [rows, scores, packed[0], scales[0], GONE, packed[1], scales[1], GONE, GONE, GONE, GONE, *zeros]
    yield ms("QMoE", blocks, [F], "blocks", k=2, block_size=16)


def _moe(inputs: list[Operand], outputs: list[str], label: str, **attributes: Any) -> OwnNode:
    return ms("MoE", inputs, outputs, label, **attributes)
