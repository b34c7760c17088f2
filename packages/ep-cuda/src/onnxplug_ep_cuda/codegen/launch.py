"""What generated kernels of one node are, as data: text, operands, scalars, extents. Nothing here needs CUDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, element_of
from onnxplug_kernel_text.types import OF_ELEMENT


@dataclass(frozen=True)
class Ref:
    """An argument that is a tensor: the operand's number (inputs, then outputs, then the workspace), the size of its elements in bytes,
    and an offset in elements."""

    number: int
    size: int
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch: function ``name`` of ``text`` (behind the prelude) on that many blocks of ``block`` threads."""

    text: str
    name: str
    tensors: tuple[Ref, ...]
    scalars: tuple[np.generic, ...]
    grid: int
    block: int


@dataclass(frozen=True)
class Job:
    """Launches in order, and the bytes of scratch memory they share."""

    launches: Sequence[Launch] = field(default_factory=tuple)
    workspace: int = 0


@dataclass(frozen=True)
class Call:
    """A node with the shapes of one plan."""

    op_type: str
    version: int
    attributes: Mapping[str, Any]
    inputs: Sequence[TensorSpec | None]
    outputs: Sequence[TensorSpec | None]

    @classmethod
    def of(cls, node: NodeView, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec | None]) -> Call:
        """The call of a node."""
        return cls(node.op_type, node.since_version, node.attributes, inputs, outputs)

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


def text_type(dtype: np.dtype) -> str:
    """A dtype's name in kernel text, empty where there is none."""
    try:
        return OF_ELEMENT.get(element_of(dtype), "")
    except KeyError:
        return ""


def integers(*numbers: int) -> tuple[np.generic, ...]:
    """Scalars of type i64."""
    return tuple(np.int64(n) for n in numbers)
