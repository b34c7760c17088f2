"""Sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy
from operators.model import type_proto
from operators.strategies.shape import value_of
from operators.values import element_name


def inner(type_: str) -> str:
    """``tensor(float)`` for ``seq(tensor(float))``."""
    return type_[type_.index("(") + 1 : -1]


def sequence(d: Draw, type_: str, count: int = 0) -> list[Any]:
    """A list of tensors of any shapes."""
    return [d.tensor(d.shape(), element_name(type_)) for _ in range(count or d.pick(2, 1, 3))]


def position(d: Draw, parameter: str, low: int, high: int) -> np.ndarray:
    return np.array(d.integer(low, high), numpy_dtype(d.element(parameter)))


@strategy("SequenceConstruct")
def construct(d: Draw) -> Case:
    if d.cell.parameter == "S":
        d.bind("T", inner(d.type("S")))
    d.bind("S", f"seq({d.type('T')})")
    return Case(sequence(d, d.type("T")))


@strategy("SequenceEmpty")
def empty(d: Draw) -> Case:
    element = element_name(d.type("S"))
    return Case([], {} if element == "float" and d.flag() else {"dtype": ELEMENT_CODES[element]})


def paired(d: Draw) -> str:
    """The tensor type of a sequence type S and a tensor type T that go together."""
    if d.cell.parameter == "T":
        d.bind("S", f"seq({d.type('T')})")
    d.bind("T", inner(d.type("S")))
    return d.type("T")


@strategy("SequenceAt")
def at(d: Draw) -> Case:
    items = sequence(d, paired(d))
    return Case([items, position(d, "I", -len(items), len(items) - 1)])


@strategy("SequenceInsert")
def insert(d: Draw) -> Case:
    items = sequence(d, paired(d))
    place = position(d, "I", -len(items), len(items)) if d.cell.parameter == "I" or d.flag() else None
    return Case([items, d.tensor(d.shape(), d.element("T")), place])


@strategy("SequenceErase")
def erase(d: Draw) -> Case:
    items = sequence(d, d.type("S"))
    return Case([items, position(d, "I", -len(items), len(items) - 1) if d.cell.parameter == "I" or d.flag() else None])


@strategy("SequenceLength")
def length(d: Draw) -> Case:
    return Case([sequence(d, d.type("S"))])


@strategy("ConcatFromSequence")
def concat(d: Draw) -> Case:
    element = element_name(paired(d))
    shape = d.shape(1, 3)
    new = d.pick(0, 1)
    axis = d.integer(-len(shape) - new, len(shape) - 1 + new)
    sizes = [
        shape if new else tuple(d.integer(0, 3) if i == axis % len(shape) else n for i, n in enumerate(shape))
        for _ in range(d.pick(2, 1, 3))
    ]
    return Case([[d.tensor(s, element) for s in sizes]], {"axis": axis, **({"new_axis": 1} if new else {})})


@strategy("SplitToSequence")
def split(d: Draw) -> Case:
    if d.cell.parameter == "S":
        d.bind("T", inner(d.type("S")))
    d.bind("S", f"seq({d.type('T')})")
    shape = d.shape(1, 3, sizes=(3, 2, 4, 5))
    axis = d.axis(len(shape))
    size = shape[axis]
    kind = d.pick("even", "list", "none") if d.cell.parameter != "I" else d.pick("even", "list")
    given = None
    if kind == "even":
        given = np.array(d.integer(1, size), numpy_dtype(d.element("I")))
    elif kind == "list":
        first = d.integer(0, size)
        given = np.array([first, size - first], numpy_dtype(d.element("I")))
    attributes = {"axis": axis} if axis or d.flag() else {}
    if kind == "none":
        attributes |= d.maybe(keepdims=d.pick(1, 0))
    return Case([d.tensor(shape, d.element("T")), given], attributes)


@strategy("SequenceMap")
def sequence_map(d: Draw) -> Case:
    """Each tensor (and the tensor at the same place of a second sequence, or one for all) through a body that hands it on."""
    if d.cell.parameter == "V":
        kind = d.type("V")
        second = kind
        d.bind("S", kind if kind.startswith("seq") else f"seq({kind})")
    else:
        second = d.pick(d.type("S"), inner(d.type("S")))
    tensor = inner(d.type("S"))
    items = sequence(d, tensor)
    other: Any = (
        sequence(d, tensor, len(items)) if second.startswith("seq") else d.tensor(d.shape(), element_name(tensor))
    )
    names = ["a", "b"]
    body = helper.make_graph(
        [helper.make_node("Identity", [n], [f"{n}_out"]) for n in names],
        "body",
        [helper.make_value_info(n, type_proto(tensor)) for n in names],
        [helper.make_value_info(f"{n}_out", type_proto(tensor)) for n in names],
    )
    types = {"in1": second, "out0": d.type("S"), "out1": d.type("S")}
    return Case([items, other], {"body": body}, 2, types=types)


@strategy("Optional")
def optional(d: Draw) -> Case:
    if d.cell.parameter == "O":
        d.bind("V", inner(d.type("O")))
    else:
        d.bind("O", f"optional({d.type('V')})")
    if d.flag():
        return Case([None], {"type": type_proto(d.type("V"))})
    return Case([value_of(d, d.type("V"))])


@strategy("OptionalHasElement")
def has_element(d: Draw) -> Case:
    type_ = d.type("O")
    if d.version >= 18 and d.cell.parameter != "O" and d.flag():
        return Case([None])
    return Case([value_of(d, type_)])


@strategy("OptionalGetElement")
def get_element(d: Draw) -> Case:
    if d.cell.parameter == "V":
        d.bind("O", f"optional({d.type('V')})" if d.version == 15 else d.pick(f"optional({d.type('V')})", d.type("V")))
    type_ = d.type("O")
    d.bind("V", inner(type_) if type_.startswith("optional(") else type_)
    return Case([value_of(d, type_)])
