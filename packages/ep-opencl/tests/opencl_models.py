"""One-node models, and sessions of them on OpenCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxplug as ort
from onnxplug.contract import Available, element_of
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_ep_opencl.device import check

PROVIDER = "OpenCLExecutionProvider"
needs_device = pytest.mark.skipif(not isinstance(check(), Available), reason="no OpenCL device")


def one_node(
    op_type: str,
    inputs: dict[str, np.ndarray],
    opset: int = 21,
    outputs: int = 1,
    constants: Sequence[str] = (),
    **attributes: Any,
) -> bytes:
    """A model of one node, its input shapes fixed; ``constants`` and int64 inputs behind the first are initializers."""
    hosted = {n: a for i, (n, a) in enumerate(inputs.items()) if n in constants or (i and a.dtype == np.int64)}
    names = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op_type, list(inputs), names, **attributes)
    given = [
        helper.make_tensor_value_info(n, ELEMENT_CODES[element_of(a.dtype)], a.shape)
        for n, a in inputs.items()
        if n not in hosted
    ]
    made = [helper.make_value_info(n, onnx.TypeProto()) for n in names]
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in hosted.items()]
    graph = helper.make_graph([node], op_type, given, made, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def run(model: bytes, feeds: dict[str, np.ndarray], **options: str) -> list[np.ndarray]:
    """Results from OpenCL alone: no node may be placed elsewhere."""
    session = ort.InferenceSession(model, providers=[(PROVIDER, options)])
    assert set(session.placement().values()) == {PROVIDER}
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {n: a for n, a in feeds.items() if n in wanted})


def reference(op_type: str, inputs: dict[str, np.ndarray], opset: int = 21, **attributes: Any) -> np.ndarray:
    """What CPU computes in double precision."""
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 and a.size else a for n, a in inputs.items()}
    session = ort.InferenceSession(one_node(op_type, wide, opset, **attributes), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {i.name: wide[i.name] for i in session.get_inputs()})
    return result
