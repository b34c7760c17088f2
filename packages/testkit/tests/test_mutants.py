"""Every mutant is killed by the check it names, every check kills a mutant, and the unchanged reference survives them all."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxplug.contract import Claim, Decline, GraphView, Inline, KernelLookup, KernelRegistry
from onnxplug.plugins import registry
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit import mutants as mutated
from onnxplug_testkit.check import Check, checks
from onnxplug_testkit.checks import robust
from onnxplug_testkit.cli import main
from onnxplug_testkit.mutants import Broken, Mutant, check_names, judge, mutants, systematic
from onnxplug_testkit.mutants.base import HOST, NAME, subject
from onnxplug_testkit.mutants.compiling import Compiling
from onnxplug_testkit.mutants.lending import LendingProvider
from onnxplug_testkit.mutants.recording import Recording
from onnxplug_testkit.mutants.tripping import Tripping
from onnxplug_testkit.mutants.writing import Writing
from onnxplug_testkit.subject import Subject


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads that hang are given up soon; no mutant stays registered."""
    monkeypatch.setattr(robust, "PATIENCE", 5)
    yield
    try:
        registry.unregister_provider(NAME)
    except ValueError:
        assert registry.record(NAME) is None


@pytest.mark.parametrize("mutant", mutants().values(), ids=lambda m: m.name)
def test_killed_by_its_named_check(mutant: Mutant) -> None:
    with mutant.subject() as broken:
        assert judge(broken, mutant.killed_by, mutant.operators) == mutant.killed_by


class _Misspelt(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        prnit(options)  # type: ignore[name-defined]  # noqa: F821


class _Misnamed(ReferenceProvider):
    def on_run_start(self, settings: Any, device: Any) -> None:
        """Never called."""


@pytest.mark.parametrize("provider", [_Misspelt, _Misnamed])
@pytest.mark.parametrize("name", ["graph.random_graphs", "graph.dynamic_shapes", "robust.threads"])
def test_a_mistake_in_a_mutant_kills_nothing(provider: type[ReferenceProvider], name: str) -> None:
    wrong = subject(provider, HOST)
    wrong.announce()
    with pytest.raises(Broken, match=f"{name} fails for a mistake"):
        judge(wrong, name)


def test_what_no_check_states_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(subject: Subject, seed: int) -> None:
        raise LookupError("of the check's own")

    made = {"robust.threads": Check("robust.threads", "robust", "It stumbles.", stumbles)}
    monkeypatch.setattr(mutated, "checks", lambda: made)
    with pytest.raises(LookupError):
        judge(subject(), "robust.threads")


def test_there_are_enough() -> None:
    assert len(mutants()) >= 30
    assert all(m.text for m in mutants().values())


def test_every_check_kills() -> None:
    assert check_names() == {m.killed_by for m in mutants().values()}


@pytest.mark.parametrize("name", checks())
def test_the_reference_survives(name: str) -> None:
    clean = subject()
    clean.announce()
    assert judge(clean, name) is None


class _Choosy(ReferenceProvider):
    """Declines sums and products in graphs of more than three nodes, and says why."""

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline | Inline]:
        large = len(list(graph.nodes)) > 3
        for answer in super().get_capability(graph, kernels):
            if large and isinstance(answer, Claim) and answer.nodes[0].op_type in ("Add", "Mul"):
                yield Decline(answer.nodes[0], "not worth it in a graph this large")
            else:
                yield answer


def test_one_that_declines_with_a_reason_survives() -> None:
    choosy = subject(_Choosy, HOST)
    choosy.announce()
    for name in ("graph.random_graphs", "graph.edges", "graph.outputs_are_apart", "robust.same_bits"):
        assert judge(choosy, name) is None, name


class _InRuns(ReferenceProvider):
    """Computes between the hooks around a run alone, as one whose stream a run makes current."""

    def __init__(self, options: Any, context: Any) -> None:
        super().__init__(options, context)
        self._runs = 0

    def on_run_start(self, options: Any) -> None:
        self._runs += 1

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        self._runs -= 1

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(
            replace(made, create=lambda node, made=made: functools.partial(self._computed, made.create(node)))
            for made in super().get_kernel_registry()
        )

    def _computed(self, kernel: Any, *inputs: Any) -> Any:
        if not self._runs:
            raise RuntimeError("nothing is ready outside of a run")
        return kernel(*inputs)


def test_one_that_computes_in_runs_alone_survives() -> None:
    clean = subject(_InRuns, HOST)
    clean.announce()
    assert judge(clean, "kernels.forms_agree", ("Abs",)) is None


def test_the_compiling_reference_survives() -> None:
    clean = subject(Compiling, HOST)
    clean.announce()
    for name in (name for name, check in checks().items() if check.level in ("contract", "graph")):
        assert judge(clean, name) is None, name
    for operator in ("MatMul", "Softmax", "Relu"):
        for name in ("kernels.every_cell_is_proven", "kernels.sizes", "kernels.nodes_are_apart"):
            assert judge(clean, name, (operator,)) is None, (operator, name)


def test_the_writing_reference_survives() -> None:
    clean = subject(Writing, HOST)
    clean.announce()
    killers = {m.killed_by for m in mutants().values() if m.module.endswith(".writing")}
    for name in sorted({*killers, "graph.edges", "graph.dynamic_shapes", "robust.threads"}):
        assert judge(clean, name) is None, name


@pytest.mark.parametrize(
    ("clean", "names"),
    [
        (subject(Tripping, HOST), ("graph.loops", "graph.control_flow", "graph.random_graphs")),
        (subject(Recording), ("graph.recorded_runs", "graph.random_graphs")),
        (subject(LendingProvider), ("memory.lent_blocks", "memory.sizes", "memory.statistics", "graph.io_binding")),
    ],
)
def test_the_others_that_mutants_are_made_of_survive(clean: Subject, names: Sequence[str]) -> None:
    clean.announce()
    for name in names:
        assert judge(clean, name) is None, name


def test_the_reference_survives_the_trials_of_the_mutants() -> None:
    operators = {operator for m in mutants().values() for operator in m.operators}
    clean = subject(given=HOST)
    clean.announce()
    for operator in sorted(operators):
        for name in ("kernels.every_cell_is_proven", "kernels.sizes", "kernels.nodes_are_apart"):
            assert judge(clean, name, (operator,)) is None, (operator, name)


def test_whatever_attribute_or_operand_is_ignored_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--systematic", "Compress", "CumSum"]) == 0
    told = capsys.readouterr().out
    assert "| Compress | 4 |  |" in told and "10 of 10 are noticed." in told


def test_operators_of_other_domains_have_mutants_of_each_axis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--systematic", "com.microsoft.BiasAdd", "ai.onnx.ml.Imputer"]) == 0
    told = capsys.readouterr().out
    assert "| ai.onnx.ml.Imputer | 9 |  |" in told
    assert "Y is wrong behind the first along axis 0" in {
        a.text for a in systematic.alterations("com.microsoft.BiasAdd")
    }


@pytest.mark.parametrize(
    ("text", "place", "change"),
    [
        ("a cached key counts for all", 3, lambda x: np.broadcast_to(x[:, :, :1], x.shape).copy()),
        ("heads share the cache of values", 4, lambda x: np.broadcast_to(x[:, :1], x.shape).copy()),
        ("heads share a layout", 6, lambda x: np.broadcast_to(x[:1], x.shape).copy()),
    ],
)
def test_sparse_attention_is_tried_with_a_cache_and_layouts(text: str, place: int, change: Any) -> None:
    def changed(operands: list[Any]) -> list[Any]:
        return [change(x) if i == place else x for i, x in enumerate(operands)]

    altered = systematic.Alteration(text, operands=changed)
    assert not systematic._survives(("com.microsoft", "SparseAttention"), altered, seed=1)


def test_what_changes_nothing_is_no_mutant() -> None:
    """A default that had another name in an older version, a word without letters, operators that onnx has no schema of any more."""
    assert "mode=bilinear is left out" not in {a.text for a in systematic.alterations("GridSample")}
    assert "delimiter= is left out" not in {a.text for a in systematic.alterations("StringSplit")}
    assert "Affine" not in systematic.operators() and not systematic.alterations("SequenceEmpty")


def test_what_changes_nothing_survives(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(systematic, "_REPEATED", frozenset())
    assert main(["mutants", "--systematic", "GRU"]) == 1
    assert "hidden_size is left out" in capsys.readouterr().out
    assert main(["mutants", "--systematic", "Konv"]) == 2
