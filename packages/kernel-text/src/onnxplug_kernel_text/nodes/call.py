"""A node whose shapes are known, and its operands as arguments of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug.contract import TensorSpec


@dataclass(frozen=True)
class Ref:
    """An argument that is a tensor: the operand's number (inputs, then outputs, then the workspace; a provider may give negative ones to
    what it owns), the size of its elements in bytes, and an offset in elements."""

    number: int
    size: int
    offset: int = 0


class ValueWanted(Exception):
    """The value of a host input was asked for that nobody knows yet."""


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

    def value(self, index: int) -> np.ndarray | None:
        """The value of a host input, None for one that is omitted. ``ValueWanted`` where only a run knows it."""
        spec = self.given(index)
        if spec is not None and spec.constant is None:
            raise ValueWanted
        return None if spec is None else spec.constant

    def numbers(self, index: int, attribute: str) -> list[int] | None:
        """Integers that are a host input in newer versions and an attribute in older ones."""
        found = self.value(index)
        if found is not None:
            return [int(n) for n in found.reshape(-1)]
        given = self.attributes.get(attribute)
        return None if given is None else [int(n) for n in given]

    def read(self, index: int, offset: int = 0) -> Ref:
        """An input as a kernel's argument, from an element on."""
        return Ref(index, self.input(index).dtype.itemsize, offset)

    def write(self, index: int = 0, offset: int = 0) -> Ref:
        """An output as a kernel's argument, from an element on."""
        return Ref(len(self.inputs) + index, self.output(index).dtype.itemsize, offset)

    def scratch(self, size: int, offset: int = 0) -> Ref:
        """The workspace as a kernel's argument, in elements of ``size`` bytes."""
        return Ref(len(self.inputs) + len(self.outputs), size, offset)
