"""The provider of one session: Relu and Add of float tensors; Mul is declined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import (
    Allocator,
    Buffer,
    Claim,
    DataTransfer,
    Decline,
    ExecutionProvider,
    GraphView,
    Inline,
    Into,
    Kernel,
    KernelDef,
    KernelLookup,
    KernelRegistry,
    NodeView,
    TensorSpec,
)
from onnxplug_acme.memory import AcmeAllocator, AcmeTensor, AcmeTransfer, tensor

FLOAT = {"T": frozenset({"tensor(float)"})}


class AcmeKernel(Kernel):
    """A kernel in both forms: returning a fresh tensor, and writing into one of a known shape."""

    def __init__(self, compute: Callable[..., np.ndarray]) -> None:
        self._compute = compute

    def __call__(self, *inputs: AcmeTensor) -> AcmeTensor:
        numbers = self._compute(*(i.numbers() for i in inputs))
        output = tensor(numbers.dtype, numbers.shape)
        output.numbers()[...] = numbers
        return output

    def bind(self, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Into:
        return Into(self._write)

    def _write(self, *operands: AcmeTensor) -> None:
        *inputs, output = operands
        output.numbers()[...] = self._compute(*(i.numbers() for i in inputs))


def relu(node: NodeView) -> Kernel:
    """max(x, 0)"""
    return AcmeKernel(lambda x: np.maximum(x, np.float32(0)))


def add(node: NodeView) -> Kernel:
    """a + b"""
    return AcmeKernel(np.add)


class AcmeProvider(ExecutionProvider):
    """Everything on the one device."""

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(
            [KernelDef("", "Relu", 14, relu, types=FLOAT), KernelDef("", "Add", 14, add, types=FLOAT)]
        )

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        for node in graph.nodes:
            if node.op_type == "Mul":
                yield Decline(node, "the Anvil 1 has no multiplier")
            elif isinstance(kernels.kernel_for(node), KernelDef):
                yield Claim([node])

    def create_allocators(self) -> Sequence[Allocator]:
        return [AcmeAllocator()]

    def get_data_transfer(self) -> DataTransfer:
        return AcmeTransfer()

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        return AcmeTensor(buffer.handle, buffer.offset + offset, dtype, shape)
