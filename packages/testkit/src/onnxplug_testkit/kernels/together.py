"""Several nodes of one operator in one session: what is kept of one, its attributes or what was compiled for it, is not another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit import tripwire
from onnxplug_testkit.check import CheckFailed, fail
from onnxplug_testkit.kernels.cells import Key, label
from onnxplug_testkit.kernels.compare import compare, snapshot
from onnxplug_testkit.kernels.precision import Precision, precision
from onnxplug_testkit.kernels.retarget import Target
from onnxplug_testkit.kernels.trial import Feeds, Outcome, number_of
from onnxplug_testkit.kernels.values import fresh
from onnxplug_testkit.models import open_session, open_strictly
from onnxplug_testkit.subject import Subject

NEAR = Precision("scale", 64, step=1)
"""Two runs of one provider on one node; a wrong attribute is seen at once."""


@dataclass(frozen=True, eq=False)
class Together:
    """Structures of one schema version, as nodes of one graph."""

    key: Key
    targets: Sequence[Target]

    @property
    def id(self) -> str:
        """The name of the test."""
        return f"kernels.nodes_are_apart[{label(self.key)}]"

    def run(self, subject: Subject, seed: int) -> Outcome:
        """Compare each node's results with those it has in a session of its own. CheckFailed names the node."""
        rng = np.random.default_rng([seed, number_of(self.id)])
        found = [(t, f, alone(subject, t, [f])) for t, f in fed(rng, self.targets)]
        told = [(target, feeds, results[0]) for target, feeds, results in found if results is not None]
        if len(told) < 2 or precision(*self.key).kind == "random":
            return Outcome("declined", text="fewer than two structures are taken")
        made, feeds = _joined([t for t, _, _ in told], [f for _, f, _ in told])
        try:
            with open_session(subject, made) as session:
                got = session.run(None, feeds)
        except STATUS_ERRORS as error:
            fail("kernels.nodes_are_apart", f"a graph of {len(told)} such nodes: {error}")
        for target, _, wanted in told:
            mine, got = got[: len(wanted)], got[len(wanted) :]
            for g, w in zip(mine, wanted, strict=True):
                try:
                    compare(g, w, NEAR)
                except CheckFailed as error:
                    fail("kernels.nodes_are_apart", f"beside other nodes, {target}: {error}")
        return Outcome("passed")


def fed(rng: np.random.Generator, targets: Sequence[Target]) -> list[tuple[Target, Feeds]]:
    """Fresh data for each; operands of one place, type and shape are one array, so that nodes differ in their attributes."""
    shared: dict[Any, Any] = {}
    found = []
    for target in targets:
        feeds = {}
        for i, o in enumerate(target.inputs):
            if o.like is not None:
                made = fresh(rng, target.key[1], o.formal, o.like, o.type)
                plain = isinstance(made, np.ndarray) and not o.is_parameter
                feeds[f"x{i}"] = shared.setdefault((i, o.type, made.shape), made) if plain else made
        found.append((target, feeds))
    return found


def alone(subject: Subject, target: Target, runs: Sequence[Feeds]) -> list[list[Any]] | None:
    """The results of a node in a session of its own, run by run; None where it is not taken or fails, which is for its trial to say."""
    try:
        with open_strictly(subject, target.model()) as session:
            if session.placement().get("node") == tripwire.NAME:
                return None
            return [snapshot(session.run(None, feeds)) for feeds in runs]
    except STATUS_ERRORS:
        return None


def _joined(targets: Sequence[Target], fed: Sequence[Feeds]) -> tuple[onnx.ModelProto, Feeds]:
    """One model of all nodes. Values of different nodes have names of their own, also where they are one array."""
    nodes, inputs, outputs = [], [], []
    feeds: Feeds = {}
    models = [target.model() for target in targets]
    for number, (made, given) in enumerate(zip(models, fed, strict=True)):
        graph = made.graph
        for value in (*graph.input, *graph.output):
            value.name = f"{value.name}_{number}"
        node = graph.node[0]
        node.name = f"node_{number}"
        for names in (node.input, node.output):
            names[:] = [f"{name}_{number}" if name else "" for name in names]
        nodes.append(node)
        inputs += graph.input
        outputs += graph.output
        feeds |= {f"{name}_{number}": value for name, value in given.items()}
    graph = helper.make_graph(nodes, "together", inputs, outputs)
    version = max(m.ir_version for m in models)
    return helper.make_model(graph, opset_imports=list(models[0].opset_import), ir_version=version), feeds
