"""Operands that do not go together, which only a run of a model with open dimensions brings: a kernel, which reads and writes by their
shapes alone, refuses them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from opencl_models import PROVIDER, needs_device

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument

pytestmark = needs_device
CASES = {
    "y = Conv (x, w, b)": {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3), "b": (2,)},
    "y = ConvTranspose (x, w)": {"x": (1, 2, 5, 5), "w": (3, 2, 3, 3)},
    "y = Gemm (x, w, b)": {"x": (3, 4), "w": (4, 5), "b": (4,)},
    "y = BatchNormalization (x, b, b, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = InstanceNormalization (x, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = LayerNormalization (x, b)": {"x": (2, 6), "b": (5,)},
    "y = GroupNormalization <num_groups = 3> (x, b, b)": {"x": (2, 6, 3), "b": (5,)},
    "y = PRelu (x, b)": {"x": (2, 6), "b": (5,)},
    "y = ReverseSequence (x, n)": {"x": (4, 6, 2), "n": (5,)},
    "y = ScatterND (x, k, u)": {"x": (4, 6), "k": (3, 1), "u": (3, 5)},
    "y = ScatterElements (x, k, u)": {"x": (4, 6), "k": (2, 6), "u": (2, 5)},
    "y = GatherElements (x, k)": {"x": (4, 6), "k": (2, 9)},
    "y, h = GRU <hidden_size = 2> (x, w, r)": {"x": (3, 1, 4), "w": (1, 6, 4), "r": (1, 6, 3)},
    "v = Gemm (x, w) y = Softmax (v)": {"x": (3, 4), "w": (5, 4)},
    "v = MatMul (x, w) y = Concat <axis = 1> (v, x)": {"x": (4, 3), "w": (4, 3)},
}


@pytest.mark.parametrize("text", CASES)
def test_operands_that_do_not_go_together(text: str) -> None:
    shapes = CASES[text]
    types = dict.fromkeys("nk", "int64")
    inputs = ", ".join(
        f"{types.get(n, 'float')}[{', '.join(n + str(k) for k in range(len(s)))}] {n}" for n, s in shapes.items()
    )

    opset = 18 if "GroupN" in text else 21
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => (float[a, b] y) {{ {text} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = {n: np.zeros(s, np.int64 if n in types else np.float32) for n, s in shapes.items()}
    kinds = []
    for provider in (PROVIDER, "CPUExecutionProvider"):
        session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
        with pytest.raises((Fail, InvalidArgument)) as raised:
            session.run(None, feeds)
        kinds.append(raised.type)
    assert kinds[0] is kinds[1]
