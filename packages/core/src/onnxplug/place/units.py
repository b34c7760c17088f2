"""What placement produces: units in execution order, every operand with the memory space it is wanted in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from onnxplug.contract.claims import CompiledRegion, Region
from onnxplug.contract.kernels import KernelDef, KernelRegistry
from onnxplug.contract.memory import HOST, Allocator, DataTransfer, Device
from onnxplug.contract.records import record
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value

CORE = "onnxplug"
"""Who runs If, Loop, Scan and loops that generate text in reports."""

Located = tuple[Value, Device]
"""A value in one memory space."""


@record(frozen=True, slots=True, eq=False)
class SessionProvider:
    """A provider instance of one session with what placement and execution need of it, asked for once at creation. ``source``: the
    provider's name, which ``name`` is too but where the session has several of the provider."""

    name: str
    source: str
    call: Callable[..., Any]
    registry: KernelRegistry
    allocators: tuple[Allocator, ...] = ()
    transfer: DataTransfer | None = None
    compiles: bool = False
    concurrent: bool = True
    create_stream: Callable[[Device], Any] | None = None

    @property
    def device(self) -> Device:
        """Where its kernels' tensors live."""
        return self.allocators[0].device if self.allocators else HOST


@record(frozen=True, slots=True, eq=False)
class Unit:
    """One step-to-be. ``ins``/``outs`` are None for omitted operands."""

    ins: tuple[Located | None, ...]
    outs: tuple[Located | None, ...]


@record(frozen=True, slots=True, eq=False)
class KernelUnit(Unit):
    """A node run by one kernel."""

    node: Node
    provider: SessionProvider
    definition: KernelDef


@record(frozen=True, slots=True, eq=False)
class RegionUnit(Unit):
    """Nodes a provider compiled into one."""

    region: Region
    nodes: tuple[Node, ...]
    provider: SessionProvider
    compiled: CompiledRegion


@record(frozen=True, slots=True, eq=False)
class ControlUnit(Unit):
    """If, Loop, Scan or a loop that generates text, run by the core. ``ins`` are the node's inputs followed by what each body captures."""

    node: Node
    bodies: Mapping[str, PlacedGraph]


@record(frozen=True, slots=True, eq=False)
class CopyUnit(Unit):
    """A value carried from one memory space to another."""


@record(frozen=True, slots=True, eq=False)
class PlacedGraph:
    """A graph with every node owned and every copy inserted. ``captures`` (of a nested graph) follow ``inputs`` when it
    is run."""

    graph: Graph
    units: tuple[Unit, ...]
    inputs: tuple[Located, ...]
    captures: tuple[Located, ...]
    outputs: tuple[Located, ...]


@record(slots=True)
class Reasons:
    """Why providers did not run nodes: {node name: {provider: text}}, what was inlined, and warnings of the
    placement."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    inlined: list[tuple[str, str]] = field(default_factory=list)

    def add(self, node: Node, provider: str, text: str) -> None:
        """Record; the first reason given for a pair stays."""
        self.texts.setdefault(node.name, {}).setdefault(provider, text)

    def forget(self, nodes: Iterable[Node]) -> None:
        """Drop what was said of these nodes; they are about to be offered anew."""
        for node in nodes:
            self.texts.pop(node.name, None)

    def of(self, node: Node) -> Mapping[str, str]:
        """Provider -> reason."""
        return self.texts.get(node.name, {})


@record(frozen=True, slots=True, eq=False)
class Placement:
    """The main graph placed, with the reasons and the owner of every node left (nested graphs included; fused nodes
    too)."""

    main: PlacedGraph
    owners: Mapping[str, str]
    reasons: Reasons
    providers: Sequence[SessionProvider]
