"""A provider that declines what has no known shape is proven like another, in versions of operators that infer none too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxplug.contract import Claim, Decline, GraphView, Inline, KernelLookup
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.kernels.plan import plan
from onnxplug_testkit.kernels.shaped import shapes_of_results
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.mutants.base import HOST, subject


class _Static(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        for answer in super().get_capability(graph, kernels):
            nodes = answer.nodes if isinstance(answer, Claim) else ()
            shapes = [v.shape for node in nodes for v in (*node.inputs, *node.outputs) if v is not None]
            if any(shape is None or not all(isinstance(side, int) for side in shape) for shape in shapes):
                yield Decline(nodes[0], "the device needs to know shapes")
            else:
                yield answer


@pytest.mark.parametrize("operator", ["Relu", "Add"])
def test_known_shapes_prove_old_versions(operator: str) -> None:
    static = subject(_Static, HOST)
    static.announce()
    kit = Kit(static, "kernels", 1)
    kit.plan = made = plan(static, (operator,))
    assert any(cell.version == 1 for cell in made.cells)
    kit.ledger.claim(made.cells)
    kit.ledger.unreached(made.unreached)
    for trial in made.trials:
        try:
            kit.try_out(trial)
        except Unsupported as error:
            pytest.fail(f"{trial.id}: {error}")
    kit.judge_claim("kernels.every_cell_is_proven")


def test_shapes_that_values_decide_are_not_declared() -> None:
    reference = subject(given=HOST)
    target = plan(reference, ("Compress",)).trials[0].target
    assert shapes_of_results(target, target.model(), reference.name) == ()
    old = next(t.target for t in plan(reference, ("Relu",)).trials if t.target.key[2] == 1)
    assert shapes_of_results(old, old.model(), reference.name) == [old.inputs[0].like.shape]
