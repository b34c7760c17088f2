"""What generated kernels of one node are, as data: text, operands, scalars, extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxplug.contract import element_of
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.layout import Space, Strides, space
from onnxplug_kernel_text.nodes.call import Ref
from onnxplug_kernel_text.types import OF_ELEMENT, arithmetic, raw


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
class Pass:
    """An element-wise kernel: its operands with their types, a space with the strides of its inputs and then its output, and what it does
    at each point, as ``elementwise`` takes it."""

    inputs: Sequence[tuple[Ref, str]]
    output: tuple[Ref, str]
    walked: Space
    body: str

    def launch(self, name: str, block: int) -> Launch:
        """A thread for each point."""
        typed = [*self.inputs, self.output]
        operands = [Operand(type_, pattern) for (_, type_), pattern in zip(typed, self.walked.patterns, strict=True)]
        text = elementwise(name, operands[:-1], operands[-1:], self.body, index="i64")
        refs, scalars = tuple(ref for ref, _ in typed), integers(*self.walked.scalars)
        return Launch(text, name, refs, scalars, -(-self.walked.points // block), block)


def copied(source: Ref, to: Ref, shape: Sequence[int], walks: tuple[Strides, Strides]) -> Pass:
    """Elements of one tensor to places of another: ``walks`` are the strides of reading and of writing over ``shape``."""
    type_ = raw(source.size)
    return Pass([(source, type_)], (to, type_), space(shape, walks), "y0 = x0;")


def filled(to: Ref, type_: str, count: int, value: str) -> Pass:
    """The same value everywhere."""
    return Pass([], (to, type_), space((count,), [(1,)]), f"y0 = ({arithmetic(type_)}){value};")


def text_type(dtype: np.dtype) -> str:
    """A dtype's name in kernel text, empty where there is none."""
    try:
        return OF_ELEMENT.get(element_of(dtype), "")
    except KeyError:
        return ""


def integers(*numbers: int) -> tuple[np.generic, ...]:
    """Scalars of type i64."""
    return tuple(np.int64(n) for n in numbers)
