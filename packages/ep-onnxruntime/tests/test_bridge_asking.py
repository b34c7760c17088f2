"""How a provider is asked that takes a part of what it is given: one made up here, that answers as onnxruntime's session does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest
from bridge_models import model

from onnxplug.contract import Claim
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model
from onnxplug_ep_onnxruntime.capability import Capability

ACME = "AcmeExecutionProvider"
CHAIN = """agraph (float[N] x) => (float[N] y, float[N] z) {
    a = Exp(x)
    b = Sin(a)
    c = Sqrt(b)
    y = Cos(c)
    z = Tan(a)
}"""
Takes = Callable[[list[onnx.NodeProto]], set[str]]


class Node:
    def __init__(self, name: str) -> None:
        self.name = name


class Part:
    def __init__(self, ep_name: str, names: list[str]) -> None:
        self.ep_name, self._names = ep_name, names

    def get_nodes(self) -> list[Node]:
        return [Node(name) for name in self._names]


class Acme:
    """Stands for a ``Maker``: takes the nodes that ``takes`` names. With ``fuses`` those left over have lost their names, but in a session
    without optimization; ``fails`` names a node whose presence is an error."""

    is_cpu, exact, ep = False, False, ACME

    def __init__(self, takes: Takes, fuses: bool = False, fails: str = "") -> None:
        self.takes, self.fuses, self.fails = takes, fuses, fails
        self.asked: list[list[str]] = []

    def session(self, source: bytes, constants: Any, exactly: bool = False) -> Any:
        nodes = list(onnx.ModelProto.FromString(source).graph.node)
        self.asked.append([node.name for node in nodes])
        if any(node.op_type == self.fails for node in nodes):
            raise RuntimeError("something is not right")
        taken = self.takes(nodes)
        left = [name for name in all_names(nodes) if name not in taken]
        if self.fuses and not exactly:
            left = [f"{name}/fused" for name in left]
        parts = [Part(ACME, sorted(taken)), *([Part("CPUExecutionProvider", left)] if left else [])]
        return type("Session", (), {"get_provider_graph_assignment_info": lambda self: parts})()


def all_names(nodes: Any) -> Iterator[str]:
    for node in nodes:
        yield node.name
        for attribute in node.attribute:
            yield from all_names(attribute.g.node)


def without(*operators: str) -> Takes:
    return lambda nodes: {n.name for n in nodes if n.op_type not in operators}


def whole_or_nothing(nodes: list[onnx.NodeProto]) -> set[str]:
    return set() if any(n.op_type == "Sqrt" for n in nodes) else {n.name for n in nodes}


def answers(maker: Acme, text: str = CHAIN) -> tuple[list[list[str]], dict[str, str]]:
    """The groups claimed, and the reasons for the other nodes."""
    graph: Graph = build_graph(load_model(model(text)), Schemas())
    infer_graph(graph)
    lookup = type("Lookup", (), {"owner": lambda self, node: None, "kernel_for": None})()
    capability = Capability(maker, "acme")  # type: ignore[arg-type]
    claims, reasons = [], {}
    for answer in capability.answers(graph, lookup):
        if isinstance(answer, Claim):
            claims.append([node.name for node in answer.nodes])
        else:
            reasons[answer.node.name] = answer.reason
    assert [c for c in claims if c] == claims
    return claims, reasons


def test_what_is_taken_whole_is_asked_about_once() -> None:
    maker = Acme(without())
    assert answers(maker) == ([["Exp_0", "Sin_0", "Sqrt_0", "Cos_0", "Tan_0"]], {})
    assert len(maker.asked) == 1


@pytest.mark.parametrize("fuses", [False, True])
def test_what_is_left_over_is_declined_and_the_rest_asked_about_again(fuses: bool) -> None:
    maker = Acme(without("Sqrt"), fuses)
    claims, reasons = answers(maker)
    assert claims == [["Exp_0", "Sin_0", "Tan_0"], ["Cos_0"]]
    assert reasons == {"Sqrt_0": f"{ACME} leaves it to onnxruntime's CPU provider"}
    assert len(maker.asked) == (4 if fuses else 3)


def test_one_that_takes_all_or_nothing() -> None:
    claims, reasons = answers(Acme(whole_or_nothing))
    assert claims == [["Exp_0", "Sin_0", "Tan_0"], ["Cos_0"]] and list(reasons) == ["Sqrt_0"]


def test_one_that_takes_nothing() -> None:
    claims, reasons = answers(Acme(lambda nodes: set()))
    assert claims == [] and len(reasons) == 5


def test_an_error_that_names_nothing_is_found_by_halves() -> None:
    maker = Acme(without(), fails="Cos")
    claims, reasons = answers(maker)
    assert claims == [["Exp_0", "Sin_0", "Sqrt_0", "Tan_0"]] and reasons == {"Cos_0": "something is not right"}


def test_nodes_that_go_only_apart() -> None:
    def lonely(nodes: list[onnx.NodeProto]) -> set[str]:
        if len(nodes) > 1:
            raise RuntimeError("one at a time")
        return {n.name for n in nodes}

    claims, reasons = answers(Acme(lonely))
    assert [len(group) for group in claims] == [1] * len(claims) and len(claims) + len(reasons) == 5
    assert all("one at a time" in reason for reason in reasons.values())


def test_a_construct_whose_body_is_not_taken_is_not_taken() -> None:
    text = """agraph (float[N] x, bool c) => (float[N] y) {
        a = Exp(x)
        y = If(c) <
            then_branch = yes () => (float[N] p) { p = Sqrt(a) },
            else_branch = no () => (float[N] q) { q = Sin(a) }
        >
    }"""
    claims, reasons = answers(Acme(without("Sqrt")), text)
    assert claims == [["Exp_0"]] and list(reasons) == ["If_0"]
    claims, reasons = answers(Acme(lambda nodes: set(all_names(nodes))), text)
    assert claims == [["Exp_0", "If_0"]] and not reasons


def test_strings_are_not_offered_to_others_than_the_cpu() -> None:
    maker = Acme(without())
    claims, reasons = answers(
        maker, "agraph (string[N] s, float[N] x) => (string[N] t, float[N] y) { t = Identity(s) y = Exp(x) }"
    )
    assert claims == [["Exp_0"]] and reasons == {"Identity_0": "tensor(string) is for onnxruntime's CPU provider only"}
