"""Operands whose sizes must go together."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug_kernels.fitting import MS, RULES, misfit


@pytest.mark.parametrize(
    ("op_type", "shapes", "index"),
    [
        ("Attention", [(2, 4, 16), (16, 48), (48,)], None),
        ("Attention", [(2, 4, 16), (16, 48), (1,)], 2),
        ("BiasGelu", [(2, 3, 8), (8,)], None),
        ("BiasGelu", [(8,), (8,)], None),
        ("BiasGelu", [(2, 3, 8), (1,)], 1),
        ("BiasDropout", [(2, 3, 8), (8,), (3, 8), ()], None),
        ("BiasDropout", [(2, 3, 8), (8,), (2, 2, 8)], 2),
        ("EmbedLayerNormalization", [(2, 5), None, (10, 8), (6, 8), None, (8,), (8,), (2, 5)], None),
        ("EmbedLayerNormalization", [(2, 5), (2, 5), (10, 8), (6, 8), (2, 8), (8,), (13,)], 6),
        ("GemmaRotaryEmbedding", [(2, 5, 8), *[(2, 3, 5, 8)] * 4], None),
        ("GemmaRotaryEmbedding", [(2, 5, 8), (2, 3, 5, 8), (3, 5, 0)], 2),
        ("EngramGate", [(2, 3, 4, 6), (2, 3, 4, 6), (2, 3, 6), (4, 6)], None),
        ("EngramGate", [(2, 3, 4, 6), (2, 3, 4, 6), (2, 1, 6), (4, 6)], 2),
        ("GroupQueryAttention", [(2, 1, 64), None, None, (2, 3, 9, 16), (2, 3, 9, 16)], None),
        ("GroupQueryAttention", [(2, 1, 64), None, None, None, None], None),
        ("GroupQueryAttention", [(2, 5, 64), *[(2, 2, 48)] * 2, *[(2, 3, 9, 16)] * 2], 1),
        ("GroupQueryAttention", [(2, 5, 64), (2, 5, 48), (2, 3, 48), *[(2, 3, 9, 16)] * 2], 2),
        ("GroupQueryAttention", [(2, 5, 64), *[(2, 5, 48)] * 2, *[None] * 6, (2, 7)], None),
        ("GroupQueryAttention", [(2, 5, 64), *[(2, 5, 48)] * 2, *[None] * 6, (1, 5)], 9),
        ("GroupQueryAttention", [(2, 1, 64), None, None, (2, 1, 9, 16), (2, 1, 9, 16)], 3),
        ("GroupQueryAttention", [(2, 1, 64), None, None, (2, 3, 9, 16), (2, 3, 1, 16)], 4),
        ("GroupQueryAttention", [(2, 1, 64), None, None, (2, 3, 9, 16), None], 3),
        ("LinearAttention", [(2, 3, 8), (2, 3, 8), (2, 3, 8), (2, 2, 4, 4)], None),
        ("LinearAttention", [(2, 3, 8), (2, 3, 8), (2, 3, 8), (4, 2, 2, 4, 4)], None),
        ("LinearAttention", [(2, 3, 8), (2, 3, 8), (2, 3, 8), (1, 2, 4, 4)], 3),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (6, 2)], None),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (12,), (6,), None, (6,)], None),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (6, 2), (6, 2)], None),
        ("MatMulNBits", [(2, 32), (11, 2, 8), (6, 2)], 1),
        ("MatMulNBits", [(2, 32), (6, 1, 16), (6, 2)], 1),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (2, 6)], 2),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (6, 2), (5,)], 3),
        ("MatMulNBits", [(2, 32), (6, 2, 8), (6, 2), None, None, (1, 6)], 5),
        ("MoE", [(2, 3, 16), (6, 4), (4, 8, 16), None, (4, 16, 8)], None),
        ("MoE", [(3, 16), (6, 4), (4, 8, 16), None, (4, 16, 8)], 1),
        ("MultiHeadAttention", [(2, 4, 16), (2, 2, 7, 8), (2, 2, 7, 8)], None),
        ("MultiHeadAttention", [(2, 4, 16), None, (1, 4, 16)], 2),
        ("MultiHeadAttention", [(2, 4, 16), (2, 7, 2, 2, 8)], None),
        ("MultiHeadAttention", [(2, 4, 16), (2, 7, 2, 1, 8)], 1),
        ("MultiHeadAttention", [(2, 4, 16), (2, 7, 2, 2, 8), (2, 7, 16)], 2),
        ("MultiHeadAttention", [(2, 4, 2, 3, 8)], None),
        ("MultiHeadAttention", [(2, 4, 2, 2, 8)], 0),
        ("MultiHeadAttention", [(2, 4, 16), (2, 2, 7, 8), (2, 1, 7, 8)], 2),
        ("MRotaryEmbedding", [(2, 3, 5, 8), (3, 2, 5), (9, 4), (9, 4)], None),
        ("MRotaryEmbedding", [(2, 5, 24), (3, 1, 5), (9, 4), (9, 4)], 1),
        ("MRotaryEmbedding", [(2, 5, 24), (3, 2, 5), (9, 4), (10, 4)], 3),
        ("RotaryEmbedding", [(2, 3, 5, 8), (1,), (9, 4), (9, 4)], None),
        ("RotaryEmbedding", [(2, 5, 24), (2, 5), (9, 4), (9, 4)], None),
        ("RotaryEmbedding", [(2, 3, 5, 8), (1, 5), (9, 4), (9, 4)], 1),
        ("RotaryEmbedding", [(2, 3, 5, 8), (2, 5), (9, 4), (9, 3)], 3),
        ("SkipLayerNormalization", [(2, 3, 8), (3, 8), (8,), None, (8,)], None),
        ("SkipLayerNormalization", [(1, 3, 8), (2, 3, 8), (8,)], 1),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (4, 8), None, (4, 32, 4), (4, 32, 1), (4, 32)], None),
        ("QMoE", [(3, 32), (2, 4), (4, 8, 16), (4, 8), None, (4, 32, 4), (4, 32)], 1),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 20), (4, 8), None, (4, 32, 4), (4, 32)], 2),
        ("QMoE", [(3, 32), (3, 4), (5, 8, 16), (4, 8), None, (4, 32, 4), (4, 32)], 2),
        ("QMoE", [(3, 32), (3, 4), (4, 8), (4, 8), None, (4, 32, 4), (4, 32)], 2),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (5, 8), None, (4, 32, 4), (4, 32)], 3),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (4, 8), None, (4, 32, 6), (4, 32)], 5),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (4, 8), None, (4, 32, 4), (4, 32), (4, 1)], 7),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (4, 8), None, (4, 32, 4), (4, 32), *[None] * 4, (4, 4), (4, 16)], None),
        ("QMoE", [(3, 32), (3, 4), (4, 8, 16), (4, 8), None, (4, 32, 4), (4, 32), *[None] * 4, (4, 8)], 11),
        ("QuantizeLinear", [(2, 3), (), (1,)], None),
        ("QuantizeLinear", [(2, 3), (), (3,)], 2),
        ("Gelu", [(2, 3), (7,)], None),
    ],
)
def test_which_operand_does_not_fit(op_type: str, shapes: list[Any], index: int | None) -> None:
    said = misfit(
        MS,
        op_type,
        shapes,
        {"K": 32, "N": 6, "num_heads": 2, "kv_num_heads": 3} | ({"block_size": 16} if op_type == "MatMulNBits" else {}),
    )
    assert (
        said is None if index is None else said is not None and said.startswith(f"input {index} of {op_type} has shape")
    )


@pytest.mark.parametrize(
    ("shapes", "index"),
    [
        ([(2, 3, 4, 8), (2, 4, 4), (2, 4, 4)], None),
        ([(2, 4, 24), (2, 4, 4), (2, 4, 4)], None),
        ([(2, 3, 4, 8), (1, 4, 4), (1, 4, 4)], 1),
        ([(2, 3, 4, 8), (2, 4, 4), (4, 4)], 2),
        ([(2, 3, 4, 8), (9, 4), (9, 4), (2, 4)], None),
        ([(2, 3, 4, 8), (9, 4), (8, 4), (2, 4)], 2),
    ],
)
def test_caches_of_angles(shapes: list[Any], index: int | None) -> None:
    said = misfit("", "RotaryEmbedding", shapes, {"num_heads": 3})
    assert said is None if index is None else said is not None and said.startswith(f"input {index} ")


@pytest.mark.parametrize(
    ("shapes", "axis", "index"),
    [
        ([(2, 3, 8, 4), (2, 3, 2, 4), (2,)], -2, None),
        ([(2, 8, 4), (2, 8, 4)], 1, None),
        ([(2, 3, 8, 4), (5, 3, 2, 4), (2,)], -2, 1),
        ([(2, 3, 8, 4), (2, 1, 2, 4), (2,)], -2, 1),
        ([(2, 3, 8, 4), (2, 3, 9, 4)], -2, 1),
        ([(2, 3, 8, 4), (3, 2, 4)], -2, 1),
        ([(2, 3, 8, 4), (2, 3, 2, 4), (1,)], -2, 2),
    ],
)
def test_updates_of_a_cache(shapes: list[Any], axis: int, index: int | None) -> None:
    said = misfit("", "TensorScatter", shapes, {"axis": axis})
    assert said is None if index is None else said is not None and said.startswith(f"input {index} ")


def test_rules_are_of_operators_that_exist() -> None:
    from onnxplug_kernels.catalogue import entries

    assert all(any(e.domain == domain for e in entries(op_type)) for domain, op_type in RULES)
