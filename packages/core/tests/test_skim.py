"""Weights read past the protobuf parser."""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxplug.load.skim import LIMIT, skim

ARRAYS = {
    "large": np.arange(2000, dtype=np.float32).reshape(20, 100),
    "half": np.linspace(0, 1, 1024, dtype=np.float16),
    "small": np.arange(3, dtype=np.int64),
    "flags": np.arange(4096) % 3 == 0,
}


def model() -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    tensors.append(helper.make_tensor("typed", TensorProto.FLOAT, [600], np.arange(600.0)))
    tensors.append(helper.make_tensor("nibbles", TensorProto.INT4, [4096], np.zeros(4096, np.int8)))
    outside = numpy_helper.from_array(np.zeros(10, np.float32), "outside")
    onnx.external_data_helper.set_external_data(outside, "weights.bin", length=40)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [100])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [20, 100])
    node = helper.make_node("Add", ["x", "large"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [*tensors, outside])
    return helper.make_model(graph, doc_string="text", ir_version=10)


def test_large_payloads_are_taken_out_and_the_rest_is_the_model() -> None:
    whole = model()
    data = whole.SerializeToString()
    found = skim(io.BytesIO(data), len(data))
    assert found is not None
    assert set(found.payloads) == {"large", "half", "flags"}
    for name, payload in found.payloads.items():
        np.testing.assert_array_equal(payload.view(ARRAYS[name].dtype).reshape(ARRAYS[name].shape), ARRAYS[name])
    rest = onnx.ModelProto.FromString(found.rest)
    for tensor in whole.graph.initializer:
        if tensor.name in found.payloads:
            tensor.ClearField("raw_data")
    assert rest == whole
    assert len(found.rest) < len(data) - sum(p.nbytes for p in found.payloads.values()) + LIMIT


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x3a\x05abc", b"\xff" * 20, b"\x0b\x0c"])
def test_what_is_no_model_is_left_to_the_parser(data: bytes) -> None:
    assert skim(io.BytesIO(data), len(data)) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_models_are_read_alike_or_left_to_the_parser(draw: st.DataObject) -> None:
    data = bytearray(model().SerializeToString())
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, min(400, len(data) - 1)))] = draw.draw(st.integers(0, 255))
    data = data[: draw.draw(st.integers(0, len(data)))]
    found = skim(io.BytesIO(bytes(data)), len(data))
    if found is None:
        return
    try:
        rest = onnx.ModelProto.FromString(found.rest)
        for tensor in rest.graph.initializer:
            if tensor.name in found.payloads:
                tensor.raw_data = found.payloads[tensor.name].tobytes()
    except Exception:
        with pytest.raises(Exception, match=r".*"):
            onnx.ModelProto.FromString(bytes(data))
        return
    assert rest == onnx.ModelProto.FromString(bytes(data))
