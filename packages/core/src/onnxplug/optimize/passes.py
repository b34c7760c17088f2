"""The order of passes, and which of them a level runs.

Levels are onnxruntime's: basic passes keep every value that remains; extended ones rewrite arithmetic across nodes.
None touches what a provider may want whole: QuantizeLinear/DequantizeLinear pairs, and function-bodied operators (they
are offered first, inlined later).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field

from onnxplug.contract.records import record
from onnxplug.graph.ir import Graph
from onnxplug.graph.schemas import Evaluate
from onnxplug.optimize.common import merge_common
from onnxplug.optimize.dequantize import dequantize_constants
from onnxplug.optimize.fold import fold_constants
from onnxplug.optimize.fuse import fold_affine
from onnxplug.optimize.invariant import lift_invariants
from onnxplug.optimize.pad import fold_padding
from onnxplug.optimize.prune import drop_dead, drop_identities, inline_constant_branches
from onnxplug.optimize.select import select_branches
from onnxplug.optimize.sequences import resolve_sequences

DISABLED, BASIC, EXTENDED = 0, 1, 2

Pass = Callable[[Graph, "Optimizer"], bool]
_PASSES: tuple[tuple[str, int, Pass], ...] = (
    ("EliminateDeadEnds", BASIC, drop_dead),
    ("ConstantFolding", BASIC, fold_constants),
    ("ConstantDequantization", BASIC, dequantize_constants),
    ("SequenceResolution", BASIC, resolve_sequences),
    ("ConstantBranches", BASIC, inline_constant_branches),
    ("EliminateIdentity", BASIC, drop_identities),
    ("LoopInvariants", BASIC, lift_invariants),
    ("CommonSubexpressionElimination", BASIC, merge_common),
    ("BranchSelection", EXTENDED, select_branches),
    ("ConvAffineFusion", BASIC, fold_affine),
    ("PadFusion", BASIC, fold_padding),
)
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
        ever = False
        for _ in range(_MAX_ROUNDS):
            changed = [
                self._apply(name, each, graph)
                for name, level, each in _PASSES
                if level <= self.level and name not in self.disabled
            ]
            changed += [self._run(body) for node in graph.nodes for body in node.subgraphs.values()]
            if not any(changed):
                break
            ever = True
            graph.refresh()
        return ever

    def _apply(self, name: str, each: Pass, graph: Graph) -> bool:
        before = {n.name for n in graph.walk()}
        changed = each(graph, self)
        if changed:
            graph.refresh()
            for gone in before - {n.name for n in graph.walk()}:
                self.removed.setdefault(gone, name)
        return changed
