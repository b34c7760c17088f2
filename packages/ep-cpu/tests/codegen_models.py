"""Small models through a session, and the assertion that their nodes really became native regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxplug
from onnxplug_ep_cpu.codegen import capability


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    types: Mapping[str, int] | None = None,
    symbolic: bool = False,
) -> ModelProto:
    """A model of nodes; ``types`` are the element types of outputs that are not float32."""
    given = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{i}" if symbolic else n for i, n in enumerate(array.shape)],
        )
        for name, array in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, (types or {}).get(n, TensorProto.FLOAT), None) for n in outputs]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", given, made, held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def row(n: int, seed: int = 0) -> np.ndarray:
    """float32 numbers of a normal distribution, the same for a seed."""
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def session(proto: ModelProto, threads: int = 2, codegen: bool = True) -> onnxplug.InferenceSession:
    """A session of the CPU provider."""
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("ep.cpu.codegen", str(int(codegen)))
    with mock.patch.object(capability, "SMALLEST", 1):  # a single light node is not left to NumPy
        return onnxplug.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_native(
    proto: ModelProto, feeds: Mapping[str, np.ndarray], native: int | None = None, threads: int = 2
) -> list[np.ndarray]:
    """The results; ``native`` nodes (default: all) must be in native regions."""
    made = session(proto, threads)
    explained = made.explain()
    inside = [node for node in explained.nodes if str(node["region"]).startswith("native")]
    assert len(inside) >= (len(explained.nodes) if native is None else native), explained
    return list(made.run(None, dict(feeds)))


def run_numpy(proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The results of the NumPy kernels."""
    with np.errstate(all="ignore"):
        return list(session(proto, codegen=False).run(None, dict(feeds)))


def check(
    proto: ModelProto,
    feeds: Mapping[str, np.ndarray],
    native: int | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-6,
) -> list[np.ndarray]:
    """Native results, equal to those of the NumPy kernels within the tolerance."""
    got = run_native(proto, feeds, native)
    for a, b in zip(got, run_numpy(proto, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return got
