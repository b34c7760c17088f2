"""Models for the tests of the bridge, and sessions on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper, parser

import onnxplug as ort

OWN, CPU = "OnnxRuntimeExecutionProvider", "CPUExecutionProvider"
PROVIDERS = [OWN, CPU]


def model(text: str, version: int = 17, **constants: np.ndarray) -> bytes:
    """A model from the text of its graph, with these initializers."""
    proto = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {version}, "com.microsoft": 1, "ai.onnx.ml": 3]> {text}'
    )
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto.SerializeToString()


def one_node(op_type: str, feeds: Mapping[str, np.ndarray], version: int, domain: str = "", **attributes: Any) -> bytes:
    """A model of a node that reads these feeds."""
    node = helper.make_node(op_type, list(feeds), ["y"], name="the node", domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", inputs, [output])
    imports = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def open_session(source: bytes, providers: Sequence[Any] = PROVIDERS, **settings: Any) -> ort.InferenceSession:
    """A session with attributes of its options set, and config entries (names with ``__`` for dots)."""
    options = ort.SessionOptions()
    for name, value in settings.items():
        if "__" in name:
            options.add_session_config_entry(name.replace("__", "."), value)
        else:
            setattr(options, name, value)
    return ort.InferenceSession(source, options, providers=list(providers))


def owners(session: ort.InferenceSession) -> set[str]:
    """The providers that have nodes."""
    return set(session.placement().values())


def reasons(session: ort.InferenceSession) -> dict[str, str]:
    """By node why the bridge has it not."""
    nodes = session.explain().to_dict()["nodes"]
    return {node["name"]: node["reasons"][OWN] for node in nodes if OWN in node["reasons"]}


def same(results: Sequence[Any], wanted: Sequence[Any], rtol: float = 1e-5) -> None:
    """Assert results of the same types and shapes that are close."""
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype == object:
            assert got.tolist() == want.tolist()
        else:
            wide = want.astype(np.float64)
            np.testing.assert_allclose(got.astype(np.float64), wide, rtol=rtol, atol=rtol * np.abs(wide).max(initial=0))
