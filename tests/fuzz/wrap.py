"""Puts some nodes of a program into an If, a Loop, a Scan or a function, so that the program means the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper
from operators.model import type_proto

from fuzz.program import Program, captured


def wrap(chance: random.Random, program: Program) -> None:
    """Wrap a piece of the program, where there is one that can be."""
    if not program.nodes:
        return
    start = chance.randrange(len(program.nodes))
    piece = program.nodes[start : start + chance.choice((1, 2, 4, 8))]
    made = [name for node in piece for name in node.output if name]
    if not all(isinstance(program.values.get(name), np.ndarray) for name in made):
        return
    read = {name for name in captured(piece) if name not in made}
    replaced = chance.choice((_if, _loop, _carried, _function))(chance, program, piece, sorted(read), made)
    program.nodes[start : start + len(piece)] = replaced


def _infos(program: Program, names: list[str], renamed: str = "") -> list[Any]:
    return [helper.make_value_info(renamed + name, type_proto(program.types[name])) for name in names]


def _inner(piece: list[NodeProto], made: list[str], prefix: str) -> list[NodeProto]:
    """The nodes with names of their own for what they make."""
    nodes = []
    for node in piece:
        copy = NodeProto()
        copy.CopyFrom(node)
        for side in (copy.input, copy.output):
            side[:] = [prefix + name if name in made else name for name in side]
        nodes.append(copy)
    return nodes


def _body(
    program: Program, piece: list[NodeProto], made: list[str], prefix: str, inputs: list[Any], first: list[Any]
) -> GraphProto:
    return helper.make_graph(_inner(piece, made, prefix), "body", inputs, first + _infos(program, made, prefix))


def _if(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """Both branches are the piece, or the other one gives something else."""
    taken = chance.random() < 0.5
    condition = program.give(np.array(taken), chance.random() < 0.5)
    prefix = f"if{len(program.values)}_"
    branches = [_body(program, piece, made, f"{prefix}{side}_", [], []) for side in "te"]
    return [helper.make_node("If", [condition], made, then_branch=branches[0], else_branch=branches[1])]


def _loop(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """Every turn does the same; one of what they stack is taken."""
    turns = chance.choice((1, 2, 3))
    count, prefix = program.give(np.array(turns), chance.random() < 0.5), f"lo{len(program.values)}_"
    inputs = _counters(prefix)
    nodes = [helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}on"])]
    body = _body(program, piece, made, prefix, inputs, [helper.make_tensor_value_info(f"{prefix}on", 9, [])])
    body.node.extend(nodes)
    which = program.give(np.array(chance.randrange(turns)), fixed=True)
    stacked = [f"{prefix}all_{name}" for name in made]
    loop = helper.make_node("Loop", [count, ""], stacked, body=body)
    return [
        loop,
        *(helper.make_node("Gather", [s, which], [name], axis=0) for s, name in zip(stacked, made, strict=True)),
    ]


def _carried(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """What the piece makes is carried, and read by nobody; it begins as something of another kind of contents."""
    prefix = f"ca{len(program.values)}_"
    start = [
        program.give(np.zeros(program.values[n].shape, program.values[n].dtype), chance.random() < 0.5) for n in made
    ]
    count = program.give(np.array(chance.choice((1, 2))), chance.random() < 0.5)
    inputs = _counters(prefix) + _infos(program, made, f"{prefix}in_")
    body = _body(program, piece, made, prefix, inputs, [helper.make_tensor_value_info(f"{prefix}on", 9, [])])
    body.node.append(helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}on"]))
    return [helper.make_node("Loop", [count, "", *start], made, body=body)]


def _counters(prefix: str) -> list[Any]:
    return [helper.make_tensor_value_info(f"{prefix}i", 7, []), helper.make_tensor_value_info(f"{prefix}go", 9, [])]


def _function(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """A function of the model's own."""
    name = f"F{len(program.functions)}"
    imports = [
        helper.make_opsetid("", program.opset),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("local", 1),
    ]
    program.functions.append(helper.make_function("local", name, read, made, piece, imports))
    return [helper.make_node(name, read, made, domain="local")]
