"""A group and the shapes of its values, as launches: nodes of one output shape are one kernel, the first of them behind the group's
product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes.chains import Stage, scratch, stages, text
from onnxplug_kernel_text.types import SIZES, arithmetic

LONGEST = 24
"""Nodes of one kernel: more would neither keep their values in registers nor surely their operands in 1 kB of arguments."""


@dataclass(frozen=True)
class Group:
    """Element-wise ``nodes``; the shapes of all values; constants of one element as ``literals``; where the group's inputs, outputs and
    other constants are. ``head`` is the name of a product's result, with the product. ``workspace`` is where scratch memory begins, in
    bytes."""

    nodes: Sequence[NodeView]
    shapes: Mapping[str, tuple[int, ...]]
    literals: Mapping[str, float]
    places: Mapping[str, Ref]
    outputs: Sequence[str]
    head: tuple[str, Product] | None
    workspace: Ref


def lower(target: Target, group: Group) -> Job:
    """The launches of a group, and the bytes of its workspace."""
    head = None if group.head is None else (group.head[0], group.head[1].out.element)
    staged = stages(group.nodes, group.shapes, group.outputs, LONGEST, head)
    where, total = _places(group, staged)
    launches: list[Launch] = []
    beside = 0
    for number, stage in enumerate(staged):
        if 0 in stage.shape:
            continue
        if number == 0 and group.head is not None:
            joined = _behind(group, stage, where)
            product = joined or _alone(group, where)
            job = multiply(target, "product", product, Ref(group.workspace.number, 1, total))
            launches += job.launches
            beside = job.workspace
            if joined is not None:
                continue
        if stage.nodes:
            launches += _elementwise(target, group, stage, f"chain{number}", where)
    return Job(launches, total - group.workspace.offset + beside)


def _places(group: Group, staged: Sequence[Stage]) -> tuple[dict[str, Ref], int]:
    """Where every value is that a kernel reads or writes, and the end of the workspace that takes."""
    inner = [{name: type_ for name, type_ in stage.leaves.items() if name not in group.places} for stage in staged]
    if group.head is not None and group.head[0] not in group.places:
        inner[0][group.head[0]] = group.head[1].out.element  # where the product is not joined with what follows
    offsets, total = scratch(staged, group.shapes, inner, ALIGNMENT)
    sizes = {name: SIZES[type_] for left in inner for name, type_ in left.items()}
    begin = group.workspace.offset
    inside = {n: Ref(group.workspace.number, sizes[n], (begin + offset) // sizes[n]) for n, offset in offsets.items()}
    return {**group.places, **inside}, begin + total


def _behind(group: Group, stage: Stage, where: Mapping[str, Ref]) -> Product | None:
    """The product with its stage computed on the way out; None where operands do not lie so, or more leaves it than one tensor of its
    type."""
    assert group.head is not None
    name, product = group.head
    if set(stage.leaves.values()) != {product.out.element} or len(stage.leaves) != 1:
        return None
    written = text(stage, group.literals, "e", len(product.others), {name: "made_"})
    others: list[Side] = list(product.others)
    for read, type_ in written.read.items():
        side = product.side(where[read], type_, broadcast(group.shapes[read], stage.shape))
        if side is None:
            return None
        others.append(side)
    ((leaf, result),) = written.results.items()
    body = f"{product.body} const {arithmetic(product.out.element)} made_ = y; {' '.join(written.lines)} y = {result};"
    return replace(product, others=others, body=body, out=replace(product.out, ref=where[leaf]))


def _alone(group: Group, where: Mapping[str, Ref]) -> Product:
    assert group.head is not None
    name, product = group.head
    return replace(product, out=replace(product.out, ref=where[name]))


def _elementwise(target: Target, group: Group, stage: Stage, name: str, where: Mapping[str, Ref]) -> list[Launch]:
    written = text(stage, group.literals)
    walks = [broadcast(group.shapes[read], stage.shape) for read in written.read]
    walks += [dense(stage.shape)] * len(written.results)
    stores = [f"y{n} = {variable};" for n, variable in enumerate(written.results.values())]
    return launch(
        target,
        name,
        [(where[read], type_) for read, type_ in written.read.items()],
        [(where[made], stage.leaves[made]) for made in written.results],
        space(stage.shape, walks),
        " ".join([*written.lines, *stores]),
    )
