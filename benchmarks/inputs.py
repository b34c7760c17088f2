"""Inputs for a model, made from the shapes and types it declares."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

FREE = 32
"""The size of a dimension that is left open, but for the first of a shape, the batch, which is 1."""


def feeds_of(path: Path, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Seeded values for every input that is not an initializer: normal floats; integers 0 and 1, which are legal tokens and
    masks alike. ``sizes``: of dimensions by name. ValueError for an input that is no tensor of numbers."""
    graph = onnx.load(path, load_external_data=False).graph
    rng, own = np.random.default_rng(1), {i.name for i in graph.initializer}
    return {i.name: _values(i, sizes, rng) for i in graph.input if i.name not in own}


def _values(info: onnx.ValueInfoProto, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    declared = info.type.tensor_type
    if not info.type.HasField("tensor_type") or declared.elem_type == onnx.TensorProto.STRING:
        raise ValueError(f"input '{info.name}' is not a tensor of numbers")
    dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
    shape = [
        dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param, FREE if axis else 1)
        for axis, dim in enumerate(declared.shape.dim)
    ]
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
