"""L3: graphs of many nodes run, alone and in one session with other providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import onnxplug
from onnxplug_testkit import neighbour
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.claims import GRAPHS
from onnxplug_testkit.models import BINARY, CPU, UNARY, bound, chain, dag, expected, model, nested, open_session, taken
from onnxplug_testkit.rounding import bounds
from onnxplug_testkit.space import place_of
from onnxplug_testkit.subject import Subject

FOREIGN = ("Mish", "HardSwish", "Atanh", "Erf", "Softsign", "Gelu", "LpNormalization")
"""Operators of which a small provider has no kernel; of the last, a large one."""
FEW = 3
"""Every so many nodes of a chain there is one of another provider's, so that what is between is a region each."""
DROPPED = "claim dropped"
"""How the reason begins that the core notes where a region holds what others have."""
RTOL, ATOL = 1e-4, 1e-5
ROWS = 2048
"""Enough that the core has bound results written at once, rather than copied."""
LARGE = 70_000
"""Rows, and so many that neither they nor the elements of tensors with 16 columns can be counted as some devices count groups."""


@check("graph.random_graphs")
def random_graphs(subject: Subject, seed: int) -> None:
    """Random graphs give the oracle's results, and run on the subject but for nodes, not all, that it declines with a reason."""
    met = False
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        with open_session(subject, made) as session:
            owners = set(session.placement().values())
            assert owners <= {subject.name, CPU}, (
                f"nodes of operators the subject claims alone are placed on {sorted(owners)}"
            )
            met |= subject.name in owners
            compare_runs(session, made, rng, subject)
    assert met, f"of {GRAPHS} graphs of operators the subject claims alone it takes no node"


@check("graph.shared_sessions")
def shared_sessions(subject: Subject, seed: int) -> None:
    """Random graphs give the oracle's results when half of the nodes are another provider's, which are in no region of the subject's."""
    ahead = [neighbour.settle_in()]
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        with open_session(subject, made, ahead=ahead) as session:
            for node in session.explain().nodes:
                why = node["reasons"].get(subject.name, "")
                assert not why.startswith(DROPPED), (
                    f"'{node['name']}' is lost to others ({why}): kernels.owner(node) says which nodes are taken"
                )
            compare_runs(session, made, rng, subject)


@check("graph.outputs_are_apart")
def outputs_are_apart(subject: Subject, seed: int) -> None:
    """Values that are read further on and outputs as well keep their own memory, also those of several regions, on the device too."""
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
        _are_apart(session, made, x, subject)
    for node in made.graph.node[FEW - 1 :: FEW]:
        node.name += "_b"  # which the neighbour takes
    with open_session(subject, made, ahead=[neighbour.settle_in()]) as session:
        _are_apart(session, made, x, subject)
        want = expected(made, {"x": x}, subject.name)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        for name in outputs:
            binding.bind_output(name, *place_of(subject))
        session.run_with_iobinding(binding)
        agree([value.numpy() for value in binding.get_outputs()], want, what="held on the device")


def _are_apart(session: onnxplug.InferenceSession, made: onnx.ModelProto, x: np.ndarray, subject: Subject) -> None:
    """AssertionError where results share memory with each other or the input, or are wrong."""
    outputs, kept = [output.name for output in made.graph.output], x.copy()
    got = session.run(None, {"x": x})
    assert x.tobytes() == kept.tobytes(), "a run changes its input"
    for one in range(len(got)):
        assert not np.shares_memory(got[one], x), f"output {outputs[one]} shares memory with the input"
        for two in range(one):
            assert not np.shares_memory(got[one], got[two]), f"outputs {outputs[two]} and {outputs[one]} share memory"
    agree(got, expected(made, {"x": x}, subject.name))


@check("graph.control_flow")
def control_flow(subject: Subject, seed: int) -> None:
    """Bodies of If and Loop run on the subject, with values captured from outside, and give the oracle's results."""
    made = nested(subject)
    rng = np.random.default_rng(seed)
    with open_session(subject, made) as session:
        body = {name: owner for name, owner in session.placement().items() if "work" in name}
        assert body and set(body.values()) == {subject.name}, f"nodes in the bodies are placed on {body}"
        for flag in (True, False):
            for trips in (0, 1, 4):
                x = rng.standard_normal((3, 16)).astype(np.float32)
                feeds = {"x": x, "flag": np.array(flag), "trips": np.array(trips, np.int64)}
                agree(session.run(None, feeds), expected(made, feeds, subject.name))


@check("graph.dynamic_shapes")
def dynamic_shapes(subject: Subject, seed: int) -> None:
    """One session serves shapes that change from run to run, empty ones and one of 70000 rows among them, in any order."""
    rng = np.random.default_rng(seed)
    made = chain(subject, len((*UNARY, *BINARY)), ("n", "m"))
    shapes = [
        (2, 16),
        (1, 1),
        (0, 16),
        (257, 3),
        (2, 16),
        (5, 0),
        *((n, 7) for n in range(1, 80)),
        (LARGE, 16),
        (2, 16),
    ]
    with open_session(subject, made) as session:
        for shape in shapes:
            x = rng.standard_normal(shape).astype(np.float32)
            agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name))


@check("graph.io_binding")
def io_binding(subject: Subject, seed: int) -> None:
    """Inputs and outputs can be bound, run again with other data, and held on the device between two runs."""
    rng = np.random.default_rng(seed)
    made = chain(subject)
    kind, index = place_of(subject)
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


@check("graph.bound_results")
def bound_results(subject: Subject, seed: int) -> None:
    """Results are right where they are bound, over an input that a region may update in place too; what else is fed is left alone."""
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        names = [output.name for output in made.graph.output]
        with open_session(subject, made) as session:
            for under in (None, "x", "z"):
                feeds = {name: rng.standard_normal((ROWS, 16)).astype(np.float32) for name in ("x", "z")}
                kept = {name: array.copy() for name, array in feeds.items()}
                rooms = {name: np.full((ROWS, 16), np.nan, np.float32) for name in names}
                if under is not None:
                    rooms[str(rng.choice(names))] = feeds[under]
                session.run_with_iobinding(bound(session, feeds, rooms))
                where = "results bound apart" if under is None else f"with a result bound on {under}"
                errors = [2 * error for error in bounds(made, kept)]
                agree([*rooms.values()], expected(made, kept, subject.name), errors, where)
                for name in feeds.keys() - {under}:
                    assert feeds[name].tobytes() == kept[name].tobytes(), f"{where}: a run changes {name}"


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


def compare_runs(
    session: onnxplug.InferenceSession, made: onnx.ModelProto, rng: np.random.Generator, subject: Subject
) -> None:
    """AssertionError unless runs of a session of a graph that ``dag`` made give the oracle's results, but for rounding."""
    for rows in (3, 1, 3):
        feeds = {name: rng.standard_normal((rows, 16)).astype(np.float32) for name in ("x", "z")}
        errors = bounds(made, feeds)
        agree(session.run(None, feeds), expected(made, feeds, subject.name), [2 * error for error in errors])


def agree(got: Sequence[Any], want: Sequence[Any], errors: Sequence[np.ndarray] | None = None, what: str = "") -> None:
    """``errors``: how much elements may differ where that is finite; default: as RTOL and ATOL say. ``what``: which results these are."""
    said = f"{what}: " if what else ""
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (
            f"{said}output {index} is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        )
        if errors is None:
            wrong = ~np.isclose(a, b, RTOL, ATOL)
        else:
            wrong = np.isfinite(errors[index]) & ~(np.abs(a - b) <= errors[index])
        if wrong.any():
            apart = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))[wrong]
            raise AssertionError(f"{said}output {index} differs from the oracle by {float(apart.max()):.3g}")
