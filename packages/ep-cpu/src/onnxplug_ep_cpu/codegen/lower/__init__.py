"""Lowerings, one operator family per file."""

from __future__ import annotations

import functools
import importlib

FAMILIES = (
    "arithmetic", "activation", "matmul", "attention_pattern", "conv", "conv_transpose", "pad", "resize", "pool",
    "norm_affine", "norm", "softmax", "reduce", "norm_patterns", "move", "views", "recurrent", "quantize",
    "qmatmul", "qconv", "qdq", "nbits", "attention_contrib", "attention_onnx", "attention_grouped", "rotary", "embedding",
    "ml_features", "ml_linear", "ml_labels", "trees", "svm", "neighbours", "einsum",
)  # fmt: skip


@functools.cache
def families() -> None:
    """Import every family, which enters its lowerings."""
    for family in FAMILIES:
        importlib.import_module(f"{__package__}.{family}")
