"""One operator on extreme values, of sizes that fill no register, with nodes around it that move its operands and bend its results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import defs, helper
from operators.case import Case, Draw, Unfit, case_of, find_strategy
from operators.cells import Cell, schemas
from operators.model import output_types
from operators.values import HALVES

from fuzz.grow import LEFT_OUT, node_of
from fuzz.program import Program
from onnxplug.contract.types import ELEMENT_CODES, element_of
from operators import values

SIZES = (3, 2, 1, 4, 0, 5, 7, 8, 16, 17, 31, 33, 65)
MOST = 5000
"""Elements of a tensor."""
NUMBERS = (
    "float",
    "double",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)


class Extremes(Draw):
    """The choices of a seeded generator: any sizes, and what is extreme wherever the operator allows it."""

    def __init__(self, chance: random.Random, cell: Cell, special: float) -> None:
        super().__init__(lambda _: chance.getrandbits(32), cell)
        self._chance, self._special = chance, special

    def integer(self, low: int, high: int) -> int:
        return self._chance.randint(low, high)

    def shape(self, least: int = 0, most: int = 4, sizes: Sequence[int] = SIZES[:5]) -> tuple[int, ...]:
        known = tuple(sizes) == SIZES[:5]
        while True:
            rank = self._chance.randint(least, most)
            shape = tuple(self._chance.choice(SIZES if known else sizes) for _ in range(rank))
            if np.prod(shape) <= MOST:
                return shape

    def tensor(
        self, shape: Sequence[int], element: str = "", low: float | None = None, high: float | None = None, *, special: bool = False
    ) -> np.ndarray:  # fmt: skip
        special = (special or (low is None and high is None)) and self._chance.random() < self._special
        return values.random(self.rng, tuple(shape), element or self.element(), low, high, special=special)


def corner(chance: random.Random, opset: int) -> tuple[Program, list[str]]:
    """A program and its outputs."""
    while True:
        cell = _cell(chance, opset)
        strategy = find_strategy("", cell.op_type) if cell else None
        if cell is None or strategy is None:
            continue
        special = chance.choice((0.0, 0.8))
        try:
            case = _drawn(chance, cell, strategy, special)
        except Unfit:
            continue
        if not (case.before or case.captures or case.verify):
            return _program(chance, opset, case)


def _cell(chance: random.Random, opset: int) -> Cell | None:
    op_type = chance.choice(
        _generated() if chance.random() < 0.8 else sorted({key[1] for key in schemas() if not key[0]} - LEFT_OUT)
    )
    if not defs.has(op_type, opset):
        return None
    version = defs.get_schema(op_type, opset).since_version
    schema = schemas()["", op_type, version]
    if schema.deprecated:
        return None
    if not schema.type_constraints:
        return Cell("", op_type, version, "", "")
    constraint = schema.type_constraints[0]
    return Cell("", op_type, version, constraint.type_param_str, chance.choice(sorted(constraint.allowed_type_strs)))


def _generated() -> list[str]:
    """Operators that machine code is generated for."""
    from onnxplug_ep_cpu.codegen.lower import FAMILIES

    return sorted({name for family in FAMILIES.values() for name in family} - LEFT_OUT)


def _drawn(chance: random.Random, cell: Cell, strategy: Any, special: float) -> Case:
    from unittest import mock

    with mock.patch("operators.case.Draw", lambda draw, cell: Extremes(chance, cell, special)):
        return case_of(lambda _: chance.getrandbits(32), cell, strategy)


def _program(chance: random.Random, opset: int, case: Case) -> tuple[Program, list[str]]:
    program = Program(opset)
    names: list[str] = []
    for index, value in enumerate(case.inputs):
        if value is None:
            names.append("")
        elif index in case.initializers:
            names.append(program.give(np.asarray(value), fixed=True))
        elif isinstance(value, np.ndarray) and chance.random() < 0.4:
            names.append(_moved(chance, program, value))
        else:
            names.append(_given(chance, program, value))
    while names and not names[-1]:
        names.pop()
    made = []
    for asked, text in zip(case.present, output_types(case), strict=True):
        made.append(_new(program, text) if asked else "")
    program.nodes.append(node_of(case, names, made))
    outputs = [name for name in made if name]
    for name in list(outputs):
        if program.types[name].startswith("tensor(") and chance.random() < 0.6:
            last = _bent(chance, program, name)
            outputs += [last]
            if chance.random() < 0.5:
                outputs.remove(name)
    return program, list(dict.fromkeys(outputs))


def _new(program: Program, text: str) -> str:
    name = f"v{len(program.values)}"
    program.values[name], program.types[name] = None, text
    return name


def _given(chance: random.Random, program: Program, value: Any) -> str:
    same = [n for n in program.inputs if program.values[n] is value]
    return same[0] if same else program.give(value, fixed=isinstance(value, np.ndarray) and chance.random() < 0.2)


def _moved(chance: random.Random, program: Program, value: np.ndarray) -> str:
    """The value behind a node that moves elements."""
    text = f"tensor({element_of(value.dtype)})"
    kind = chance.choice(("Transpose", "Reshape", "Slice", "Concat", "Cast", "Unsqueeze", "Gather", "Identity"))
    give = lambda v, fixed=False: program.give(np.ascontiguousarray(v).reshape(np.shape(v)), fixed)  # noqa: E731
    inputs: list[str]
    attributes: dict[str, Any] = {}
    if kind == "Transpose" and value.ndim > 1:
        order = list(range(value.ndim))
        chance.shuffle(order)
        inputs, attributes = [give(value.transpose(order))], {"perm": [order.index(i) for i in range(value.ndim)]}
    elif kind == "Reshape":
        inputs = [give(value.reshape(-1)), give(np.array(value.shape, np.int64), True)]
        attributes = {"allowzero": 1} if program.opset >= 14 else {}
        if not attributes and 0 in value.shape:
            return _given(chance, program, value)
    elif kind == "Slice" and value.ndim:
        axis = chance.randrange(value.ndim)
        ends = [np.array([n], np.int64) for n in (-1, -(2**31), axis, -1)]
        inputs = [give(np.flip(value, axis)), *(give(e, True) for e in ends)]
    elif kind == "Concat" and value.ndim:
        axis = chance.randrange(value.ndim)
        at = chance.randint(0, value.shape[axis])
        inputs = [give(part) for part in np.split(value, [at], axis)]
        attributes = {"axis": axis - chance.choice((0, value.ndim))}
    elif kind == "Unsqueeze":
        inputs = [give(value[None]), give(np.array([0]), True)]
        kind = "Squeeze"
    elif kind == "Gather" and value.ndim and value.shape[0]:
        order = np.random.default_rng(chance.getrandbits(16)).permutation(value.shape[0])
        inputs = [give(value[np.argsort(order)]), give(order.astype(np.int32) - chance.choice((0, value.shape[0])))]
        attributes = {"axis": 0}
    else:
        kind, inputs = "Identity", [_given(chance, program, value)]
    name = _new(program, text)
    program.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
    return name


def _bent(chance: random.Random, program: Program, name: str) -> str:
    """The result behind one or two nodes that read it."""
    for _ in range(chance.choice((1, 1, 2))):
        text = program.types[name]
        element = text[7:-1]
        if element not in (*NUMBERS, "bool"):
            return name
        ways = ["Flatten", "Concat", "Slice", "Identity"]
        ways += (
            ["Cast", "Cast"] if element not in HALVES else []
        )  # what was computed may be handed on before it is rounded
        ways += (
            ["Neg", "Abs", "Relu", "Add", "Mul", "Max"]
            if element in ("float", "double", "float16", "int32", "int64")
            else []
        )
        ways += ["Tanh", "Sigmoid", "IsNaN", "Floor", "Sign", "ReduceSum"] if element == "float" else []
        ways += ["Not"] if element == "bool" else []
        kind = chance.choice(ways)
        inputs: list[str] = [name]
        attributes: dict[str, Any] = {}
        result = text
        if kind == "Cast":
            to = (
                chance.choice((*NUMBERS, "bool"))
                if element == "bool" or "int" in element
                else chance.choice(NUMBERS[:4])
            )
            attributes, result = {"to": ELEMENT_CODES[to]}, f"tensor({to})"
        elif kind in ("Add", "Mul", "Max"):
            inputs = [name, name]
        elif kind == "Concat":
            before = program.nodes.append
            flat = _new(program, text)
            before(helper.make_node("Flatten", [name], [flat], axis=0))
            inputs, attributes = [flat, flat], {"axis": chance.choice((0, 1, -1))}
        elif kind == "Slice":
            flat = _new(program, text)
            program.nodes.append(helper.make_node("Flatten", [name], [flat], axis=0))
            steps = chance.choice((-1, -2, 2, 3))
            ends = (2**40, -(2**40)) if steps < 0 else (chance.choice((0, 1, 5)), 2**62)
            constants = [program.give(np.array([n], np.int64), fixed=True) for n in (*ends, 1, steps)]
            inputs = [flat, *constants]
        elif kind == "Flatten":
            attributes = {"axis": 0}
        elif kind == "IsNaN":
            result = "tensor(bool)"
        made = _new(program, result)
        program.nodes.append(helper.make_node(kind, inputs, [made], **attributes))
        name = made
    return name


__all__ = ["corner"]
