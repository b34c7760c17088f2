"""If, Loop and Scan with small bodies that choose, swap and stack values of any type."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, defs, helper

from operators.case import Case, Draw, strategy
from operators.model import type_proto
from operators.strategies.shape import value_of
from operators.values import element_name

Operands = list[tuple[str, str]]
"""Names and type strings."""


def copied(d: Draw, text: str) -> bool:
    """Whether Identity takes this type in this version of ONNX."""
    return text in defs.get_schema("Identity", d.version).inputs[0].types


def body(nodes: list[NodeProto], inputs: Operands, outputs: Operands) -> GraphProto:
    """A nested graph."""
    infos = [[helper.make_value_info(name, type_proto(text)) for name, text in side] for side in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *infos)


def same(source: str, target: str) -> NodeProto:
    return helper.make_node("Identity", [source], [target])


@strategy("If")
def if_(d: Draw) -> Case:
    """One of two captured values; a sequence is made in the branch where Identity takes tensors only."""
    text = d.type("V")
    made = (
        text.startswith("seq(")
        and not copied(d, text)
        and text[4:-1] in defs.get_schema("SequenceConstruct", 11).inputs[0].types
    )
    inner = text[4:-1] if made else text
    names = ("a", "b")
    captures = {name: (inner, value_of(d, inner)) for name in names}
    branches = [
        body(
            [helper.make_node("SequenceConstruct", [n, n], [f"{n}_out"]) if made else same(n, f"{n}_out")],
            [],
            [(f"{n}_out", text)],
        )
        if made or copied(d, text)
        else body([], [], [(n, text)])
        for n in names
    ]
    condition = np.array(d.pick(True, False), bool)
    if d.flag():
        condition = condition.reshape(1)
    return Case([condition], {"then_branch": branches[0], "else_branch": branches[1]}, captures=captures)


@strategy("Loop")
def loop(d: Draw) -> Case:
    """Two values that change places in every trip, and the trips' numbers stacked; a condition may end it early."""
    text = d.type("V")
    direct = not copied(d, text)
    a, b = value_of(d, text), value_of(d, text)
    trips, early = d.pick(3, 0, 2, 1), d.flag()
    inputs = [("i", "tensor(int64)"), ("going", "tensor(bool)"), ("a", text), ("b", text)]
    nodes = [same("i", "i_out")] + ([] if direct else [same("b", "first"), same("a", "second")])
    swapped = ("b", "a") if direct else ("first", "second")
    if early:
        float_: Any = "FLOAT" if d.version == 1 else 1
        nodes += [helper.make_node("Constant", [], ["one"], value=helper.make_tensor("one", 1, [], [1.0]))]
        nodes += [
            helper.make_node("Cast", ["i"], ["i_float"], to=float_),
            helper.make_node("Less", ["i_float", "one"], ["on"]),
        ]
    else:
        nodes += [same("going", "on")]
    outputs = [("on", "tensor(bool)"), (swapped[0], text), (swapped[1], text), ("i_out", "tensor(int64)")]
    limit = np.array(trips, np.int64)
    going = np.array(d.pick(True, False) if not early else True) if d.flag() else None
    if d.flag():
        limit = limit.reshape(1)
    types = {"in2": text, "in3": text, "out0": text, "out1": text, "out2": "tensor(int64)"}
    attributes = {"body": body(nodes, inputs, outputs)}
    return Case([limit, going, a, b], attributes, 3, types=types)


@strategy("Scan")
def scan(d: Draw) -> Case:
    """The state is the element before; states are stacked, in either direction, along any axis."""
    element = element_name(d.type("V"))
    text = f"tensor({element})"
    shape, steps = d.shape(0, 2, sizes=(3, 2, 1)), d.integer(1, 3)
    graph = body(
        [same("element", "state_out"), same("state", "stacked")],
        [("state", text), ("element", text)],
        [("state_out", text), ("stacked", text)],
    )
    attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": 1}
    types = {"in0": text, "in1": text, "out0": text, "out1": text}
    if d.version == 8:
        batch = d.integer(1, 2)
        lengths = d.rng.integers(1, steps + 1, batch).astype(np.int64) if d.flag() else None
        attributes |= {"directions": [1]} if d.flag() else {}
        types = {"in0": "tensor(int64)", "in1": text, "in2": text, "out0": text, "out1": text}
        return Case(
            [lengths, d.tensor((batch, *shape), element), d.tensor((batch, steps, *shape), element)],
            attributes,
            2,
            types=types,
        )
    axis_in, axis_out = d.integer(0, len(shape)), d.integer(0, len(shape))
    if axis_in or d.flag():
        attributes["scan_input_axes"] = [axis_in - (len(shape) + 1 if d.version >= 11 and d.flag() else 0)]
    if axis_out or d.flag():
        attributes["scan_output_axes"] = [axis_out - (len(shape) + 1 if d.version >= 11 and d.flag() else 0)]
    for name in ("scan_input_directions", "scan_output_directions"):
        if d.flag():
            attributes[name] = [1]
    scanned = (*shape[:axis_in], steps, *shape[axis_in:])
    return Case([d.tensor(shape, element), d.tensor(scanned, element)], attributes, 2, types=types)
