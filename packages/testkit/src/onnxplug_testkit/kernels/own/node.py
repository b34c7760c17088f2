"""What the kit's own structures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

from onnxplug.contract import numpy_dtype

F, H, N, S = "tensor(float)", "tensor(float16)", "tensor(int64)", "tensor(string)"
I32, U8, I8, B = "tensor(int32)", "tensor(uint8)", "tensor(int8)", "tensor(bool)"
ML, MS = "ai.onnx.ml", "com.microsoft"
FOREVER = 1 << 30
Operand = tuple[Any, str]
"""An example and the type string."""


@dataclass(frozen=True)
class OwnNode:
    """A node: its attributes, example inputs and the type strings of its operands. ``until``: the last version in which it has
    a meaning. ``elements``: the element types it may be given, of the structure's first input; all when empty. ``tied``: type parameters
    of one element change together."""

    name: str
    domain: str
    op_type: str
    version: int
    attributes: Mapping[str, AttributeProto]
    inputs: Sequence[Any]
    input_types: Sequence[str]
    output_types: Sequence[str]
    until: int = FOREVER
    elements: frozenset[str] = frozenset()
    tied: bool = False


def ramp(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Evenly spaced floats."""
    return np.linspace(low, high, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def waves(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats without order."""
    noise = (np.sin(np.arange(int(np.prod(shape))) * 12.9898) + 1) / 2
    found: np.ndarray = (noise * (high - low) + low).astype(np.float32).reshape(shape)
    return found


def ints(*values: int) -> np.ndarray:
    """A list of int64."""
    return np.array(values, np.int64)


def bytes_of(dtype: Any, *shape: int, low: int = 0, high: int = 9) -> np.ndarray:
    """Integers of a type, in no order."""
    return (np.arange(int(np.prod(shape))) * 7 % (high - low + 1) + low).astype(dtype).reshape(shape)


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    """An array without dimensions."""
    return np.array(value, dtype)


def node(
    op_type: str,
    version: int,
    inputs: Sequence[Operand],
    outputs: Sequence[str],
    domain: str = "",
    label: str = "",
    until: int = FOREVER,
    elements: str = "",
    tied: bool = False,
    **attributes: Any,
) -> OwnNode:
    """A node by its operands (value and type string; None and "" for an omitted one) and attributes."""
    kept = {
        name: helper.make_attribute(name, numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value)
        for name, value in attributes.items()
    }
    name = "_".join([op_type.lower(), str(version), *([label] if label else sorted(attributes))])
    return OwnNode(
        name, domain, op_type, version, kept, [v for v, _ in inputs], [t for _, t in inputs], list(outputs), until,
        frozenset(elements.split()), tied,
    )  # fmt: skip


GONE = (None, "")
"""An omitted operand."""


def ms(op_type: str, inputs: list[Operand], outputs: list[str], label: str = "", **attributes: Any) -> OwnNode:
    """A node of com.microsoft, whose operators all have version 1."""
    return node(op_type, 1, inputs, outputs, MS, label, **attributes)


def numbers(*values: int) -> Operand:
    """A list of int32."""
    return np.array(values, np.int32), I32


def flags(*shape: int) -> Operand:
    """A mask of zeros and ones, the first of each row one."""
    found = bytes_of(np.int32, *shape, high=1)
    found[..., 0] = 1
    return found, I32


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Operand:
    """A tensor of floats."""
    return waves(*shape, low=low, high=high), F


def scale(value: float) -> Operand:
    """A quantization scale."""
    return scalar(value), F


def numpy_like(element: str, *shape: int) -> np.ndarray:
    """Small integers of an element type that NumPy lacks."""
    return bytes_of(np.int8, *shape, low=0, high=7).astype(numpy_dtype(element))
