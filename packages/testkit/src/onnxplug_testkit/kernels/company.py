"""Nodes of one operator among others: one makes what a node reads, one reads what it makes, and constants have several readers.

A compiler may be right about a node alone and wrong about what it fused the node with; a kernel that packs a constant in place spoils it
for others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import CheckFailed, fail
from onnxplug_testkit.kernels.cells import Cell, Key, label
from onnxplug_testkit.kernels.compare import compare
from onnxplug_testkit.kernels.legal import is_legal
from onnxplug_testkit.kernels.precision import Precision, precision
from onnxplug_testkit.kernels.retarget import BESIDES, Target
from onnxplug_testkit.kernels.together import NEAR, alone, fed
from onnxplug_testkit.kernels.trial import Feeds, Outcome, number_of
from onnxplug_testkit.models import open_session
from onnxplug_testkit.subject import Subject

NEIGHBOURS = ("Neg", "Not", "Identity")
"""Operators that undo themselves, exactly; the first that is claimed of a type stands on both sides of a node."""
RUNS = 2
_FLIPS = {"DynamicQuantizeLSTM": Precision("scale", 2**14)}
"""Operators that round a state to 256 steps again and again: a last bit may take it to the next step, which moves results by 1e-3."""


@dataclass(frozen=True, eq=False)
class Company:
    """Structures of one schema version in one graph. ``claimed``: all cells of the subject, which say what may stand beside them."""

    key: Key
    targets: Sequence[Target]
    claimed: Collection[Cell]

    @property
    def id(self) -> str:
        """The name of the test."""
        return f"kernels.in_company[{label(self.key)}]"

    def run(self, subject: Subject, seed: int) -> Outcome:
        """Compare each node's results with those it has in a session of its own, for several data. CheckFailed names the node."""
        if precision(*self.key).kind == "random":
            return Outcome("declined", text="its results are random")
        rng = np.random.default_rng([seed, number_of(self.id)])
        graph = _Graph(self.key, self._neighbours())
        for runs in zip(*(fed(rng, self.targets) for _ in range(RUNS)), strict=True):
            target, weights = runs[0][0], _weights(*runs[0])
            feeds = [given | weights for _, given in runs]
            if (wanted := alone(subject, target, feeds)) is not None:
                graph.add(target, feeds, wanted, weights)
        if not graph.nodes:
            return Outcome("declined", text="no structure is taken")
        try:
            with open_session(subject, graph.model()) as session:
                for number in range(RUNS):
                    graph.judge(number, session.run(None, graph.feeds[number]))
        except STATUS_ERRORS as error:
            fail("kernels.in_company", f"a graph of such nodes and others: {error}")
        return Outcome("passed")

    def _neighbours(self) -> Mapping[str, str]:
        """Type -> operator that stands beside values of it."""
        version = BESIDES if self.key[0] else self.key[2]
        found: dict[str, str] = {}
        for op_type in NEIGHBOURS:
            since = defs.get_schema(op_type, version).since_version
            for cell in self.claimed:
                if cell.key == ("", op_type, since):
                    found.setdefault(cell.type, op_type)
        return found


@dataclass
class _Graph:
    """What is put together. ``wanted``: of each output of each run the node it is of, the operator that was applied, and the value."""

    key: Key
    neighbours: Mapping[str, str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    held: dict[Any, onnx.TensorProto] = field(default_factory=dict)
    feeds: list[Feeds] = field(default_factory=lambda: [{} for _ in range(RUNS)])
    wanted: list[tuple[str, str, list[Any]]] = field(default_factory=list)
    version: int = 0

    def add(self, target: Target, fed: Sequence[Feeds], wanted: Sequence[list[Any]], weights: Feeds) -> None:
        """One node with its neighbours; ``weights`` are held as constants, those that are equal but once."""
        made = target.model()
        number, node = len(self.nodes), made.graph.node[0]
        node.name = f"node_{number}"
        self.version = max(self.version, made.ir_version)
        types = {f"x{i}": operand.type for i, operand in enumerate(target.inputs)}
        for value in made.graph.input:
            name = value.name
            if name in weights:
                place = self._weight(weights[name], types[name], value, str(target))
            else:
                before = self._beside(types[name], fed[0][name], target.inputs[int(name[1:])].is_parameter)
                value.name = place = f"{name}_{number}"
                self.inputs.append(value)
                for feeds, given in zip(self.feeds, fed, strict=True):
                    feeds[place] = _undone(before, given[name])
                place = self._through(before, place)
            node.input[:] = [place if n == name else n for n in node.input]
        self.nodes.append(node)
        texts = [t for t, v in zip(target.output_types, target.structure.outputs, strict=True) if v is not None]
        for at, (value, text) in enumerate(zip(made.graph.output, texts, strict=True)):
            mine = f"{value.name}_{number}"
            node.output[:] = [mine if n == value.name else n for n in node.output]
            values = [results[at] for results in wanted]
            self._give(value, mine, self._beside(text, values[0]), values, str(target))

    def _weight(self, array: np.ndarray, text: str, like: onnx.ValueInfoProto, reader: str) -> str:
        """The name of a constant. A neighbour reads it too, after whom it is told whether it is what it was."""
        same = (text, array.shape, array.tobytes())
        if same not in self.held:
            self.held[same] = numpy_helper.from_array(array, f"w{len(self.held)}")
            value, name = onnx.ValueInfoProto(), self.held[same].name
            value.CopyFrom(like)
            if op_type := self.neighbours.get(text, ""):
                self._give(value, name, op_type, [array] * RUNS, f"a constant that is read by {reader} and")
        return str(self.held[same].name)

    def _beside(self, text: str, value: Any, parameter: bool = False) -> str:
        plain = isinstance(value, np.ndarray) and not parameter
        return self.neighbours.get(text, "") if plain else ""

    def _through(self, op_type: str, source: str) -> str:
        """The value behind a neighbour."""
        if not op_type:
            return source
        self.nodes.append(helper.make_node(op_type, [source], [f"{source}_{op_type}"], f"{op_type}_{source}"))
        return str(self.nodes[-1].output[0])

    def _give(self, value: onnx.ValueInfoProto, source: str, op_type: str, values: list[Any], what: str) -> None:
        value.name = self._through(op_type, source)
        self.outputs.append(value)
        self.wanted.append((what, op_type, values))

    def model(self) -> onnx.ModelProto:
        """All of it."""
        graph = helper.make_graph(self.nodes, "company", self.inputs, self.outputs, list(self.held.values()))
        domain, _, version = self.key
        imports = [helper.make_opsetid(domain, version)] + [helper.make_opsetid("", BESIDES)] * bool(domain)
        return helper.make_model(graph, opset_imports=imports, ir_version=self.version)

    def judge(self, number: int, got: Sequence[Any]) -> None:
        """CheckFailed where a result of a run is not what the node gives alone."""
        for given, (what, op_type, values) in zip(got, self.wanted, strict=True):
            try:
                compare(_undone(op_type, given), values[number], _FLIPS.get(self.key[1], NEAR))
            except CheckFailed as error:
                beside = f" beside {op_type}" if op_type else ""
                fail("kernels.in_company", f"{what}{beside}, run {number + 1}: {error}")


def _undone(op_type: str, value: Any) -> Any:
    """What has ``value`` behind the operator."""
    with np.errstate(over="ignore"):
        return np.negative(value) if op_type == "Neg" else np.logical_not(value) if op_type == "Not" else value


def _weights(target: Target, feeds: Feeds) -> Feeds:
    """Operands behind the first that can be constants; none where the node is not legal with them."""
    found = {
        name: value
        for name, value in list(feeds.items())[1:]
        if isinstance(value, np.ndarray) and not value.dtype.hasobject and not target.inputs[int(name[1:])].is_parameter
    }
    legal = not found or is_legal(target.model({int(name[1:]): value for name, value in found.items()}), target.schema)
    return found if legal else {}
