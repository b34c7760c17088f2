"""One operator on given inputs: by its kernel, and by onnxruntime as a model of one node."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from onnxplug_kernels import find

# Element types that the Array API standard has.
STANDARD = frozenset(
    np.dtype(t)
    for t in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64"),
    )
)


ML = "ai.onnx.ml"


@dataclass
class Case:
    """Inputs (None: omitted), attributes and tolerances of one operator; ``outputs`` of "" are not asked for."""

    domain: str
    op_type: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int | list[str] = 1
    version: int = 1
    rtol: float = 1e-4
    atol: float = 1e-5
    label: str = ""
    opset: int = 21
    """What onnxruntime is told of ONNX's own domain."""
    release: tuple[int, int] = (1, 31)
    """Of onnxruntime, the first that has the case."""

    @property
    def names(self) -> list[str]:
        return [f"y{i}" for i in range(self.outputs)] if isinstance(self.outputs, int) else self.outputs

    def __str__(self) -> str:
        return f"{self.op_type}-{self.label}" if self.label else self.op_type


def ml_case(
    op_type: str, inputs: list[Any], outputs: int = 1, version: int = 1, label: str = "", **attributes: Any
) -> Case:
    """One of an operator of ``ai.onnx.ml``."""
    return Case(ML, op_type, inputs, attributes, outputs, version, rtol=1e-4, atol=1e-6, label=label)


def by_kernel(case: Case, xp: Any = np) -> list[Any]:
    """What the kernel gives, on arrays of ``xp``, as NumPy arrays."""
    entry = find(case.domain, case.op_type, case.version)
    assert entry is not None, f"{case.op_type} is not in the catalogue"
    attributes = dict(case.attributes)
    if "n_outputs" in inspect.signature(entry.function).parameters:
        attributes["n_outputs"] = len(case.names)
    inputs = [
        x if xp is np or x is None or i in entry.host_inputs else xp.asarray(x) for i, x in enumerate(case.inputs)
    ]
    before = [np.array(x, copy=True) if isinstance(x, np.ndarray) else None for x in case.inputs]
    got = entry.function(xp, *inputs, **attributes)
    for x, copy in zip(case.inputs, before, strict=True):
        if copy is not None:
            np.testing.assert_array_equal(x, copy, err_msg="an input was written to")
    outputs = [y for name, y in zip(case.names, got if isinstance(got, tuple) else (got,), strict=False) if name]
    if xp is not np:
        assert all(type(y).__module__.startswith(xp.__name__) for y in outputs), "the kernel left its namespace"
        return [np.asarray(y) for y in outputs]
    return outputs


def by_onnxruntime(case: Case) -> list[Any]:
    """What onnxruntime's CPU provider gives."""
    runtime = pytest.importorskip("onnxruntime")
    if tuple(map(int, runtime.__version__.split(".")[:2])) < case.release:
        pytest.skip(f"onnxruntime {runtime.__version__} does not have this of {case.op_type}")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model_of(case), options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None})


def model_of(case: Case) -> bytes:
    """The case as a model of one node, whose inputs are named by their places."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    attributes = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in case.attributes.items()}
    node = helper.make_node(case.op_type, names, case.names, domain=case.domain, **attributes)
    graph = helper.make_graph(
        [node],
        case.op_type,
        [_declared(name, x) for name, x in zip(names, case.inputs, strict=True) if name],
        [ValueInfoProto(name=name) for name in case.names if name],
    )
    opsets = [helper.make_opsetid("", case.opset)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, case.version))
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _declared(name: str, x: np.ndarray) -> Any:
    code = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    return helper.make_tensor_value_info(name, code, x.shape)


def assert_equal(case: Case, got: list[Any], wanted: list[Any]) -> None:
    """Same types and shapes, and values within the case's tolerances; strings and maps exactly."""
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        if isinstance(w, list):
            assert g == w
            continue
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype == object:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(
                g.astype(np.float64), w.astype(np.float64), rtol=case.rtol, atol=case.atol, equal_nan=True
            )


def is_portable(case: Case) -> bool:
    """Whether a library with nothing but the Array API standard can run the case."""
    entry = find(case.domain, case.op_type, case.version)
    assert entry is not None
    return entry.portable and all(x is None or x.dtype in STANDARD for x in case.inputs)


def assert_portable(case: Case) -> None:
    """The kernel gives the same within such a library."""
    strict = pytest.importorskip("array_api_strict")
    assert_equal(case, by_kernel(case, strict), by_kernel(case))
