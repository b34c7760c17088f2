"""What tests of the console program share: providers, models as files, answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Decline,
    ExecutionProvider,
    KernelRegistry,
    Region,
    kernel,
)

ACME, CPU, REFERENCE = "AcmeExecutionProvider", "CPUExecutionProvider", "ReferenceExecutionProvider"
FLOAT = TensorProto.FLOAT
Answer = tuple[int, str, str]
Cli = Callable[..., Answer]


@kernel("Relu", since=14)
def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


class Acme(ExecutionProvider):
    """Takes Relu, declines Add."""

    def get_kernel_registry(self) -> KernelRegistry:
        kernels = KernelRegistry()
        kernels.add(relu)
        return kernels

    def get_capability(self, graph: Any, kernels: Any) -> Iterator[Claim | Decline]:
        for node in graph.nodes:
            if node.op_type == "Relu":
                yield Claim([node])
            elif node.op_type == "Add":
                yield Decline(node, "Acme cannot add")


class Fusing(ExecutionProvider):
    """Takes everything as one region and doubles its input."""

    def get_capability(self, graph: Any, kernels: Any) -> Iterator[Claim]:
        yield Claim(graph.nodes, fused="whole")

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [Doubled() for _ in regions]


class Doubled(CompiledRegion):
    def __call__(self, context: Any, *inputs: np.ndarray) -> list[np.ndarray]:
        return [2 * inputs[0]]


def write(
    path: Path,
    nodes: list[Any],
    inputs: list[tuple[str, int, Any]],
    outputs: list[tuple[str, int, Any]],
    constants: list[Any] = (),  # type: ignore[assignment]
) -> str:
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(constants),
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return str(path)


def as_json(answer: Answer) -> tuple[int, dict[str, Any]]:
    code, out, _ = answer
    return code, json.loads(out)


def error_of(answer: Answer) -> tuple[int, dict[str, str]]:
    """Exit code and error of a ``--json`` call that failed."""
    code, document = as_json(answer)
    assert list(document) == ["error"]
    assert list(document["error"]) == ["type", "message", "hint"]
    assert all(document["error"].values())
    return code, document["error"]
