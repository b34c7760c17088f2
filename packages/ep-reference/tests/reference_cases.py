"""The single-node cases of ONNX's backend data."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from reference_views import Node, only_node

# Bernoulli has no fixed meaning: its outputs cannot be reproduced.
RANDOM = ("test_bernoulli",)


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    node: Node
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    def __str__(self) -> str:
        return self.name


@functools.cache
def cases() -> list[Case]:
    """Every case whose model is one node; operands are in the order of the node's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    return [_case(c) for c in collected if len(c.model.graph.node) == 1 and not c.name.startswith(RANDOM)]


def _case(collected: Any) -> Case:
    node = only_node(collected.model)
    names = [value.name for value in collected.model.graph.input]
    data = []
    for inputs, outputs in collected.data_sets:
        by_name = dict(zip(names, map(_value, inputs), strict=True))
        operands = [by_name[value.name] if value is not None else None for value in node.inputs]
        data.append((operands, [_value(output) for output in outputs]))
    return Case(collected.name, node, data, collected.rtol, collected.atol)


def _value(proto: Any) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, onnx.SequenceProto):
        return numpy_helper.to_list(proto)
    if isinstance(proto, onnx.OptionalProto):
        return numpy_helper.to_optional(proto)
    return np.asarray(proto) if isinstance(proto, np.generic) else proto
