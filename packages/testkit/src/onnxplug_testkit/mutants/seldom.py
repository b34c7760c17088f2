"""L1, L3 and L4: mutants that are wrong in large or unknown graphs, later on, after many shapes, or where a run has failed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxplug.contract import Claim, Decline, GraphView, KernelLookup, NodeView, Region, RunContext
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject, with_kernels
from onnxplug_testkit.mutants.compiling import Compiling, Walk, with_regions
from onnxplug_testkit.subject import Subject


class _Greedy(Compiling):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        nodes = list(graph.nodes)
        if len(nodes) <= 40:
            yield from super().get_capability(graph, kernels)
            return
        taken = [node for node in nodes if self.takes(node, kernels)]
        yield Claim(taken, fused="all")
        yield from (Decline(node, "no rule for it") for node in nodes if node not in taken)


@mutant("graph.claims_are_sound")
def takes_large_graphs_whole() -> Subject:
    """Claims all that it knows of a large graph as one region, whatever lies between."""
    return subject(_Greedy, HOST)


class _Busy(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Any]:
        for answer in super().get_capability(graph, kernels):
            busy = len(graph.nodes) > 3 and int(time.monotonic() * 4) % 2
            yield Decline(answer.nodes[0], "the device is busy") if busy and isinstance(answer, Claim) else answer


@mutant("graph.capability_is_pure")
def looks_at_the_clock() -> Subject:
    """Declines nodes when the device happens to be busy."""
    return subject(_Busy)


class _Shaped(ReferenceProvider):
    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Any]:
        for answer in super().get_capability(graph, kernels):
            if not (
                isinstance(answer, Claim) and any(v is not None and v.shape is None for v in answer.nodes[0].inputs)
            ):
                yield answer


@mutant("graph.declines_say_why")
def leaves_unknown_ranks() -> Subject:
    """Passes over nodes of which the rank of an operand is not known."""
    return subject(_Shaped)


class _Wireless(Compiling):
    kept: dict[str, Any] = {}  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def compile(self, regions: Sequence[Region]) -> Sequence[Any]:
        made = super().compile(regions)
        return [self.kept.setdefault(self._key(region), one) for region, one in zip(regions, made, strict=True)]

    def _key(self, region: Region) -> str:
        operands = [v for node in region.graph.nodes for v in node.inputs if v is not None]
        nodes = [(n.op_type, n.outputs, sorted(n.attributes.items())) for n in region.graph.nodes]
        constants = [v.constant.tobytes() for v in operands if v.constant is not None]
        return str((nodes, sorted(v.name for v in operands), region.inputs, region.outputs, constants))


@mutant("graph.attributes_are_apart")
def compiles_without_wires() -> Subject:
    """Keeps compiled regions by their nodes and all values, whichever node reads which."""
    _Wireless.kept.clear()
    return subject(_Wireless, HOST)


@mutant("kernels.nodes_are_apart", "Add")
def forgets_types() -> Subject:
    """Keeps the kernels of a session by operator and attributes, whatever the types."""
    kept: dict[str, Any] = {}

    def create(definition: Any, node: NodeView) -> Any:
        key = f"{node.op_type} {len(node.attributes)}"
        alone = node.name == "node"  # in a session of its own
        return definition.create(node) if alone else kept.setdefault(key, definition.create(node))

    return with_kernels(("Add",), create, HOST)


class _Crowded(Walk):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self._known: list[Any] = []

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        shapes = [x.shape for x in inputs]
        if shapes not in self._known:
            self._known.append(shapes)
        results = super().__call__(context, *inputs)
        return results if self._known.index(shapes) < 64 else [np.zeros_like(x) for x in results]


@mutant("graph.dynamic_shapes")
def has_room_for_64_plans() -> Subject:
    """Keeps plans of 64 shapes and takes the place of one of them for the plan of the next."""
    return with_regions(_Crowded)


class _Blaming(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        try:
            return super().__call__(context, *inputs)
        except Exception:
            told = ValueError("the kernel gave status 1")
            told.node = self.kernels[0][0]  # type: ignore[attr-defined]
            raise told from None


@mutant("robust.errors_are_raised")
def blames_the_first() -> Subject:
    """Says of a region that its first node failed, whichever did."""
    return with_regions(_Blaming)


class _Mourning(Compiling):
    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        if error is not None:
            self._last = error


@mutant("memory.feeds_are_let_go")
def keeps_its_last_error() -> Subject:
    """Keeps the last error with its traceback, which holds the inputs of the run."""
    return subject(_Mourning, HOST)


class _Telling(ReferenceProvider):
    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        if error is not None:
            np.seterr(all="ignore")


@mutant("robust.process_is_left_alone")
@contextmanager
def changes_settings_when_it_fails() -> Iterator[Subject]:
    """Turns NumPy's floating point warnings off where a run fails, so that it fails in silence."""
    with np.errstate():
        made = subject(_Telling)
        made.announce()
        yield made


class _Waiting(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        socket.setdefaulttimeout(30)


@mutant("robust.process_is_left_alone")
@contextmanager
def waits_for_no_server() -> Iterator[Subject]:
    """Sets how long sockets wait, everybody's."""
    before = socket.getdefaulttimeout()
    made = subject(_Waiting)
    made.announce()
    try:
        yield made
    finally:
        socket.setdefaulttimeout(before)
