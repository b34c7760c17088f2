"""What generated kernels of one node are, as data: text, operands, scalars, extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxplug.contract import element_of
from onnxplug_kernel_text.layout import Space
from onnxplug_kernel_text.nodes.call import Ref
from onnxplug_kernel_text.types import OF_ELEMENT


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


def text_type(dtype: np.dtype) -> str:
    """A dtype's name in kernel text, empty where there is none."""
    try:
        return OF_ELEMENT.get(element_of(dtype), "")
    except KeyError:
        return ""


def integers(*numbers: int) -> tuple[np.generic, ...]:
    """Scalars of type i64."""
    return tuple(np.int64(n) for n in numbers)
