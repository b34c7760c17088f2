"""L3: what a provider claims and declines of a graph."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxplug.contract import Claim, Decline, KernelDef
from onnxplug.graph import Graph
from onnxplug.plugins import ProviderInstance
from onnxplug_testkit.check import check
from onnxplug_testkit.models import Lookup, chain, dag, graph_of, nested
from onnxplug_testkit.subject import Subject

GRAPHS = 8
"""How many random graphs a check looks at."""
PAUSE = 0.13
"""Seconds that go by before a graph is asked about again; all of them are more than one."""
SEPARATE, MANY = 9, 60
"""Every so many nodes there is one that nobody has, of so many."""
DOMAIN = "org.example.between"


@check("graph.capability_is_pure")
def capability_is_pure(subject: Subject, seed: int) -> None:
    """``get_capability`` answers the same asked twice, after other graphs and by another instance, and leaves the graph as it was."""
    with subject.instance() as veteran:
        for graph in _graphs(subject, seed):
            before = _described(graph)
            with subject.instance() as instance, subject.instance() as other:
                answers = [_answers(i, graph) for i in (instance, instance, other, veteran)]
            assert answers[0] == answers[1], "asked again about the same graph, get_capability answers otherwise"
            assert answers[0] == answers[2], "two instances answer otherwise about the same graph"
            assert answers[0] == answers[3], "an instance that was asked about other graphs before answers otherwise"
            assert _described(graph) == before, "get_capability changes the graph"
            time.sleep(PAUSE)
            assert answers[0] == _answers(veteran, graph), (
                "asked again a little later, get_capability answers otherwise"
            )


@check("graph.claims_are_sound")
def claims_are_sound(subject: Subject, seed: int) -> None:
    """Claims name nodes of the graph, each once (again by itself after a region); unfused ones have a kernel, regions are convex together.

    A node of a region may be claimed by itself behind it, for the case that the region is refused. Regions come with ``compile``.
    """
    for graph in _graphs(subject, seed):
        readers = _readers(graph)
        with subject.instance() as instance:
            kernels = Lookup(instance)
            regions: list[set[str]] = []
            single: set[str] = set()
            for answer in _answered(instance, graph):
                nodes = answer.nodes if isinstance(answer, Claim) else [answer.node]
                names = [node.name for node in nodes]
                assert names, "a claim has no nodes"
                assert set(names) <= {n.name for n in graph.nodes}, (
                    f"a {type(answer).__name__} names nodes that are not in the graph: {names}"
                )
                if isinstance(answer, Decline):
                    assert answer.reason.strip(), f"'{answer.node.name}' is declined without a reason"
                if not isinstance(answer, Claim):
                    continue
                before = single if answer.fused is None else single.union(*regions)
                twice = before & set(names) or {name for name in names if names.count(name) > 1}
                assert not twice, f"nodes are claimed twice: {sorted(twice)}"
                if answer.fused is None:
                    single.update(names)
                    for node in answer.nodes:
                        found = kernels.kernel_for(node)
                        assert isinstance(found, KernelDef), (
                            f"'{node.name}' ({node.op_type}) is claimed, there is no kernel for it"
                        )
                else:
                    assert instance.supports("compile"), f"region '{answer.fused}' is claimed, there is no compile()"
                    assert _is_convex(set(names), readers, regions), (
                        f"region '{answer.fused}' is not convex: a path leaves it and comes back, maybe through another region"
                    )
                    regions.append(set(names))


@check("graph.declines_say_why")
def declines_say_why(subject: Subject, seed: int) -> None:
    """A node that has a kernel and is not claimed is declined, with a reason."""
    for graph in _graphs(subject, seed):
        with subject.instance() as instance:
            kernels = Lookup(instance)
            answers = _answered(instance, graph)
            claimed = {n.name for a in answers if isinstance(a, Claim) for n in a.nodes}
            declined = {a.node.name: a.reason for a in answers if isinstance(a, Decline)}
            for node in graph.nodes:
                silent = node.name not in claimed and not declined.get(node.name, "").strip()
                assert not (silent and isinstance(kernels.kernel_for(node), KernelDef)), (
                    f"'{node.name}' ({node.op_type}) has a kernel and is left without a reason"
                )


def _graphs(subject: Subject, seed: int) -> list[Graph]:
    """Random ones, a chain, a random one of unknown ranks, a long one with nodes between that nobody has, and one with bodies, which follow
    it."""
    made = [dag(subject, np.random.default_rng([seed, n])) for n in range(GRAPHS)]
    unknown = dag(subject, np.random.default_rng([seed, GRAPHS]))
    for value in unknown.graph.input:
        value.type.tensor_type.ClearField("shape")
    graphs = [graph_of(each) for each in (*made, chain(subject, 8), unknown, _interrupted(subject), nested(subject))]
    return [each for graph in graphs for each in _with_bodies(graph)]


def _with_bodies(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.subgraphs.values():
            yield from _with_bodies(body)


def _answered(instance: ProviderInstance, graph: Graph) -> list[Any]:
    """What an instance says to a graph when it has been shown those around it, as sessions do."""
    if graph.parent is not None:
        _answered(instance, graph.parent)
    return list(instance.call("get_capability", graph=graph, kernels=Lookup(instance)) or ())


def _interrupted(subject: Subject) -> onnx.ModelProto:
    """A chain of operators the subject claims, some of whose nodes are functions of the model's own."""
    made = chain(subject, MANY)
    for node in made.graph.node[SEPARATE::SEPARATE]:
        del node.input[1:]
        node.op_type, node.domain = "Between", DOMAIN
    body = [helper.make_node("Identity", ["a"], ["b"])]
    made.functions.append(helper.make_function(DOMAIN, "Between", ["a"], ["b"], body, made.opset_import))
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def _answers(instance: ProviderInstance, graph: Graph) -> list[tuple[Any, ...]]:
    return [
        ("claim", answer.fused, tuple(n.name for n in answer.nodes))
        if isinstance(answer, Claim)
        else (type(answer).__name__, getattr(answer, "reason", ""), answer.node.name)
        for answer in _answered(instance, graph)
    ]


def _described(graph: Graph) -> list[tuple[Any, ...]]:
    return [
        (
            n.name,
            n.op_type,
            repr(dict(n.attributes)),
            [v and v.name for v in n.inputs],
            [v and (v.name, str(v.type)) for v in n.outputs],
        )
        for n in graph.nodes
    ]


def _readers(graph: Graph) -> dict[str, set[str]]:
    """By the name of each node those of the nodes that read what it makes."""
    found: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
    for node in graph.nodes:
        for value in (*node.inputs, *node.captures):
            if value is not None and value.producer is not None and value.producer.name in found:
                found[value.producer.name].add(node.name)
    return found


def _is_convex(inside: set[str], readers: Mapping[str, set[str]], regions: Sequence[set[str]]) -> bool:
    """No path leaves ``inside`` and comes back, each of the other regions being one step of it."""
    step = {name: region for region in regions for name in region}
    ahead = set().union(*(readers[name] for name in inside)) - inside
    seen: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        members = step.get(name, {name})
        seen |= members
        ahead = ahead.union(*(readers[member] for member in members))
        if ahead & inside:
            return False
    return True
