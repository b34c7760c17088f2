"""L3: what a provider claims and declines of a graph."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxplug.contract import Claim, Decline, KernelDef
from onnxplug.graph import Graph
from onnxplug_testkit.check import check
from onnxplug_testkit.models import Lookup, chain, dag, graph_of
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
    """Claims name nodes of the graph, each once (again by itself after a region); unfused ones have a kernel, regions are convex.

    A node of a region may be claimed by itself behind it, for the case that the region is refused. Regions come with ``compile``.
    """
    for graph in _graphs(subject, seed):
        with subject.instance() as instance:
            kernels = Lookup(instance)
            regions: set[str] = set()
            single: set[str] = set()
            for answer in instance.call("get_capability", graph=graph, kernels=kernels) or ():
                if isinstance(answer, Decline):
                    assert answer.reason.strip(), f"'{answer.node.name}' is declined without a reason"
                if not isinstance(answer, Claim):
                    continue
                names = [node.name for node in answer.nodes]
                assert names, "a claim has no nodes"
                assert set(names) <= {n.name for n in graph.nodes}, (
                    f"a claim names nodes that are not in the graph: {names}"
                )
                before = single if answer.fused is None else regions | single
                twice = before & set(names) or {name for name in names if names.count(name) > 1}
                assert not twice, f"nodes are claimed twice: {sorted(twice)}"
                (single if answer.fused is None else regions).update(names)
                if answer.fused is None:
                    for node in answer.nodes:
                        found = kernels.kernel_for(node)
                        assert isinstance(found, KernelDef), (
                            f"'{node.name}' ({node.op_type}) is claimed, there is no kernel for it"
                        )
                else:
                    assert instance.supports("compile"), f"region '{answer.fused}' is claimed, there is no compile()"
                    assert _is_convex(graph, set(names)), (
                        f"region '{answer.fused}' is not convex: a path leaves it and comes back"
                    )


@check("graph.declines_say_why")
def declines_say_why(subject: Subject, seed: int) -> None:
    """A node that has a kernel and is not claimed is declined, with a reason."""
    for graph in _graphs(subject, seed):
        with subject.instance() as instance:
            kernels = Lookup(instance)
            answers = list(instance.call("get_capability", graph=graph, kernels=kernels) or ())
            claimed = {n.name for a in answers if isinstance(a, Claim) for n in a.nodes}
            declined = {a.node.name: a.reason for a in answers if isinstance(a, Decline)}
            for node in graph.nodes:
                silent = node.name not in claimed and not declined.get(node.name, "").strip()
                assert not (silent and isinstance(kernels.kernel_for(node), KernelDef)), (
                    f"'{node.name}' ({node.op_type}) has a kernel and is left without a reason"
                )


def _graphs(subject: Subject, seed: int) -> list[Graph]:
    """Random ones, a chain, a random one of unknown ranks, and a long one with nodes between that nobody has."""
    made = [dag(subject, np.random.default_rng([seed, n])) for n in range(GRAPHS)]
    unknown = dag(subject, np.random.default_rng([seed, GRAPHS]))
    for value in unknown.graph.input:
        value.type.tensor_type.ClearField("shape")
    return [graph_of(each) for each in (*made, chain(subject, 8), unknown, _interrupted(subject))]


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


def _answers(instance: Any, graph: Graph) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    kernels = Lookup(instance)
    for answer in instance.call("get_capability", graph=graph, kernels=kernels) or ():
        if isinstance(answer, Claim):
            found.append(("claim", answer.fused, tuple(n.name for n in answer.nodes)))
        else:
            found.append((type(answer).__name__, getattr(answer, "reason", ""), answer.node.name))
    return found


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


def _is_convex(graph: Graph, inside: set[str]) -> bool:
    """No path leaves ``inside`` and comes back."""
    left: set[str] = set()
    for node in graph.nodes:
        producers = {v.producer.name for v in node.inputs if v is not None and v.producer is not None}
        if node.name in inside:
            if producers & left:
                return False
        elif producers & (inside | left):
            left.add(node.name)
    return True
