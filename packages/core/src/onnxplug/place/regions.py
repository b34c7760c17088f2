"""Fused groups as regions: what goes in, what comes out, and a name that stays the same for the same content."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import cast

import numpy as np

from onnxplug.contract.claims import Region
from onnxplug.contract.digest import blake2b
from onnxplug.contract.model import boundary
from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value
from onnxplug.place.partition import Group

SMALL = 4096
"""Bytes; larger constants count in a region's key, not in its name."""


@record(frozen=True, slots=True, eq=False)
class MadeRegion:
    """A region with its boundary values."""

    region: Region
    inputs: Sequence[Value]
    outputs: Sequence[Value]


def make_region(graph: Graph, group: Group) -> MadeRegion:
    """The region of a fused group: inputs are what it reads from outside (constants stay inside), outputs what others
    read."""
    inside = set(group.nodes)
    inputs, outputs = (cast("list[Value]", side) for side in boundary(graph, group.nodes))
    view = Graph(group.fused or "", graph.opsets, graph.schemas, graph)
    view.nodes, view.inputs, view.outputs = [n for n in graph.nodes if n in inside], inputs, outputs
    view.initializers = {v.name: v for n in view.nodes for v in n.reads if v.is_constant}
    name = f"{group.fused}_{_digest(view.nodes, inputs, outputs, SMALL)}"
    key = functools.cache(lambda: f"{group.fused}_{_digest(view.nodes, inputs, outputs, sys.maxsize)}")
    return MadeRegion(Region(name, view, inputs, outputs, key), inputs, outputs)


def _digest(nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], largest: int) -> str:
    """Hash of operators, attributes, topology, types and constants of at most ``largest`` bytes; names of values do not
    count."""
    digest = blake2b(digest_size=10)
    numbers: dict[Value, int] = {}

    def number(value: Value | None) -> int:
        return -1 if value is None else numbers.setdefault(value, len(numbers))

    for value in inputs:
        digest.update(f"{number(value)}:{value.type!r};".encode())
    for node in nodes:
        digest.update(f"{node.domain}.{node.op_type}.{node.overload};".encode() + node.signature)
        for operand in node.inputs:
            digest.update(f"{number(operand)},".encode())
            if operand is not None and operand.is_constant:
                digest.update(f"{operand.type!r}".encode())
                array = operand.constant if _counts(operand, largest) else None
                if array is None:
                    continue
                if array.dtype == object:
                    digest.update(repr(array.tolist()).encode())
                else:
                    digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.nbytes else b"")
        digest.update(b">" + b",".join(str(number(v)).encode() for v in node.outputs))
    digest.update(repr([number(v) for v in outputs]).encode())
    return digest.hexdigest()


def _counts(constant: Value, largest: int) -> bool:
    """Whether a constant's elements count: told by its type, as weights are not read for that."""
    type_ = constant.type
    if not isinstance(type_, TensorType) or type_.static_shape is None or type_.dtype == object:
        return True
    return math.prod(type_.static_shape) * type_.dtype.itemsize <= largest
