"""Puts some nodes of a program into an If, a Loop, a Scan or a function, or what they make into sequences and optionals, so that the
program means the same."""

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
    ways = [_if, _loop, _carried, _function, _scan, _listed, _collected]
    ways += [_optional] if program.opset >= 18 else []
    replaced = chance.choice(ways)(chance, program, piece, sorted(read), made)
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


def _scan(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """Every slice of a vector that only a state reads does the same; one of what they stack is taken."""
    turns, prefix = chance.choice((1, 2, 3)), f"sc{len(program.values)}_"
    sliced = program.give(np.arange(turns, dtype=np.float32), chance.random() < 0.5)
    state = program.give(np.zeros((), np.float32), chance.random() < 0.5)
    floats = [helper.make_tensor_value_info(prefix + name, 1, []) for name in ("sum", "part", "total")]
    body = _body(program, piece, made, prefix, floats[:2], floats[2:])
    body.node.append(helper.make_node("Add", [f"{prefix}sum", f"{prefix}part"], [f"{prefix}total"]))
    stacked = [f"{prefix}all_{name}" for name in made]
    axes = [chance.choice((0, -1)) if program.values[name].ndim else 0 for name in made]
    node = helper.make_node("Scan", [state, sliced], [f"{prefix}end", *stacked], body=body, num_scan_inputs=1)
    node.attribute.append(helper.make_attribute("scan_output_axes", axes))
    which = program.give(np.array(chance.randrange(turns)), fixed=True)
    taken = zip(stacked, made, axes, strict=True)
    return [node, *(helper.make_node("Gather", [s, which], [name], axis=axis) for s, name, axis in taken)]


def _listed(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """What the piece makes goes into a sequence with what is like it, and is taken out again."""
    prefix = f"se{len(program.values)}_"
    nodes = _inner(piece, made, prefix)
    for name in made:
        count, at = chance.choice((1, 2, 3)), chance.choice((0, -1))
        position = program.give(np.array(at), fixed=chance.random() < 0.5)
        nodes.append(helper.make_node("SequenceConstruct", [prefix + name] * count, [f"{prefix}in_{name}"]))
        nodes.append(
            helper.make_node("SequenceInsert", [f"{prefix}in_{name}", prefix + name, position], [f"{prefix}of_{name}"])
        )
        nodes.append(helper.make_node("SequenceAt", [f"{prefix}of_{name}", position], [name]))
    return nodes


def _collected(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """A loop carries sequences, to which each turn adds what the piece makes; they are joined, and one part is taken."""
    turns, prefix = chance.choice((1, 2, 3)), f"co{len(program.values)}_"
    count = program.give(np.array(turns), chance.random() < 0.5)
    which = program.give(np.array(chance.randrange(turns)), fixed=True)
    lists = {f"{prefix}{side}_{name}": f"seq({program.types[name]})" for side in ("old", "new") for name in made}
    infos = [helper.make_value_info(name, type_proto(text)) for name, text in lists.items()]
    nodes = _inner(piece, made, prefix)
    nodes += [
        helper.make_node("SequenceInsert", [f"{prefix}old_{name}", prefix + name], [f"{prefix}new_{name}"])
        for name in made
    ]
    nodes.append(helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}on"]))
    going = helper.make_tensor_value_info(f"{prefix}on", 9, [])
    inputs, outputs = [*_counters(prefix), *infos[: len(made)]], [going, *infos[len(made) :]]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    empty = [
        helper.make_node(
            "SequenceEmpty", [], [f"{prefix}none_{n}"], dtype=type_proto(program.types[n]).tensor_type.elem_type
        )
        for n in made
    ]
    ends = [f"{prefix}end_{name}" for name in made]
    loop = helper.make_node("Loop", [count, "", *(f"{prefix}none_{name}" for name in made)], ends, body=body)
    joined = []
    for end, name in zip(ends, made, strict=True):
        joined.append(helper.make_node("ConcatFromSequence", [end], [f"{end}_"], axis=0, new_axis=1))
        joined.append(helper.make_node("Gather", [f"{end}_", which], [name], axis=0))
    return [*empty, loop, *joined]


def _optional(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """What the piece makes goes into an optional and out of it, in a branch for when there is something in it or without asking."""
    prefix = f"op{len(program.values)}_"
    nodes = _inner(piece, made, prefix)
    for name in made:
        some, inner = f"{prefix}some_{name}", prefix + name
        nodes.append(helper.make_node("Optional", [inner], [some]))
        if chance.random() < 0.5:
            nodes.append(helper.make_node("OptionalGetElement", [some], [name]))
            continue
        info = helper.make_value_info(f"{prefix}out_{name}", type_proto(program.types[name]))
        taken, other = (
            helper.make_graph([helper.make_node(op_type, [source], [info.name])], "branch", [], [info])
            for op_type, source in (("OptionalGetElement", some), ("Identity", inner))
        )
        nodes.append(helper.make_node("OptionalHasElement", [some], [f"{prefix}has_{name}"]))
        nodes.append(helper.make_node("If", [f"{prefix}has_{name}"], [name], then_branch=taken, else_branch=other))
    return nodes


def _carried(
    chance: random.Random, program: Program, piece: list[NodeProto], read: list[str], made: list[str]
) -> list[NodeProto]:
    """What the piece makes is carried, and read by nobody; it begins as something of another kind of contents."""
    prefix = f"ca{len(program.values)}_"
    start = [program.give(_nothing(program.values[n]), chance.random() < 0.5) for n in made]
    count = program.give(np.array(chance.choice((1, 2))), chance.random() < 0.5)
    inputs = _counters(prefix) + _infos(program, made, f"{prefix}in_")
    body = _body(program, piece, made, prefix, inputs, [helper.make_tensor_value_info(f"{prefix}on", 9, [])])
    body.node.append(helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}on"]))
    return [helper.make_node("Loop", [count, "", *start], made, body=body)]


def _nothing(value: np.ndarray) -> np.ndarray:
    """Zeros or empty strings in the shape of a tensor."""
    return np.full(value.shape, "" if value.dtype == object else 0, value.dtype)


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
