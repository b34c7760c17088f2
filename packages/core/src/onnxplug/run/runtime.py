"""What all frames of a session share: memories, kernels made once, constants in each memory space, the evaluator, the
profile."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from onnxplug.contract.claims import CompiledRegion
from onnxplug.contract.errors import STATUS_ERRORS, Fail
from onnxplug.contract.kernels import Kernel, KernelDef, TensorSpec
from onnxplug.contract.memory import HOST, Device
from onnxplug.contract.types import is_device_type
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.plain import plain
from onnxplug.graph.value import Value
from onnxplug.place.units import ControlUnit, KernelUnit, PlacedGraph, Placement, RegionUnit, SessionProvider, Unit
from onnxplug.plan.failures import failures_of
from onnxplug.plan.specs import Memory, Specs
from onnxplug.run.executor import GraphRunner
from onnxplug.run.memory import DeviceArray, Memories
from onnxplug.run.quiet import Quiet

PlaceAgain = Callable[[Graph, PlacedGraph], PlacedGraph]

MAX_BOUND = 32
"""Regions bound by runs rather than by plans that are kept."""


class Runtime:
    """One for each session. ``profile`` is set while the session is profiled."""

    def __init__(self, memories: Memories, providers: Sequence[SessionProvider], threads: int) -> None:
        self.memories, self.providers, self.threads = memories, providers, threads
        self.profile: Any = None
        self.place_again: PlaceAgain | None = None
        """Where set, how a graph is placed that may be run in another's stead (see ``planners``)."""
        self._bound: dict[Unit, Any] = {}
        self._evaluators: dict[Node, Any] = {}
        self._bound_regions: OrderedDict[Any, CompiledRegion] = OrderedDict()
        self.remembered = Memory()
        """Of the main graph's shapes, and of all regions bound by runs."""
        self._constants: dict[tuple[Value, Device], DeviceArray] = {}
        self._lock = threading.RLock()
        for provider in providers:
            for allocator in provider.allocators:
                memories[allocator.device].provider = memories[allocator.device].provider or provider.name

    def runner(self, placement: Placement) -> GraphRunner:
        """The runner of the main graph, its kernels made, its constants uploaded and, for fixed shapes, its plan made now rather
        than in the first run."""
        self.remembered = Memory(placement.main.graph.identity)
        self.prepare(placement.main)
        runner = GraphRunner(placement.main, self)
        runner.plans.prime()
        return runner

    def streams(self) -> dict[Device, Any]:
        """One fresh stream for each device whose provider has streams."""
        return {p.device: p.create_stream(p.device) for p in self.providers if p.create_stream is not None}

    def prepare(self, placed: PlacedGraph) -> None:
        """Make the kernels of a graph and upload its constants."""
        for unit in placed.units:
            kernel = self.bound(unit)
            packed = kernel.packed if isinstance(kernel, Kernel) else ()
            for index, located in enumerate(unit.ins):
                if located is None or index in packed or located[1] == HOST or located[0].constant is None:
                    continue
                self.constant(located[0], located[0].constant, located[1])

    def close(self) -> None:
        """Let go of kernels, plans, frames and constants, and give arenas' regions back."""
        self._bound.clear()
        self._bound_regions.clear()
        self.remembered = Memory()
        self._evaluators.clear()
        self._constants.clear()
        self.place_again = None
        self.memories.close()

    def bound(self, unit: Unit) -> Any:
        """The one kernel, body runner or region of a unit."""
        with self._lock:
            found = self._bound.get(unit)
            if found is None:
                found = self._bound[unit] = self._make(unit)
            return found

    def _make(self, unit: Unit) -> Any:
        if isinstance(unit, ControlUnit):
            runners = {name: GraphRunner(body, self) for name, body in unit.bodies.items()}
            for body in unit.bodies.values():
                self.prepare(body)
            from onnxplug.run.control import construct  # which few models have

            return construct(unit, runners, self.memories)
        if isinstance(unit, KernelUnit):
            return _create(unit.node, unit.definition, unit.provider)
        return ()

    def bind_region(self, unit: RegionUnit, key: Any, inputs: Sequence[Any]) -> CompiledRegion:
        """The unit's region for operands whose shapes no plan knew; ``key`` tells these shapes, and the
        values that decide shapes, from others. The latest few are kept."""
        hosted = unit.compiled.shape_inputs
        with self._lock:
            found = self._bound_regions.pop((unit, key), None)
            if found is None:
                specs: dict[Value, TensorSpec | None] = {}
                for index, (located, native) in enumerate(zip(unit.ins, inputs, strict=True)):
                    assert located is not None
                    dtype, shape = located[0].dtype, getattr(native, "shape", None)
                    known = native.copy() if index in hosted else None  # the run may write over it
                    specs[located[0]] = (
                        None if shape is None or dtype is None else TensorSpec(dtype, tuple(shape), known)
                    )
                with failures_of(unit):
                    with self.remembered.alone() as memory:
                        found = Specs(specs, self.evaluate_again, memory).bind(unit)
                    assert found is not None, "what decides shapes has come"
            self._bound_regions[unit, key] = found
            while len(self._bound_regions) > MAX_BOUND:
                self._bound_regions.popitem(last=False)
            return found

    def constant(self, value: Value | None, array: np.ndarray, device: Device) -> Any:
        """A constant in a memory space: the array itself on the host, else a DeviceArray, uploaded once per session."""
        if device == HOST:
            return array
        if value is None or not value.is_constant:
            return self.memories[device].upload(array)  # known to one plan only
        with self._lock:
            held = self._constants.get((value, device))
            if held is None:
                held = self._constants[value, device] = self.memories[device].upload(array)
            return held

    def evaluate_again(self, node: Node, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray] | None:
        """As ``evaluate``, for nodes that are evaluated whenever shapes change: a kernel for host memory is kept."""
        call = self._evaluators.get(node)
        if call is None:
            call = self._kernel_on_host(node)
            if call is None:
                return self.evaluate(node, arrays)
            self._evaluators[node] = call
        try:
            with Quiet():
                results = call(*arrays)
        except Exception:  # left to the run, as by ``evaluate``
            return None
        return results if isinstance(results, tuple) else (results,)

    def _kernel_on_host(self, node: Node) -> Any:
        """The kernel that ``evaluate`` takes, None where that one's memory is not the host's, or there is none."""
        for provider in self.providers:
            found = provider.registry.kernel_for(node)
            if not isinstance(found, KernelDef):
                continue
            if provider.device != HOST:
                return None
            with suppress(*STATUS_ERRORS):  # it declines the node for more than its operator and types
                return _create(node, found, provider)
        return None

    def evaluate(self, node: Node, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray] | None:
        """Run one node on host arrays with the first provider that has a kernel for it (constant folding, shape
        arithmetic)."""
        for provider in self.providers:
            found = provider.registry.kernel_for(node)
            if not isinstance(found, KernelDef):
                continue
            try:
                kernel = _create(node, found, provider)
            except STATUS_ERRORS:  # it declines the node for more than its operator and types
                continue
            try:
                with Quiet():
                    return self._evaluate(node, kernel, found, provider, arrays)
            except Exception:
                return None  # left to the run, which reports it with the node's name
        return None

    def _evaluate(
        self,
        node: Node,
        kernel: Any,
        definition: KernelDef,
        provider: SessionProvider,
        arrays: Sequence[np.ndarray | None],
    ) -> list[Any]:
        memory = self.memories[provider.device]
        operands: list[Any] = []
        held = []
        for index, (array, value) in enumerate(zip(arrays, node.inputs, strict=True)):
            on_host = array is None or memory.device == HOST or index in definition.host_inputs
            if on_host or value is None or not is_device_type(value.type):
                operands.append(array)
            else:
                held.append(memory.upload(np.asarray(array)))
                operands.append(held[-1].native)
        results = kernel(*operands)
        results = results if isinstance(results, tuple) else (results,)
        return [
            r if isinstance(r, np.ndarray | np.generic | list) or r is None else memory.download(r) for r in results
        ]


def _create(node: Node, definition: KernelDef, provider: SessionProvider) -> Any:
    try:
        return definition.create(node)
    except STATUS_ERRORS:
        raise
    except Exception as error:
        raise Fail(
            f"{provider.name} could not create the kernel of node '{node.name}' ({node.label}-{node.since_version}): "
            f"{'its attributes do not go together' if plain(error) else f'{type(error).__name__}: {error}'}"
        ) from error
