"""Models of one node of ``ai.onnx.ml``, run natively and with the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from codegen_models import session
from onnx import ModelProto, TensorProto, helper, numpy_helper

ML = "ai.onnx.ml"


def model(
    op_type: str, inputs: list[np.ndarray], outputs: int = 1, version: int = 3, domain: str = ML, **attributes: Any
) -> ModelProto:
    """``inputs`` become those of the graph, with a symbolic number of rows."""
    given = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **given)
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]] if x.ndim > 1 else x.shape
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results]
    for value in made:
        value.ClearField("type")
    graph = helper.make_graph([node], "g", values, made)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(proto: ModelProto, inputs: list[np.ndarray], native: bool = True, threads: int = 1) -> list[Any]:
    """The results; with ``native`` every node must be in a region."""
    made = session(proto, threads, codegen=native)
    if native:
        assert all(str(node["region"]).startswith("native") for node in made.explain().nodes), made.explain()
    with np.errstate(all="ignore"):
        return list(made.run(None, {f"x{i}": x for i, x in enumerate(inputs)}))


def check(
    op_type: str, inputs: list[np.ndarray], outputs: int = 1, rtol: float = 1e-5, atol: float = 1e-6, **attributes: Any
) -> list[Any]:
    """Native results, equal to those of the NumPy kernels: labels exactly, numbers within the tolerance."""
    proto = model(op_type, inputs, outputs, **attributes)
    got = run(proto, inputs)
    for mine, theirs in zip(got, run(proto, inputs, native=False), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
        else:
            assert mine.tolist() == theirs.tolist()
    return got
