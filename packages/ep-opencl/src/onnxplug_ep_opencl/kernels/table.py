"""What is claimed: operators, versions, types, and the lowering of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, Lower
from onnxplug_ep_opencl.kernels.elementwise import arithmetics
from onnxplug_ep_opencl.launch import Job

FLOATS = ("float16", "bfloat16", "float", "double")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, "bool")
LARGEST_ARITY = 16
"""Operands of one kernel: devices need not take more than 1 kB of arguments."""


def _nothing(call: Call) -> Job:
    return Job()


@dataclass(frozen=True)
class Entry:
    """One operator over a range of schema versions. ``create`` makes kernels that do not launch anything; ``refuse`` says why a node is
    declined all the same; ``alias``: the output shows the input's bytes."""

    op_type: str
    since: int
    until: int
    types: Mapping[str, Sequence[str]]
    lower: Lower = _nothing
    host_inputs: Sequence[int] = ()
    host_outputs: Sequence[int] = ()
    inplace: tuple[int, ...] = ()
    alias: bool = False
    create: Callable[[NodeView], Any] | None = None
    refuse: Callable[[NodeView], str | None] | None = field(default=None)


def _many(node: NodeView) -> str | None:
    if len(node.inputs) > LARGEST_ARITY:
        return f"{len(node.inputs)} operands; a kernel takes {LARGEST_ARITY}"
    return None


def _elementwise() -> list[Entry]:
    made: list[Entry] = []

    def each(names: str, since: int, until: int, *, arity: int = 1, refuse: Any = None, **types: Sequence[str]) -> None:
        inplace = tuple(range(arity))
        made.extend(Entry(n, since, until, types, arithmetics, inplace=inplace, refuse=refuse) for n in names.split())

    each("Add Sub Mul Div", 1, 14, arity=2, T=NUMBERS)
    each("Mod", 10, 28, arity=2, T=NUMBERS)
    each("Pow", 1, 15, arity=2, T=FLOATS, T1=NUMBERS)
    each("And Or Xor", 1, 7, arity=2, T=("bool",))
    each("Not", 1, 1, T=("bool",))
    each("Equal", 1, 19, arity=2, T=ALL)
    each("Less Greater", 1, 13, arity=2, T=NUMBERS)
    each("LessOrEqual GreaterOrEqual", 12, 16, arity=2, T=NUMBERS)
    each("BitwiseAnd BitwiseOr BitwiseXor", 18, 18, arity=2, T=INTEGERS)
    each("BitwiseNot", 18, 18, T=INTEGERS)
    each("BitShift", 11, 28, arity=2, T=UNSIGNED)
    each("Sum Mean", 1, 13, arity=2, refuse=_many, T=FLOATS)
    each("Max Min", 1, 13, arity=2, refuse=_many, T=NUMBERS)
    each("Where", 9, 16, arity=3, B=("bool",), T=ALL)
    each("Cast", 1, 28, T1=ALL, T2=ALL)
    each("CastLike", 15, 25, T1=ALL, T2=ALL)
    each("Abs Neg", 1, 13, T=NUMBERS)
    each("Sign", 9, 13, T=NUMBERS)
    each("Reciprocal Sqrt Exp Floor Ceil Log Sigmoid Tanh", 1, 13, T=FLOATS)
    each("Erf", 9, 13, T=FLOATS)
    each("Round", 11, 22, T=FLOATS)
    each("Sin Cos Tan Asin Acos Atan", 7, 22, T=FLOATS)
    each("Sinh Cosh Asinh Acosh Atanh", 9, 22, T=FLOATS)
    each("IsNaN", 9, 20, T1=FLOATS, T2=("bool",))
    each("IsInf", 10, 20, T1=FLOATS, T2=("bool",))
    each("Relu", 1, 14, T=(*FLOATS, *SIGNED))
    each("Softplus Softsign", 1, 22, T=FLOATS)
    each("Mish", 18, 22, T=FLOATS)
    each("HardSigmoid Elu Selu", 1, 22, T=FLOATS)
    each("HardSwish", 14, 22, T=FLOATS)
    each("Celu", 12, 28, T=FLOATS)
    each("Gelu", 20, 20, T=FLOATS)
    each("Swish", 24, 24, T=FLOATS)
    each("LeakyRelu", 1, 16, T=FLOATS)
    each("PRelu", 7, 16, arity=2, T=FLOATS)
    each("ThresholdedRelu", 10, 22, T=FLOATS)
    each("Shrink", 9, 9, T=NUMBERS)
    each("Clip", 1, 13, T=NUMBERS)
    return made


def _shape(node: NodeView) -> Callable[[Any], np.ndarray]:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return lambda x: np.array(x.shape[start:end], np.int64)


def _size(node: NodeView) -> Callable[[Any], np.ndarray]:
    return lambda x: np.array(x.size, np.int64)


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every entry of every family."""
    shapes = [
        Entry("Shape", 1, 25, {"T": ALL}, host_outputs=(0,), create=_shape),
        Entry("Size", 1, 25, {"T": ALL}, host_outputs=(0,), create=_size),
    ]
    return (*_elementwise(), *shapes)
