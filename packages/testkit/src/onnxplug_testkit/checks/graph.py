"""L3: claims over graphs, and graphs run in one session with other providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract import Claim, Decline, KernelDef
from onnxplug.graph import Graph
from onnxplug_testkit import neighbour
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.kernels.cells import Claimed, parameters, schemas
from onnxplug_testkit.kernels.retarget import retarget
from onnxplug_testkit.kernels.structures import structures
from onnxplug_testkit.models import CPU, UNARY, Lookup, chain, dag, expected, graph_of, model, open_session, taken
from onnxplug_testkit.rounding import bounds
from onnxplug_testkit.subject import Subject

GRAPHS = 8
FOREIGN = ("Mish", "HardSwish", "Atanh", "Erf", "Softsign", "Gelu", "LpNormalization")
"""Operators of which a small provider has no kernel; of the last, a large one."""
RTOL, ATOL = 1e-4, 1e-5


@check("graph.capability_is_pure")
def capability_is_pure(subject: Subject, seed: int) -> None:
    """``get_capability`` asked twice answers the same and leaves the graph as it was; a second instance answers the same too."""
    for graph in _graphs(subject, seed):
        before = _described(graph)
        with subject.instance() as instance, subject.instance() as other:
            answers = [_answers(i, graph) for i in (instance, instance, other)]
        assert answers[0] == answers[1], "asked again about the same graph, get_capability answers otherwise"
        assert answers[0] == answers[2], "two instances answer otherwise about the same graph"
        assert _described(graph) == before, "get_capability changes the graph"


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


@check("graph.claims_are_registered")
def claims_are_registered(subject: Subject, seed: int) -> None:
    """Nodes for which the registry has no kernel are not claimed, not as regions either: the registry is what the kit tries."""
    with subject.instance() as instance:
        registered = {(d.domain, d.op_type) for d in instance.call("get_kernel_registry") or ()}
        for key, known in structures().items():
            schema = schemas().get(known[0].key)
            if key in registered or schema is None:
                continue
            target = retarget(known[0], Claimed(known[0].key, parameters(schema)), {})
            if target is not None:
                answers = (
                    instance.call("get_capability", graph=graph_of(target.model()), kernels=Lookup(instance)) or ()
                )
                claimed = any(isinstance(answer, Claim) for answer in answers)
                assert not claimed, f"{key[1]} is claimed, the registry has no kernel for it"


@check("graph.random_graphs")
def random_graphs(subject: Subject, seed: int) -> None:
    """Random graphs give the oracle's results, and everything runs on the subject."""
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        with open_session(subject, made) as session:
            owners = set(session.placement().values())
            assert owners == {subject.name}, (
                f"nodes of operators the subject claims alone are placed on {sorted(owners)}"
            )
            _compare_runs(session, made, rng, subject)


@check("graph.shared_sessions")
def shared_sessions(subject: Subject, seed: int) -> None:
    """Random graphs give the oracle's results when half of the nodes run on another provider's device."""
    ahead = [neighbour.settle_in()]
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        with open_session(subject, made, ahead=ahead) as session:
            _compare_runs(session, made, rng, subject)


@check("graph.outputs_are_apart")
def outputs_are_apart(subject: Subject, seed: int) -> None:
    """Values that are read further on and outputs as well keep their own memory."""
    rng = np.random.default_rng(seed)
    operators = taken(subject)
    nodes, outputs = [], []
    source = "x"
    for index in range(len(operators) + 2):
        op_type = operators[index % len(operators)]
        nodes.append(
            helper.make_node(op_type, [source] if op_type in UNARY else [source, "x"], [f"v{index}"], f"step{index}")
        )
        source = f"v{index}"
        outputs.append(source)
    made = model(nodes, {"x": ("n", 16)}, outputs)
    x = rng.standard_normal((4, 16)).astype(np.float32)
    with open_session(subject, made) as session:
        kept = x.copy()
        got = session.run(None, {"x": x})
        assert x.tobytes() == kept.tobytes(), "a run changes its input"
        for one in range(len(got)):
            assert not np.shares_memory(got[one], x), f"output {outputs[one]} shares memory with the input"
            for two in range(one):
                assert not np.shares_memory(got[one], got[two]), (
                    f"outputs {outputs[two]} and {outputs[one]} share memory"
                )
        agree(got, expected(made, {"x": x}, subject.name))


@check("graph.control_flow")
def control_flow(subject: Subject, seed: int) -> None:
    """Bodies of If and Loop run on the subject, with values captured from outside, and give the oracle's results."""
    made = _loop_and_if(taken(subject)[0])
    with open_session(subject, made) as session:
        body = {name: owner for name, owner in session.placement().items() if "work" in name}
        assert body and set(body.values()) == {subject.name}, f"nodes in the bodies are placed on {body}"
        for flag in (True, False):
            for trips in (0, 1, 4):
                x = np.random.default_rng(seed).standard_normal((3, 16)).astype(np.float32)
                feeds = {"x": x, "flag": np.array(flag), "trips": np.array(trips, np.int64)}
                agree(session.run(None, feeds), expected(made, feeds, subject.name))


@check("graph.dynamic_shapes")
def dynamic_shapes(subject: Subject, seed: int) -> None:
    """One session serves shapes that change from run to run, empty ones among them, in any order."""
    rng = np.random.default_rng(seed)
    made = chain(subject, 5, ("n", "m"))
    with open_session(subject, made) as session:
        for shape in [(2, 16), (1, 1), (0, 16), (257, 3), (2, 16), (5, 0), *((n, 7) for n in range(1, 20)), (2, 16)]:
            x = rng.standard_normal(shape).astype(np.float32)
            agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name))


@check("graph.io_binding")
def io_binding(subject: Subject, seed: int) -> None:
    """Inputs and outputs can be bound, run again with other data, and held on the device between two runs."""
    rng = np.random.default_rng(seed)
    made = chain(subject)
    with subject.instance() as instance:
        allocators = instance.call("create_allocators")
        device = allocators[0].device if allocators else None
    kind, index = (device.kind, device.id) if device is not None else ("cpu", 0)
    with open_session(subject, made) as session:
        for _ in range(3):
            x = rng.standard_normal((6, 16)).astype(np.float32)
            want = expected(made, {"x": x}, subject.name)
            binding = session.io_binding()
            binding.bind_cpu_input("x", x)
            binding.bind_output("y", kind, index)
            session.run_with_iobinding(binding)
            value = binding.get_outputs()[0]
            agree([value.numpy()], want)
            binding.bind_ortvalue_input("x", value)
            session.run_with_iobinding(binding)
            agree(binding.copy_outputs_to_cpu(), expected(made, {"x": want[0]}, subject.name))
            agree([value.numpy()], want)


@check("graph.others_take_the_rest")
def others_take_the_rest(subject: Subject, seed: int) -> None:
    """Nodes the subject does not take run on the CPU provider with a recorded reason, and values cross both ways."""
    if subject.name == CPU:
        raise Unsupported("claimed", "there is nothing behind the CPU provider")
    own = taken(subject)[0]
    for foreign in FOREIGN:
        made = _between(own, foreign)
        with open_session(subject, made, CPU) as session:
            if session.placement().get("foreign") == subject.name:
                continue
            reasons = next((n["reasons"] for n in session.explain().nodes if n["name"] == "foreign"), {"": "opened"})
            assert any(text.strip() for text in reasons.values()), (
                f"there is no reason why {foreign} is not on the subject"
            )
            x = np.random.default_rng(seed).uniform(-0.9, 0.9, (3, 16)).astype(np.float32)
            agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name))
            return
    raise Unsupported("claimed", "the subject takes every operator this check knows")


def _between(own: str, foreign: str) -> onnx.ModelProto:
    def node(op_type: str, source: str, target: str, name: str) -> onnx.NodeProto:
        return helper.make_node(op_type, [source] * (1 if op_type not in ("Add", "Mul", "Sub") else 2), [target], name)

    nodes = [
        node(own, "x", "a", "before"),
        node("Sigmoid", "a", "s", "bounded"),
        node(foreign, "s", "b", "foreign"),
        node(own, "b", "y", "after"),
    ]
    return model(nodes, {"x": ("n", 16)}, ["y"], opset=20)


def _loop_and_if(op_type: str) -> onnx.ModelProto:
    """y = If(flag, Loop(trips, v = op(v)), op(x)); both bodies read x from outside."""

    def work(source: str, target: str, name: str) -> onnx.NodeProto:
        return helper.make_node(op_type, [source] if op_type in UNARY else [source, "x"], [target], name)

    def info(
        name: str, shape: Sequence[Any] | None = ("n", 16), element: int = TensorProto.FLOAT
    ) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element, None if shape is None else list(shape))

    body = helper.make_graph(
        [work("v", "w", "loop_work")],  # and no Identity of the condition, which the subject need not have
        "body",
        [info("i", (), TensorProto.INT64), info("go", (), TensorProto.BOOL), info("v")],
        [info("go", (), TensorProto.BOOL), info("w")],
    )
    then = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["t"], "loop", body=body)], "then", [], [info("t")]
    )
    other = helper.make_graph([work("x", "e", "else_work")], "else", [], [info("e")])
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], "if", then_branch=then, else_branch=other)],
        "control",
        [info("x"), info("flag", (), TensorProto.BOOL), info("trips", (), TensorProto.INT64)],
        [info("y", None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _graphs(subject: Subject, seed: int) -> list[Graph]:
    return [graph_of(dag(subject, np.random.default_rng([seed, n]))) for n in range(GRAPHS)] + [
        graph_of(chain(subject, 8))
    ]


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


def _compare_runs(
    session: onnxplug.InferenceSession, made: onnx.ModelProto, rng: np.random.Generator, subject: Subject
) -> None:
    for rows in (3, 1, 3):
        feeds = {name: rng.standard_normal((rows, 16)).astype(np.float32) for name in ("x", "z")}
        errors = bounds(made, feeds)
        agree(session.run(None, feeds), expected(made, feeds, subject.name), [2 * error for error in errors])


def agree(got: Sequence[Any], want: Sequence[Any], errors: Sequence[np.ndarray] | None = None) -> None:
    """``errors``: how much elements may differ where that is finite; default: as RTOL and ATOL say."""
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (
            f"output {index} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        )
        if errors is None:
            wrong = ~np.isclose(a, b, RTOL, ATOL)
        else:
            wrong = np.isfinite(errors[index]) & ~(np.abs(a - b) <= errors[index])
        assert not wrong.any(), f"output {index} differs from the oracle by {float(np.abs(a - b)[wrong].max()):.3g}"
