"""A group and the shapes of its values, as launches: nodes of one output shape are one kernel, the first of them behind the group's
product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxplug.contract import NodeView, Storage, assign_offsets
from onnxplug_ep_opencl.fuse.groups import element
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.expression import statements
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.types import OF_ELEMENT, SIZES, arithmetic, literal

LONGEST = 24
"""Nodes of one kernel: more would neither keep their values in registers nor surely their operands in 1 kB of arguments."""


@dataclass(frozen=True)
class Group:
    """Element-wise ``nodes``; the shapes of all values; constants of one element as ``literals``; where the group's inputs, outputs and
    other constants are. ``head`` is the name of a product's result, with the product. ``workspace`` is its number among the operands."""

    nodes: Sequence[NodeView]
    shapes: Mapping[str, tuple[int, ...]]
    literals: Mapping[str, float]
    places: Mapping[str, Ref]
    outputs: Sequence[str]
    head: tuple[str, Product] | None
    workspace: int


@dataclass
class _Stage:
    """Nodes of one output shape that become one kernel, and the values it must write."""

    shape: tuple[int, ...]
    nodes: list[NodeView] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Text:
    """Statements of a stage, which tensors they read and which variables hold what leaves it, with types in kernel text."""

    read: Mapping[str, str]
    lines: Sequence[str]
    results: Mapping[str, str]


def output_shapes(nodes: Sequence[NodeView], given: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all values of element-wise nodes. ValueError where operands do not fit."""
    shapes = dict(given)
    for node in nodes:
        names = [value.name for value in node.inputs if value is not None]
        if node.op_type in ("CastLike", "PRelu"):  # whose other operand does not decide the shape
            np.broadcast_shapes(*(shapes[name] for name in names))
            names = names[:1]
        shapes[_made(node)] = np.broadcast_shapes(*(shapes[name] for name in names))
    return shapes


def lower(target: Target, group: Group) -> Job:
    """The launches of a group."""
    stages = _stages(group)
    where, total = _places(group, stages)
    launches: list[Launch] = []
    scratch = 0
    for number, stage in enumerate(stages):
        if 0 in stage.shape:
            continue
        if number == 0 and group.head is not None:
            joined = _behind(group, stage, where)
            product = joined or _alone(group, where)
            job = multiply(target, "product", product, Ref(group.workspace, 1, total))
            launches += job.launches
            scratch = job.workspace
            if joined is not None:
                continue
        if stage.nodes:
            launches += _elementwise(target, group, stage, f"chain{number}", where)
    return Job(launches, total + scratch)


def _stages(group: Group) -> list[_Stage]:
    """Nodes sorted into stages such that what a node reads is made in its own stage or an earlier one. The first is the head's."""
    stages: list[_Stage] = []
    home: dict[str, int] = {}
    types: dict[str, str] = {}
    if group.head is not None:
        name, product = group.head
        stages.append(_Stage(group.shapes[name]))
        home[name], types[name] = 0, product.out.element
    for node in group.nodes:
        name, reads = _made(node), [value.name for value in node.inputs if value is not None]
        shape = group.shapes[name]
        earliest = max((home.get(read, 0) for read in reads), default=0)
        at = next(
            (n for n in range(earliest, len(stages)) if stages[n].shape == shape and len(stages[n].nodes) < LONGEST),
            len(stages),
        )
        if at == len(stages):
            stages.append(_Stage(shape))
        stages[at].nodes.append(node)
        home[name], types[name] = at, OF_ELEMENT[str(element(node.outputs[0]))]
        for read in reads:
            if home.get(read, at) != at:
                stages[home[read]].leaves[read] = types[read]
    for name in group.outputs:
        stages[home[name]].leaves[name] = types[name]
    return stages


def _places(group: Group, stages: Sequence[_Stage]) -> tuple[dict[str, Ref], int]:
    """Where every value is that a kernel reads or writes, and the bytes of the workspace that takes."""
    storages: dict[str, Storage] = {}
    sizes: dict[str, int] = {}
    for number, stage in enumerate(stages):
        inner = {name: SIZES[type_] for name, type_ in stage.leaves.items() if name not in group.places}
        if number == 0 and group.head is not None and group.head[0] not in group.places:
            inner[group.head[0]] = SIZES[group.head[1].out.element]  # where the product is not joined with what follows
        for name, size in inner.items():
            storages[name] = Storage(math.prod(group.shapes[name]) * size, number, number)
        sizes |= inner
        for node in stage.nodes:
            for value in node.inputs:
                if value is not None and value.name in storages:
                    storages[value.name].last = number
    total = assign_offsets(list(storages.values()), ALIGNMENT)
    inside = {n: Ref(group.workspace, sizes[n], s.offset // sizes[n]) for n, s in storages.items()}
    return {**group.places, **inside}, total


def _text(group: Group, stage: _Stage, letter: str, first: int, known: dict[str, str]) -> _Text:
    """The statements of a stage, whose operands are called ``letter`` and a number from ``first`` on."""
    read: dict[str, str] = {}
    lines: list[str] = []
    for number, node in enumerate(stage.nodes):
        given = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
        values, types = [], []
        for value in given:
            assert value is not None
            type_ = OF_ELEMENT[str(element(value))]
            if value.name in group.literals:
                known[value.name] = literal(group.literals[value.name], type_)
            elif value.name not in known:
                known[value.name] = f"{letter}{first + len(read)}"
                read[value.name] = type_
            values.append(known[value.name])
            types.append(type_)
        if node.op_type == "Clip":
            values += [""] * (3 - len(values))
        result = OF_ELEMENT[str(element(node.outputs[0]))]
        lines += statements(f"t{number}", node.op_type, values, types, result, node.attributes)
        known[_made(node)] = f"t{number}"
    return _Text(read, lines, {name: known[name] for name in stage.leaves})


def _behind(group: Group, stage: _Stage, where: Mapping[str, Ref]) -> Product | None:
    """The product with its stage computed on the way out; None where operands do not lie so, or more leaves it than one tensor of its
    type."""
    assert group.head is not None
    name, product = group.head
    if set(stage.leaves.values()) != {product.out.element} or len(stage.leaves) != 1:
        return None
    text = _text(group, stage, "e", len(product.others), {name: "made_"})
    others: list[Side] = list(product.others)
    for read, type_ in text.read.items():
        side = product.side(where[read], type_, broadcast(group.shapes[read], stage.shape))
        if side is None:
            return None
        others.append(side)
    ((leaf, result),) = text.results.items()
    body = f"{product.body} const {arithmetic(product.out.element)} made_ = y; {' '.join(text.lines)} y = {result};"
    return replace(product, others=others, body=body, out=replace(product.out, ref=where[leaf]))


def _alone(group: Group, where: Mapping[str, Ref]) -> Product:
    assert group.head is not None
    name, product = group.head
    return replace(product, out=replace(product.out, ref=where[name]))


def _elementwise(target: Target, group: Group, stage: _Stage, name: str, where: Mapping[str, Ref]) -> list[Launch]:
    text = _text(group, stage, "x", 0, {})
    walks = [broadcast(group.shapes[read], stage.shape) for read in text.read]
    walks += [dense(stage.shape)] * len(text.results)
    stores = [f"y{n} = {variable};" for n, variable in enumerate(text.results.values())]
    return launch(
        target,
        name,
        [(where[read], type_) for read, type_ in text.read.items()],
        [(where[made], stage.leaves[made]) for made in text.results],
        space(stage.shape, walks),
        " ".join([*text.lines, *stores]),
    )


def _made(node: NodeView) -> str:
    output = node.outputs[0]
    assert output is not None
    return output.name
