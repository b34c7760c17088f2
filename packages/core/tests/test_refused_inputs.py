"""Inputs that a specification forbids: InvalidArgument with onnxruntime's words when a kernel refuses them, Fail for its faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import offered

import onnxplug
from onnxplug.contract import ExecutionProvider, KernelDef, KernelRegistry, NodeView
from onnxplug.contract.errors import Fail, InvalidArgument

X = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("node", "feeds"),
    [
        ("float[P, Q] y) => (z) { z = MatMul (x, y) }", {"y": X}),
        ("float[P, Q] y) => (z) { z = Add (x, y) }", {"y": X[:2]}),
        ("int64[P] y) => (z) { z = Reshape (x, y) }", {"y": np.array([5])}),
        ("int64[P] y) => (z) { z = Gather (x, y) }", {"y": np.array([3])}),
        ("int64[P] y) => (z) { z = ReduceSum (x, y) }", {"y": np.array([2])}),
    ],
)  # fmt: skip
def test_kernels_refuse(node: str, feeds: dict[str, np.ndarray]) -> None:
    op_type = node.split("z = ")[1].split()[0]
    session = onnxplug.InferenceSession(model(f"g (float[N, M] x, {node}"), providers=["CPUExecutionProvider"])
    words = (
        rf"Non-zero status code returned while running {op_type} node\. Name:'{op_type}_0' Status Message: \w+Error: "
    )
    with pytest.raises(InvalidArgument, match=r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : " + words):
        session.run(None, {"x": X, **feeds})


class Raising(ExecutionProvider):
    """Its Relu raises what the input says."""

    kinds = (ValueError, TypeError, IndexError, RuntimeError, KeyError, ZeroDivisionError)

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry([KernelDef("", "Relu", 14, self.create)])

    def create(self, node: NodeView) -> Any:
        def relu(x: np.ndarray) -> np.ndarray:
            raise self.kinds[int(x[0])]("no")

        return relu


@pytest.mark.parametrize("kind", Raising.kinds)
def test_which_errors_are_refusals(kind: type[Exception]) -> None:
    with offered(RaisingProvider=Raising):
        session = onnxplug.InferenceSession(
            model("g (float[1] x) => (y) { y = Relu (x) }"), providers=["RaisingProvider"]
        )
    wanted = InvalidArgument if kind in (ValueError, TypeError, IndexError) else Fail
    with pytest.raises(
        wanted, match=rf"running Relu node.*{kind.__name__}: '?no'? \(provider RaisingProvider\)"
    ) as raised:
        session.run(None, {"x": np.array([Raising.kinds.index(kind)], np.float32)})
    assert isinstance(raised.value.__cause__, kind)
