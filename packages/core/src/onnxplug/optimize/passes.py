"""Runs the passes until nothing changes. They are imported when there is a graph to run them over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field

from onnxplug.contract.records import record
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import Evaluate

BASIC, EXTENDED = 1, 2
"""Levels at which passes run; at 0 none does."""

Pass = Callable[[Graph, "Optimizer"], bool]
_MAX_ROUNDS = 10


@record(slots=True)
class Optimizer:
    """Runs the passes of ``level`` that are not in ``disabled`` until none changes anything; ``removed`` collects nodes
    that went, and why."""

    level: int
    evaluate: Evaluate
    disabled: Collection[str] = ()
    removed: dict[str, str] = field(default_factory=dict)

    @property
    def takes_branches(self) -> bool:
        """Whether it puts branches that are always taken in place of their If."""
        return self.level >= BASIC and "ConstantBranches" not in self.disabled

    def anew(self) -> Optimizer:
        """The same passes for another graph."""
        return Optimizer(self.level, self.evaluate, self.disabled)

    def __call__(self, graph: Graph) -> None:
        self._run(graph)

    def _run(self, graph: Graph) -> bool:
        """Passes over the graph, then over its nested graphs, which see its new constants; whether anything changed."""
        from onnxplug.optimize.order import PASSES

        ever = False
        for _ in range(_MAX_ROUNDS):
            changed = [
                self._apply(name, each, graph)
                for name, level, each in PASSES
                if level <= self.level and name not in self.disabled
            ]
            changed += [self._run_inside(graph, node) for node in graph.nodes if node.subgraphs]
            if not any(changed):
                break
            ever = True
            graph.refresh()
        return ever

    def _run_inside(self, graph: Graph, node: Node) -> bool:
        """Passes over the node's nested graphs; what is known of their results then is known of the node's."""
        bodies = list(node.subgraphs.values())
        before = [value.type for body in bodies for value in body.outputs]
        changed = [self._run(body) for body in bodies]
        if any(changed) and before != [value.type for body in bodies for value in body.outputs]:
            from onnxplug.graph.infer import infer_parts

            infer_parts(graph, {node})
        return any(changed)

    def _apply(self, name: str, each: Pass, graph: Graph) -> bool:
        before = {n.name for n in graph.walk()}
        changed = each(graph, self)
        if changed:
            graph.refresh()
            for gone in before - {n.name for n in graph.walk()}:
                self.removed.setdefault(gone, name)
        return changed
