"""Sessions with passes and without, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper

import onnxplug as ort

LEVELS = ort.GraphOptimizationLevel
QDQ = """g (float[1, 2, 4, 4] x) => (float y) <int8[2, 2, 1, 1] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0},
    int32[2] b = {1, 2}, float t = {0.25}, int32 u = {0}> {
    xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) xe = DequantizeLinear(xq, s, z) wd =
        DequantizeLinear(w, s, z) bd = DequantizeLinear(b, t, u)
    c = Conv(xd, wd, bd) cq = QuantizeLinear(c, s, z) cd = DequantizeLinear(cq, s, z) y = Add(cd, xe) }"""
BRANCHING = {"disabled_optimizers": ["BranchSelection"]}
"""Keywords of a session that keeps small branches."""
OFF, ON = LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL


def session(source: bytes, level: Any = ON, path: str = "", **keywords: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.optimized_model_filepath = level, path
    return ort.InferenceSession(source, options, ["CPUExecutionProvider"], enable_fallback=0, **keywords)


def ops(made: Any) -> list[str]:
    """Operators left in the main graph."""
    return [n["op_type"] for n in made.explain().nodes if "." not in n["graph"]]


def feeds_of(source: bytes, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    found = {}
    for info in ModelProto.FromString(source).graph.input:
        shape = [d.dim_value or 2 for d in info.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        found[info.name] = generator.integers(0, 5, shape).astype(dtype)
    return found


def check(source: bytes, left: Sequence[str] | None = None, rtol: float = 0, **keywords: Any) -> Any:
    """Results with passes are those without; the operators left are these."""
    before, after = session(source, OFF), session(source, **keywords)
    feeds = feeds_of(source)
    for mine, plain in zip(after.run(None, feeds), before.run(None, feeds), strict=True):
        assert mine.dtype == plain.dtype and mine.shape == plain.shape
        np.testing.assert_allclose(mine, plain, rtol=rtol, atol=rtol)
    assert [o.name for o in after.get_outputs()] == [o.name for o in before.get_outputs()]
    if left is not None:
        assert ops(after) == list(left)
    return after
