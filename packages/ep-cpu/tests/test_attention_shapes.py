"""Shapes of MultiHeadAttention's results: a plan knows them without onnx's inference, and they are those of a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxplug as ort
from onnxplug.plan.layers import output_shapes

BATCH, ROWS, HEADS, SIZE, COLUMN = 2, 3, 4, 8, 6


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_shapes_are_those_of_a_run(past: int, apart: bool, count: int) -> None:
    shapes = {"q": (BATCH, ROWS, HEADS * SIZE), "k": (BATCH, 7, HEADS * SIZE), "v": (BATCH, 7, HEADS * COLUMN)}
    if apart:
        shapes |= {"k": (BATCH, HEADS, 7, SIZE), "v": (BATCH, HEADS, 7, COLUMN)}
    names = ["q", "k", "v"]
    if past:
        shapes |= {"pk": (BATCH, HEADS, past, SIZE), "pv": (BATCH, HEADS, past, COLUMN)}
        names += ["", "", "", "pk", "pv"]
    outputs = ["y", "present_key", "present_value"][:count]
    node = helper.make_node("MultiHeadAttention", names, outputs, domain="com.microsoft", num_heads=HEADS)
    info = helper.make_tensor_value_info
    ends = [info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()], [info(n, 1, None) for n in outputs]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=sets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made = session.run(None, {n: np.ones(shape, "f4") for n, shape in shapes.items()})
    seen = SimpleNamespace(
        op_type="MultiHeadAttention", domain="com.microsoft", attributes={"num_heads": HEADS}, outputs=outputs,
        inputs=[name or None for name in names],
    )  # fmt: skip
    found = output_shapes(seen, [shapes.get(name) for name in names], [None] * len(names))
    assert found == [array.shape for array in made]
