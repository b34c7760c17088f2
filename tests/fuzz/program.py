"""A model under construction, with the value of each of its tensors."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from operators.model import type_proto

from onnxplug.contract.types import element_of


def typed(value: Any) -> str:
    """The type string of an array or of a list of arrays."""
    return f"seq({typed(value[0])})" if isinstance(value, list) else f"tensor({element_of(value.dtype)})"


@dataclass
class Program:
    """Nodes in order; ``values`` and ``types`` of every name; ``inputs`` and ``constants`` are the names that no node makes."""

    opset: int
    nodes: list[NodeProto] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)
    free: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Axes of inputs whose size does not matter to the nodes."""

    def give(self, value: Any, fixed: bool) -> str:
        """A new input, or with ``fixed`` an initializer."""
        name = f"{'c' if fixed else 'x'}{len(self.values)}"
        self.values[name], self.types[name] = value, typed(value)
        (self.constants if fixed else self.inputs).append(name)
        return name

    def made(self) -> list[str]:
        """What the nodes give, in order."""
        return [name for node in self.nodes for name in node.output if name]

    def ends(self) -> list[str]:
        """What no node reads."""
        read = set(captured(self.nodes))
        return [name for name in self.made() if name not in read]

    def model(self, outputs: Iterable[str], declared: str = "shape") -> ModelProto:
        """The model; ``declared`` is what it says of its inputs: their "shape", "rank", "names" (equal sizes, equal names) or
        "free" axes."""
        inputs = [helper.make_value_info(n, type_proto(self.types[n], self._shape(n, declared))) for n in self.inputs]
        results = [helper.make_value_info(n, type_proto(self.types[n])) for n in outputs]
        constants = [_tensor(self.values[n], n) for n in self.constants]
        graph = helper.make_graph(self.nodes, "fuzz", inputs, results, constants)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        imports += [helper.make_opsetid("local", 1)] if self.functions else []
        return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=self.functions)

    def _shape(self, name: str, declared: str) -> list[Any] | None:
        value = self.values[name]
        if not isinstance(value, np.ndarray):
            return None
        if declared == "names":
            return [f"n{size}" for size in value.shape]
        if declared == "free":
            return [f"{name}_{i}" if i in self.free.get(name, ()) else size for i, size in enumerate(value.shape)]
        return list(value.shape) if declared == "shape" else [None] * value.ndim

    def feeds(self) -> dict[str, Any]:
        """What the values were computed from."""
        return {name: self.values[name] for name in self.inputs}

    def other_feeds(self, chance: random.Random, sizes: Sequence[int]) -> dict[str, Any]:
        """Feeds of other sizes along the free axes; without such axes, another size wherever one of them stands."""
        found = {}
        new = {size: chance.choice(sizes) for size in range(64)}
        for name in self.inputs:
            value = self.values[name]
            for axis in range(value.ndim) if isinstance(value, np.ndarray) else ():
                if not self.free or axis in self.free.get(name, ()):
                    count = new.get(value.shape[axis], 1)
                    value = (
                        np.resize(value, (*value.shape[:axis], count, *value.shape[axis + 1 :]))
                        if value.size
                        else value
                    )
            found[name] = value
        return found


def captured(nodes: Iterable[NodeProto]) -> list[str]:
    """The names that nodes read, those that their bodies read from outside among them."""
    found: list[str] = []
    for node in nodes:
        found += [name for name in node.input if name]
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                own = {name for inner in body.node for name in inner.output}
                own |= {i.name for i in body.input} | {i.name for i in body.initializer}
                read = [*captured(body.node), *(output.name for output in body.output)]
                found += [name for name in read if name not in own]
    return found


def _tensor(value: np.ndarray, name: str) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
