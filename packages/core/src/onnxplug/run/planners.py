"""The plans of one graph, placed anew for what shapes decide of its conditions.

A graph is placed once, when the session is created. Where a signature's shapes decide an If, its branch could stand in the graph:
what is before, in and behind it is then one straight line, which providers fuse and compile, and each If that is left costs a run
of its own. So a copy of the graph with these branches in it is placed when such a signature first comes, and serves all that decide
alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnxplug.contract.kernels import TensorSpec
from onnxplug.graph.copies import copied
from onnxplug.graph.ir import Node
from onnxplug.place.units import PlacedGraph
from onnxplug.plan import Plan, Planner
from onnxplug.plan.bodies import decisions, may_decide
from onnxplug.plan.infer import Inference

if TYPE_CHECKING:
    from onnxplug.run.runtime import Runtime

MOST = 8
"""Placements kept of one graph beside its own, the latest used last. A graph of many conditions has more ways."""


class Planners:
    """See the module's text. For one thread at a time."""

    def __init__(self, placed: PlacedGraph, runtime: Runtime) -> None:
        self._placed, self._runtime = placed, runtime
        self._own = Planner(placed, runtime.bound, runtime.evaluate_again)
        self._others: OrderedDict[frozenset[tuple[Node, bool]], Planner] = OrderedDict()
        self._inference = Inference() if runtime.place_again is not None and may_decide(placed.graph) else None

    def plan(self, inputs: Sequence[TensorSpec | None] | None) -> Plan:
        """As ``Planner.plan``."""
        return self._planner(inputs).plan(inputs)

    def placed(self) -> Iterator[PlacedGraph]:
        """All placements there are."""
        yield self._placed
        for planner in self._others.values():
            yield planner.placed

    def _planner(self, inputs: Sequence[TensorSpec | None] | None) -> Planner:
        if self._inference is None or inputs is None:
            return self._own
        placed, runtime = self._placed, self._runtime
        given = dict(zip((v for v, _ in (*placed.inputs, *placed.captures)), inputs, strict=True))
        decided = decisions(placed.graph, given, self._inference, runtime.evaluate_again)
        if not decided:
            return self._own
        key = frozenset(decided.items())
        found = self._others.pop(key, None)
        if found is None:
            assert runtime.place_again is not None
            graph = copied(placed.graph, [v for v, _ in placed.outputs], decided)
            anew = runtime.place_again(graph, placed)
            found = Planner(anew, runtime.bound, runtime.evaluate_again)
        self._others[key] = found
        while len(self._others) > MOST:
            self._others.popitem(last=False)
        return found
