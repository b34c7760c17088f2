"""A node whose shapes are known, and its operands as arguments of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug.contract import TensorSpec


@dataclass(frozen=True)
class Ref:
    """An argument that is a tensor: the operand's number (inputs, then outputs, then the workspace; a provider may give negative ones to
    what it owns), the size of its elements in bytes, and an offset in elements."""

    number: int
    size: int
    offset: int = 0


@dataclass(frozen=True)
class NodeCall:
    """A node with the shapes of one plan."""

    op_type: str
    version: int
    attributes: Mapping[str, Any]
    inputs: Sequence[TensorSpec | None]
    outputs: Sequence[TensorSpec | None]

    def given(self, index: int) -> TensorSpec | None:
        """An input's spec, None for one that is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def wanted(self, index: int) -> TensorSpec | None:
        """An output's spec, None for one that nobody asks for."""
        return self.outputs[index] if index < len(self.outputs) else None

    def input(self, index: int) -> TensorSpec:
        """The spec of an input that must be there."""
        spec = self.inputs[index]
        assert spec is not None
        return spec

    def output(self, index: int = 0) -> TensorSpec:
        """The spec of an output that must be there."""
        spec = self.outputs[index]
        assert spec is not None
        return spec

    def read(self, index: int, offset: int = 0) -> Ref:
        """An input as a kernel's argument, from an element on."""
        return Ref(index, self.input(index).dtype.itemsize, offset)

    def write(self, index: int = 0, offset: int = 0) -> Ref:
        """An output as a kernel's argument, from an element on."""
        return Ref(len(self.inputs) + index, self.output(index).dtype.itemsize, offset)

    def scratch(self, size: int, offset: int = 0) -> Ref:
        """The workspace as a kernel's argument, in elements of ``size`` bytes."""
        return Ref(len(self.inputs) + len(self.outputs), size, offset)
