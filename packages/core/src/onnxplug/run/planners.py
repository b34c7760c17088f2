"""The plans of one graph, which is placed anew where shapes decide its conditions.

A graph is placed once, when the session is created. Where a signature's shapes decide an If, its branch could stand in the graph:
what is before, in and behind it is then one straight line, which providers fuse and compile, and each If that is left costs a run
of its own. So a copy of the graph with these branches in it is placed when such a signature first comes, and serves all that decide
alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug._uncollected import uncollected
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.logs import Log
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value
from onnxplug.place.units import PlacedGraph
from onnxplug.plan import Plan, Planner
from onnxplug.plan.specs import Memory

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

log = Log("onnxplug.place")

MOST = 8
"""Placements of one graph beside its own, each of them memory. A graph of many conditions has more ways: the rest is run as it is."""


class Planners:
    """Gives a graph's plans. Used by one thread at a time."""

    def __init__(self, placed: PlacedGraph, runtime: Runtime) -> None:
        self._placed, self._runtime = placed, runtime
        self._own = _planner(placed, runtime)
        self._others: dict[frozenset[tuple[Node, bool]], Planner] = {}
        self._decides = runtime.place_again is not None and _may_decide(placed.graph)

    def plan(self, inputs: Sequence[TensorSpec | None] | None) -> Plan:
        """As ``Planner.plan``."""
        with uncollected():  # what a plan is made of stays, and to collect everything may take longer than to make it
            return self._planner(inputs).plan(inputs)

    def placed(self) -> Iterator[PlacedGraph]:
        """All placements there are."""
        yield from {id(p.placed): p.placed for p in (self._own, *self._others.values())}.values()

    def _planner(self, inputs: Sequence[TensorSpec | None] | None) -> Planner:
        if not self._decides or inputs is None:
            return self._own
        placed, runtime = self._placed, self._runtime
        given = dict(zip((v for v, _ in (*placed.inputs, *placed.captures)), inputs, strict=True))
        from onnxplug.plan.bodies import decisions  # few models have conditions that shapes decide

        decided = decisions(placed.graph, given, self._own.memory.inference, runtime.evaluate_again)
        if not decided:
            return self._own
        key = frozenset(decided.items())
        if key not in self._others:
            if len(self._others) == MOST:
                return self._own
            self._others[key] = self._place(decided)
        return self._others[key]

    def _place(self, decided: Mapping[Node, bool]) -> Planner:
        placed, runtime = self._placed, self._runtime
        assert runtime.place_again is not None
        from onnxplug.graph.copies import copied

        try:
            anew = runtime.place_again(copied(placed.graph, [v for v, _ in placed.outputs], decided), placed)
        except STATUS_ERRORS as error:  # a model may note shapes that only what is not taken would have
            log.warning(
                "graph '%s' branches in each run, its branches do not fit into it: %s", placed.graph.name, error
            )
            return self._own
        return _planner(anew, runtime)


def _planner(placed: PlacedGraph, runtime: Runtime) -> Planner:
    # What the main graph's runs find without a plan goes on from what its plans found.
    memory = runtime.remembered if placed.graph.parent is None else Memory(placed.graph.identity)
    return Planner(placed, runtime.bound, runtime.evaluate_again, memory)


def _may_decide(graph: Graph) -> bool:
    """Whether shapes may decide a condition of the graph: it is computed from nothing but shapes and constants."""
    of_shapes: set[Value | None] = {None}
    for node in graph.nodes:
        reads = [v for v in (node.inputs[:1] if _is_branch(node) else node.reads) if v is None or not v.is_constant]
        asks = node.op_type in ("Shape", "Size") and node.domain == ""
        if asks or of_shapes.issuperset(reads):
            if _is_branch(node):
                return True
            of_shapes.update(node.outputs)
    return False


def _is_branch(node: Node) -> bool:
    """Whether the node is ONNX's If."""
    return node.op_type == "If" and node.domain == ""
