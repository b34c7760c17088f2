"""Placement from claims: who owns what whatever providers answer, and typed errors for what is no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from core_graphs import ELEMENTWISE, Drawn, drawn_models, expected, model, row, same
from core_providers import CPU, RULES, OwnProvider, offered
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxplug
from onnxplug.contract import Claim, CompiledRegion, Decline, Inline, KernelDef, KernelRegistry
from onnxplug.contract.errors import STATUS_ERRORS, Fail
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.graph import Graph, Node, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model
from onnxplug.place import SessionProvider
from onnxplug.place.partition import Group, Partitioner

BODILESS = ("Add", "Sub", "Neg", "Abs", "Identity", "MatMul")  # others have a schema body, which Inline would open
OPS = {"Add": 14, "Sub": 14, "Max": 13, "Min": 13, "Neg": 13, "Abs": 13, "Relu": 14, "Identity": 21, "MatMul": 13}


def graph_of(source: bytes) -> Graph:
    graph = build_graph(load_model(source, ""), Schemas([]))
    infer_graph(graph)
    return graph


def registry(ops: Iterable[str]) -> KernelRegistry:
    return KernelRegistry(KernelDef("", op, OPS[op], lambda node: None) for op in ops)


@dataclass(frozen=True)
class Said:
    """One answer of a drawn provider; nodes by number."""

    kind: str
    nodes: tuple[int, ...]


def provider(name: str, answers: Callable[[Graph], Any], ops: Iterable[str] = OPS, compiles: bool = True) -> Any:
    def call(hook: str, **arguments: Any) -> Any:
        assert hook == "get_capability"
        return answers(arguments["graph"])

    return SessionProvider(name, name, call, registry(ops), compiles=compiles)


def answering(said: Sequence[Said]) -> Callable[[Graph], Iterator[Any]]:
    def answers(graph: Graph) -> Iterator[Any]:
        for number, each in enumerate(said):
            nodes = [graph.nodes[n] for n in each.nodes if n < len(graph.nodes)]
            if each.kind in ("claim", "fused"):
                yield Claim(nodes, f"r{number}" if each.kind == "fused" else None)
            elif nodes:
                yield Decline(nodes[0], "not today") if each.kind == "decline" else Inline(nodes[0])

    return answers


SAID = st.builds(
    Said,
    st.sampled_from(["claim", "fused", "fused", "fused", "decline", "inline"]),
    st.lists(st.integers(0, 13), min_size=1, max_size=7).map(tuple),
)
ANSWERS = st.lists(st.lists(SAID, max_size=6), min_size=1, max_size=3)


def placed(graph: Graph, all_said: Sequence[Sequence[Said]]) -> tuple[list[Group], Partitioner]:
    last = provider("Last", lambda g: [Claim([n]) for n in g.nodes])
    providers = [provider(f"P{i}", answering(said)) for i, said in enumerate(all_said)]
    partitioner = Partitioner([*providers, last], lambda g: None)
    return partitioner.partition(graph), partitioner


def edges(graph: Graph) -> list[tuple[Node, Node]]:
    return [(v.producer, n) for n in graph.nodes for v in n.reads if v.producer is not None]


def is_acyclic(graph: Graph, parts: Sequence[Sequence[Node]]) -> bool:
    """Whether the graph stays acyclic when each part becomes one node."""
    part_of: dict[Node, Any] = {n: n for n in graph.nodes}
    for number, part in enumerate(parts):
        part_of.update(dict.fromkeys(part, number))
    after: dict[Any, set[Any]] = {part: set() for part in part_of.values()}
    for before, behind in edges(graph):
        if part_of[before] != part_of[behind]:
            after[part_of[behind]].add(part_of[before])
    while after:
        free = [part for part, waits in after.items() if not waits]
        if not free:
            return False
        for part in free:
            del after[part]
        for waits in after.values():
            waits.difference_update(free)
    return True


def should_own(graph: Graph, all_said: Sequence[Sequence[Said]]) -> tuple[dict[Node, tuple[str, str | None]], set[Any]]:
    """Owners by the contract's words: claims in order, each whole or not at all; and (node, provider) of those refused
    for not being convex."""
    owners: dict[Node, tuple[str, str | None]] = {}
    fused: list[list[Node]] = []
    bent: set[Any] = set()
    for number, said in enumerate(all_said):
        for at, each in enumerate(said):
            nodes = [graph.nodes[n] for n in dict.fromkeys(each.nodes) if n < len(graph.nodes)]
            if each.kind not in ("claim", "fused") or any(n in owners for n in nodes):
                continue
            if each.kind == "fused" and not is_acyclic(graph, [*fused, nodes]):
                bent.update((n, f"P{number}") for n in nodes)
                continue
            if each.kind == "fused":
                fused.append(nodes)
            owners.update(dict.fromkeys(nodes, (f"P{number}", f"r{at}" if each.kind == "fused" else None)))
    return {n: owners.get(n, ("Last", None)) for n in graph.nodes}, bent


@given(drawn_models(BODILESS), ANSWERS)
@settings(max_examples=300, deadline=None)
def test_random_claims_on_random_graphs(drawn: Drawn, all_said: list[list[Said]]) -> None:
    graph = graph_of(drawn.bytes())
    wanted, bent = should_own(graph, all_said)
    groups, partitioner = placed(graph, all_said)

    assert sorted(n.name for g in groups for n in g.nodes) == sorted(n.name for n in graph.nodes), "each node once"
    owners = {n: (g.provider.name, g.fused) for g in groups if g.provider for n in g.nodes}
    assert owners == wanted
    assert all(len(g.nodes) == 1 and isinstance(g.definition, KernelDef) for g in groups if g.fused is None)

    position = {n: at for at, g in enumerate(groups) for n in g.nodes}
    for before, behind in edges(graph):
        assert position[before] < position[behind] or groups[position[before]] is groups[position[behind]]
        assert position[before] <= position[behind]

    for node in graph.nodes:
        reasons = partitioner.reasons.of(node)
        for number in range(len(all_said)):
            name = f"P{number}"
            assert (name in reasons) or owners[node][0] == name, "every provider that could have had it says why not"
            if (node, name) in bent and owners[node][0] == "Last" and reasons[name] != "not today":
                assert (
                    "not convex" in reasons[name] or "claim dropped" in reasons[name] or "it has none" in reasons[name]
                )

    again, _ = placed(graph, all_said)
    assert [(g.nodes, g.fused) for g in again] == [(g.nodes, g.fused) for g in groups], "asked twice, the same"


@given(drawn_models(ELEMENTWISE))
@settings(max_examples=60, deadline=None)
def test_order_is_kept_where_nothing_is_fused(drawn: Drawn) -> None:
    graph = graph_of(drawn.bytes())
    assert [g.nodes for g in placed(graph, [[]])[0]] == [[n] for n in graph.nodes]


DIAMOND = "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { [n0] p = Neg(x) [n1] q = Abs(p) [n2] r = Neg(p) [n3] a = Add(q, r) }"


def reasons_of(graph: Graph, *all_said: Sequence[Said]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    groups, partitioner = placed(graph, all_said)
    owners = {n.name: g.provider.name for g in groups if g.provider for n in g.nodes}
    return owners, {n.name: dict(partitioner.reasons.of(n)) for n in graph.nodes}


def test_a_claim_that_leaves_and_comes_back_is_refused() -> None:
    owners, reasons = reasons_of(graph_of(model(DIAMOND)), [Said("fused", (0, 3))])
    assert set(owners.values()) == {"Last"}
    assert reasons["n0"] == {"P0": "region 'r0' is not convex"} == reasons["n3"]
    owners, _ = reasons_of(graph_of(model(DIAMOND)), [Said("fused", (0, 1, 2, 3))])
    assert set(owners.values()) == {"P0"}


def test_a_region_has_its_nodes_in_the_order_of_the_graph() -> None:
    """However the claim lists them: shapes are inferred node by node."""
    groups, _ = placed(graph_of(model(DIAMOND)), [[Said("fused", (3, 1, 0, 2))]])
    assert [[n.name for n in group.nodes] for group in groups] == [["n0", "n1", "n2", "n3"]]


def test_two_regions_must_not_wait_for_each_other() -> None:
    graph = graph_of(
        model(
            "g (float[N,4] x, float[N,4] y) => (float[N,4] c, float[N,4] d) { [n0] a = Neg(x) [n1] b = Abs(y) "
            "[n2] c = Add(a, y) [n3] d = Sub(b, a) }"
        )
    )
    owners, reasons = reasons_of(graph, [Said("fused", (0, 3))], [Said("fused", (1, 2))])
    assert owners == {"n0": "P0", "n1": "Last", "n2": "Last", "n3": "P0"}
    assert reasons["n1"]["P1"] == "region 'r0' is not convex"


def test_a_claim_is_dropped_whole_and_says_for_whom() -> None:
    owners, reasons = reasons_of(graph_of(model(DIAMOND)), [Said("claim", (1,))], [Said("claim", (1, 2))])
    assert owners == {"n0": "Last", "n1": "P0", "n2": "Last", "n3": "Last"}
    assert reasons["n2"]["P1"] == "claim dropped: 'n1' belongs to P0"
    assert reasons["n1"]["P1"] == "taken by P0, which has priority"


def test_reasons_that_providers_give_are_kept() -> None:
    _, reasons = reasons_of(graph_of(model(DIAMOND)), [Said("decline", (2,))], [])
    assert reasons["n2"] == {"P0": "not today", "P1": "not claimed by get_capability"}


def test_a_missing_kernel_is_a_reason_and_for_all_providers_an_error() -> None:
    graph = graph_of(model(DIAMOND))
    few = provider("Few", lambda g: [Claim([n]) for n in g.nodes if n.op_type == "Neg"], ["Neg"])
    with pytest.raises(OrtNotImplemented, match=r"Abs\(13\) node with name 'n1' \(Few: no kernel for Abs\)"):
        Partitioner([few], lambda g: None).partition(graph)


# ---- functions


FUNCTIONS = (
    "g (float[N,4] x, float[N,4] y) => (float[N,4] a) { [n0] p = local.twice(x) [n1] a = Add(p, y) } "
    '<domain: "local", opset_import: ["": 21, "local": 1]> twice (v) => (w) { u = local.half(v) w = Add(u, u) } '
    '<domain: "local", opset_import: ["": 21]> half (v) => (w) { u = Neg(v) w = Neg(u) }'
)


def test_a_function_is_offered_whole_and_opened_when_nobody_takes_it() -> None:
    seen: list[list[str]] = []

    def watch(graph: Graph) -> list[Any]:
        seen.append([n.op_type for n in graph.nodes])
        return [Claim([n]) for n in graph.nodes if n.op_type in OPS]

    partitioner = Partitioner([provider("P", watch)], lambda g: None)
    groups = partitioner.partition(graph_of(model(FUNCTIONS)))
    assert seen == [["twice", "Add"], ["half", "Add", "Add"], ["Neg", "Neg", "Add", "Add"]]
    assert [g.nodes[0].op_type for g in groups] == seen[-1]
    assert (
        partitioner.reasons.inlined == [("n0", "local.twice"), ("n0/half_0", "local.half")]
        or len(partitioner.reasons.inlined) == 2
    )


def test_a_function_taken_whole_stays_whole() -> None:
    whole = provider("Whole", lambda g: [Claim([n], "f") for n in g.nodes if n.op_type == "twice"])
    rest = provider("Rest", lambda g: [Claim([n]) for n in g.nodes if n.op_type in OPS])
    for order in ([whole, rest], [rest, whole]):
        groups = Partitioner(order, lambda g: None).partition(graph_of(model(FUNCTIONS)))
        assert [(n.op_type, g.provider.name) for g in groups for n in g.nodes if g.provider] == [
            ("twice", "Whole"), ("Add", "Rest"),
        ]  # fmt: skip


def test_asking_for_the_body_beats_a_lower_providers_claim() -> None:
    def opener(graph: Graph) -> Iterator[Any]:
        for node in graph.nodes:
            yield Inline(node) if node.domain == "local" else Claim([node])

    whole = provider("Whole", lambda g: [Claim([n], "f") for n in g.nodes if n.domain == "local"])
    groups = Partitioner([provider("Opener", opener), whole], lambda g: None).partition(graph_of(model(FUNCTIONS)))
    assert {g.provider.name for g in groups if g.provider} == {"Opener"} and len(groups) == 4
    groups = Partitioner([whole, provider("Opener", opener)], lambda g: None).partition(graph_of(model(FUNCTIONS)))
    assert [g.provider.name for g in groups if g.provider] == ["Whole", "Opener"]


def test_asking_for_the_body_of_what_has_none_is_harmless() -> None:
    curious = provider("Curious", lambda g: [Inline(n) for n in g.nodes])
    last = provider("Last", lambda g: [Claim([n]) for n in g.nodes])
    partitioner = Partitioner([curious, last], lambda g: None)
    groups = partitioner.partition(graph_of(model(DIAMOND)))
    assert [g.provider.name for g in groups if g.provider] == ["Last"] * 4
    assert all("it has none" in partitioner.reasons.of(g.nodes[0])["Curious"] for g in groups)


# ---- misbehaviour, as users of a session see it


def foreign(graph: Any) -> Any:
    other = graph_of(model(DIAMOND))
    return [Claim([other.nodes[0]])]


def lazy(graph: Any) -> Iterator[Any]:
    def answers() -> Iterator[Any]:
        yield Claim([graph.nodes[0]])
        raise KeyError("halfway")

    return iter(map(lambda answer: answer, answers()))


ANSWERS_THAT_ARE_NONE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no iterable": (lambda g: 5, "int"),
    "something else": (lambda g: ["Neg"], "Neg"),
    "nodes themselves": (lambda g: list(g.nodes), "Node"),
    "a claim of one node, not of a list": (lambda g: [Claim(g.nodes[0])], "Node"),
    "a claim of names": (lambda g: [Claim(["n0"])], "n0"),
    "a claim of nothing": (lambda g: [Claim([None])], "None"),
    "a foreign node": (foreign, "not in graph"),
    "a decline of a name": (lambda g: [Decline("n0", "no")], "n0"),
    "an exception": (lambda g: 1 / 0, "ZeroDivisionError"),
    "an exception halfway": (lazy, "halfway"),
    "a claim without a kernel": (lambda g: [Claim([n for n in g.nodes if n.op_type == "Softmax"])], "no kernel"),
}


@pytest.mark.parametrize("way", ANSWERS_THAT_ARE_NONE)
def test_what_is_no_answer_is_an_error_that_names_the_provider(way: str) -> None:
    answer, text = ANSWERS_THAT_ARE_NONE[way]

    class Odd(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return answer(graph)

    source = model(DIAMOND.replace("r = Neg", "r = Softmax"))
    with offered(Odd=Odd) as made:
        with pytest.raises(Fail, match=rf"(?s)Odd.*{text}"):
            onnxplug.InferenceSession(source, providers=["Odd", CPU])
        assert made["Odd"][-1].closed, "nothing is left half made"


@pytest.mark.parametrize("nothing", [None, [], (), iter(())])
def test_saying_nothing_is_fine(nothing: Any) -> None:
    class Silent(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            return nothing

    with offered(Silent=Silent):
        session = onnxplug.InferenceSession(model(DIAMOND), providers=["Silent", CPU])
        assert set(session.placement().values()) == {CPU}
        assert {n["reasons"]["Silent"] for n in session.explain().nodes} == {"not claimed by get_capability"}


def test_empty_and_repeated_claims_are_harmless() -> None:
    class Stuttering(OwnProvider):
        def get_capability(self, graph: Any, kernels: Any) -> Any:
            first, second, *_ = graph.nodes
            return [
                Claim([]),
                Claim([], "empty"),
                Claim([first, first]),
                Claim([second, second], "twice"),
                Claim([first]),
            ]

        def compile(self, regions: Any) -> Any:
            return [Second() for _ in regions]

    class Second(CompiledRegion):
        def __call__(self, context: Any, *inputs: Any) -> Any:
            return [RULES["Abs"](inputs[0])]

    feeds = {"x": row(2), "y": row(2)}
    with offered(Odd=Stuttering):
        session = onnxplug.InferenceSession(model(DIAMOND), providers=["Odd", CPU])
        assert session.placement() == {"n0": "Odd", "n1": "Odd", "n2": CPU, "n3": CPU}
        same(session.run(None, feeds), expected(model(DIAMOND), feeds))


@given(drawn_models(), st.data())
@settings(max_examples=60, deadline=None)
def test_results_do_not_depend_on_who_runs_what(drawn: Drawn, data: Any) -> None:
    names = [n.name for n in drawn.nodes]
    wanted = [data.draw(st.sets(st.sampled_from(names))) for _ in range(2)]
    source, feeds = drawn.bytes(), {"x": row(3), "y": row(3, 1)}
    with offered(A=lambda: OwnProvider(wanted=wanted[0]), B=lambda: OwnProvider(wanted=wanted[1], form="returns")):
        session = onnxplug.InferenceSession(source, providers=["A", "B", CPU])
        placement = session.placement()
        assert all(placement.get(n) != "B" for n in wanted[0] if placement.get(n) == "A")
        same(session.run(None, feeds), expected(source, feeds))


def test_status_errors_of_a_provider_pass_as_they_are() -> None:
    for error in STATUS_ERRORS:

        class Refusing(OwnProvider):
            def get_capability(self, graph: Any, kernels: Any, error: Any = error) -> Any:
                raise error("so be it")

        with offered(Odd=Refusing), pytest.raises(error, match="so be it"):
            onnxplug.InferenceSession(model(DIAMOND), providers=["Odd", CPU])
