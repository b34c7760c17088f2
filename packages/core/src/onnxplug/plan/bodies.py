"""Specs of what If, Loop and Scan give, followed through their bodies, and the branches that shapes decide.

Exporters write an If for what depends on a rank or on the size of a dimension (a squeeze of dimensions of size 1, a batch that may
be missing). Shape arithmetic gives its condition before anything runs. What a loop carries mostly keeps its shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxplug.contract.kernels import TensorSpec
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import Evaluate
from onnxplug.graph.type_rules import with_axis, without_axis
from onnxplug.graph.value import Value
from onnxplug.plan.infer import Inference, of_constant

Specs = Mapping[Value, TensorSpec | None]
Found = Sequence[TensorSpec | None]

_COUNTED: Found = [TensorSpec(np.dtype(np.int64), ()), TensorSpec(np.dtype(bool), ())]
"""A trip's number and its condition."""


def decisions(graph: Graph, inputs: Specs, inference: Inference, evaluate: Evaluate) -> dict[Node, bool]:
    """The Ifs whose conditions follow from the specs of the graph's inputs and captures, those in branches taken included, and
    what they are."""
    as_declared = all(s is None or v.shape is None or len(v.shape) == len(s.shape) for v, s in inputs.items())
    follower = Follower({v: inference.same(spec) for v, spec in inputs.items()}, inference, as_declared, evaluate)
    follower.graph(graph)
    return follower.decided


class Follower:
    """Follows specs node by node. ``known``: specs of values, equal ones one object. ``decided``: Ifs outside of loops and of branches
    that data decide, with the condition that shapes give them."""

    def __init__(self, known: Specs, inference: Inference, as_declared: bool, evaluate: Evaluate) -> None:
        self._known = known
        self._specs: dict[Value, TensorSpec | None] = {}
        self._inference, self._as_declared, self._evaluate = inference, as_declared, evaluate
        self.decided: dict[Node, bool] = {}
        self._certain = True

    def graph(self, graph: Graph) -> Found:
        """Specs of a graph's outputs; those of its inputs are known."""
        for node in graph.nodes:
            for value, spec in zip(node.outputs, self.node(node), strict=False):
                if value is not None:
                    self._specs[value] = spec
        return [self._of(value) for value in graph.outputs]

    def node(self, node: Node) -> Found:
        """Specs of a node's outputs."""
        operands = [self._of(value) for value in node.inputs]
        if not node.subgraphs:
            return self._inference.outputs(node, operands, self._as_declared, self._evaluate)
        nothing: Found = [None] * len(node.outputs)
        if node.domain:
            return nothing
        if node.op_type == "If":
            return self._branch(node, operands[0])
        if node.op_type == "Loop":
            return self._loop(node, operands)
        return self._scan(node, operands) if node.op_type == "Scan" and node.since_version > 8 else nothing

    def _of(self, value: Value | None) -> TensorSpec | None:
        if value is None:
            return None
        for specs in (self._specs, self._known):
            if value in specs:
                return specs[value]
        return of_constant(value)

    def _branch(self, node: Node, condition: TensorSpec | None) -> Found:
        if condition is not None and condition.constant is not None and condition.constant.size == 1:
            taken = bool(condition.constant.item())
            if self._certain:
                self.decided[node] = taken
            return self.graph(node.subgraphs["then_branch" if taken else "else_branch"])
        certain, self._certain = self._certain, False
        then, other = (self.graph(node.subgraphs[name]) for name in ("then_branch", "else_branch"))
        self._certain = certain
        return [
            a if _alike(a, b) else None for a, b in zip(map(self._plain, then), map(self._plain, other), strict=True)
        ]

    def _carried(self, body: Graph, values: Found, before: Found, behind: Found = ()) -> Found:
        """Specs of carried values that every trip of a body keeps; the body is followed for them, with these inputs before and
        behind them."""
        certain, self._certain = self._certain, False
        kept = [self._plain(spec) for spec in values]
        skipped = 1 if before else 0
        while True:
            given = (*before, *kept, *behind)
            self._specs.update(zip(body.inputs, map(self._inference.same, given), strict=False))
            made = [self._plain(spec) for spec in self.graph(body)[skipped : skipped + len(kept)]]
            news = [a if _alike(a, b) else None for a, b in zip(kept, made, strict=True)]
            if news == kept:
                break
            kept = news
        self._certain = certain
        return kept

    def _loop(self, node: Node, operands: Found) -> Found:
        body = node.subgraphs["body"]
        kept = self._carried(body, operands[2:], _COUNTED)
        rows = [self._plain(self._of(value)) for value in body.outputs[1 + len(kept) :]]
        trips = None if operands[0] is None else operands[0].constant
        if None in kept or trips is None or not _goes_on(node, operands[1]):
            return [*kept, *[None] * len(rows)]
        return [*kept, *[_stack(spec, 0, int(trips.item())) for spec in rows]]

    def _scan(self, node: Node, operands: Found) -> Found:
        body, scanned = node.subgraphs["body"], int(node.attributes["num_scan_inputs"])
        states, moved = operands[: len(operands) - scanned], operands[len(operands) - scanned :]
        axes = node.attributes.get("scan_input_axes") or [0] * scanned
        kept = self._carried(body, states, (), [_slice(spec, axis) for spec, axis in zip(moved, axes, strict=True)])
        rows = [self._plain(self._of(value)) for value in body.outputs[len(states) :]]
        first = moved[0] if moved else None
        axes_out = node.attributes.get("scan_output_axes") or [0] * len(rows)
        if first is None or None in kept or not -len(first.shape) <= axes[0] < len(first.shape):
            return [*kept, *[None] * len(rows)]
        length = first.shape[axes[0]]
        return [*kept, *[_stack(spec, axis, length) for spec, axis in zip(rows, axes_out, strict=True)]]

    def _plain(self, spec: TensorSpec | None) -> TensorSpec | None:
        """The spec of a value that a run computes."""
        return None if spec is None else self._inference.same(TensorSpec(spec.dtype, spec.shape))


def _alike(a: TensorSpec | None, b: TensorSpec | None) -> bool:
    return a is not None and b is not None and (a.dtype, a.shape) == (b.dtype, b.shape)


def _slice(spec: TensorSpec | None, axis: int) -> TensorSpec | None:
    shape = None if spec is None else without_axis(spec.shape, axis)
    return None if spec is None or shape is None else TensorSpec(spec.dtype, shape)


def _goes_on(node: Node, condition: TensorSpec | None) -> bool:
    """Whether a Loop runs until its trips are over, whatever the data."""
    first, again = node.inputs[1], node.subgraphs["body"].outputs[0]
    begins = first is None or (
        condition is not None and condition.constant is not None and bool(condition.constant.all())
    )
    while again.producer is not None and again.producer.op_type in ("Identity", "Cast") and again.producer.inputs[0]:
        again = again.producer.inputs[0]
    constant = again.constant
    return begins and (
        again in (first, node.subgraphs["body"].inputs[1]) or (constant is not None and bool(constant.all()))
    )


def _stack(spec: TensorSpec | None, axis: int, length: int) -> TensorSpec | None:
    """Rows as one; what is made of none has the shape that its declaration gives it."""
    shape = None if spec is None or length <= 0 else with_axis(spec.shape, axis, length)
    return None if spec is None or shape is None else TensorSpec(spec.dtype, shape)
