"""L3: mutants that compile regions; the unchanged one of them calls the reference's kernels one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Decline,
    EPFail,
    GraphView,
    KernelDef,
    KernelLookup,
    KernelRegistry,
    NodeView,
    Region,
    RunContext,
    SessionContext,
    convex_groups,
    type_strings,
)
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject
from onnxplug_testkit.subject import Subject


class Walk(CompiledRegion):
    """Runs a region node by node."""

    def __init__(self, region: Region, registry: KernelRegistry) -> None:
        self._region = region
        self.kernels: list[tuple[NodeView, Any]] = []
        for node in region.graph.nodes:
            definition = registry.kernel_for(node)
            assert isinstance(definition, KernelDef)
            self.kernels.append((node, definition.create(node)))
        operands = [v for node in region.graph.nodes for v in node.inputs if v is not None]
        self._constants = {v.name: v.constant for v in operands if v.constant is not None}

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        values = self._constants | {v.name: x for v, x in zip(self._region.inputs, inputs, strict=True)}
        for node, kernel in self.kernels:
            results = kernel(*(None if v is None else values[v.name] for v in node.inputs))
            results = results if isinstance(results, tuple) else (results,)
            values |= {v.name: self.kept(node, x) for v, x in zip(node.outputs, results, strict=True) if v is not None}
        return [values[v.name] for v in self._region.outputs]

    def kept(self, node: NodeView, result: Any) -> Any:
        """What becomes of one result of a node."""
        return result


class Compiling(ReferenceProvider):
    """Claims what its registry has as regions, as large as they can be."""

    compiled = Walk

    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        """Whether a node may be part of a region."""
        return kernels.owner(node) is None and isinstance(kernels.kernel_for(node), KernelDef)

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        groups = convex_groups(graph, lambda node: self.takes(node, kernels))
        yield from (Claim(group, fused="walk") for group in groups)
        taken = {node.name for group in groups for node in group}
        yield from (Decline(node, "no rule for it") for node in graph.nodes if node.name not in taken)

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [self.compiled(region, self.get_kernel_registry()) for region in regions]


def with_regions(walk: type[Walk]) -> Subject:
    """The compiling reference with regions that run otherwise."""

    class Changed(Compiling):
        compiled = walk

    return subject(Changed, HOST)


class _Eager(Walk):
    def kept(self, node: NodeView, result: Any) -> Any:
        readers = [reader.op_type for v in node.outputs if v is not None for reader in v.consumers]
        return np.maximum(result, 0) if "Relu" in readers and node.op_type in ("MatMul", "Gemm", "Conv") else result


@mutant("graph.patterns")
def fuses_too_eagerly() -> Subject:
    """Computes Relu with the product before it, though another node reads that product."""
    return with_regions(_Eager)


class _Backwards(Walk):
    def kept(self, node: NodeView, result: Any) -> Any:
        read = any(v is not None and v.consumers for v in node.outputs)
        return np.ascontiguousarray(result[::-1]) if read and node.op_type == "CumSum" else result


@mutant("kernels.in_company", "CumSum")
def fuses_what_it_has_not_tried() -> Subject:
    """Is right about a sum that nothing reads, and hands it to the next node of the region the wrong way round."""
    return with_regions(_Backwards)


class _Named(Compiling):
    kept: dict[str, CompiledRegion] = {}  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [self.kept.setdefault(r.name, m) for r, m in zip(regions, super().compile(regions), strict=True)]


@mutant("graph.sessions_are_apart")
def compiles_by_name() -> Subject:
    """Keeps compiled regions by their names, which large weights are no part of."""
    _Named.kept.clear()
    return subject(_Named, HOST)


class _Stub(CompiledRegion):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return [np.zeros_like(inputs[0])]


class _Exported(Walk):
    def export(self) -> bytes | None:
        return b"everything but the weights"


class _Exporting(Compiling):
    compiled = _Exported

    def load_region(self, blob: bytes) -> CompiledRegion:
        return _Stub()


@mutant("graph.exported_regions")
def exports_half_of_it() -> Subject:
    """What it loads is not what it exported."""
    return subject(_Exporting, HOST)


class _Remembered(Walk):
    latest: CompiledRegion

    def export(self) -> bytes | None:
        _Remembered.latest = self
        return b"nothing at all"


class _Remembering(Compiling):
    compiled = _Remembered

    def load_region(self, blob: bytes) -> CompiledRegion:
        return _Remembered.latest


@mutant("graph.exported_regions")
def loads_the_latest() -> Subject:
    """Loads the region that it exported last, whatever it is given."""
    return subject(_Remembering, HOST)


class _FilledUp(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        return [np.ones_like(x) for x in results] if any(x.size == 0 for x in inputs) else results


@mutant("graph.empty_inputs")
def makes_something_of_nothing() -> Subject:
    """Gives ones for a region of which an input has no elements."""
    return with_regions(_FilledUp)


class _Grasping(Compiling):
    """Registers two operators and compiles whatever it is shown."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._registry = KernelRegistry(d for d in self._registry if d.op_type in ("Relu", "Add"))

    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        return kernels.owner(node) is None and not node.subgraphs


@mutant("graph.claims_are_registered")
def claims_beyond_its_registry() -> Subject:
    """Claims regions of operators that it has not registered, which no trial looks at."""
    return subject(_Grasping, HOST)


class _Hasty(Compiling):
    """Registers what it has for floats, and goes by the names of operators when it is asked."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._all = list(self._registry)
        known = (d for d in self._all if d.op_type in _KNOWN and not d.domain and d.last >= _LATE)
        self._registry = KernelRegistry(dataclasses.replace(d, types={"T": type_strings(["float"])}) for d in known)

    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        return kernels.owner(node) is None and not node.domain and node.op_type in _KNOWN

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [self.compiled(region, KernelRegistry(self._all)) for region in regions]


_KNOWN, _LATE = ("Relu", "Add", "Softmax"), 13


@mutant("graph.claims_are_registered")
def claims_whatever_version_and_type() -> Subject:
    """Claims regions of operators in versions and types that it has not registered."""
    return subject(_Hasty, HOST)


class _Familiar(Compiling):
    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        known = not node.subgraphs and any(d.op_type == node.op_type for d in self._registry)
        return kernels.owner(node) is None and known


@mutant("graph.claims_are_registered")
def knows_operators_by_name() -> Subject:
    """Takes an operator of another domain for the one of that name which it knows."""
    return subject(_Familiar, HOST)


class _Anonymous(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        try:
            return super().__call__(context, *inputs)
        except Exception:
            raise EPFail("something went wrong") from None


@mutant("robust.errors_are_raised")
def names_nobody() -> Subject:
    """Says of a region that it failed, and not which node."""
    return with_regions(_Anonymous)


class _Unmindful(Compiling):
    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        return isinstance(kernels.kernel_for(node), KernelDef)


@mutant("graph.shared_sessions")
def ignores_owners() -> Subject:
    """Claims regions with nodes of providers before it, so that it gets none of them."""
    return subject(_Unmindful, HOST)


class _Telling(Walk):
    def facts(self) -> Mapping[str, Any]:
        return {"largest": np.int64(3)}


@mutant("graph.explained")
def tells_in_numpys_numbers() -> Subject:
    """Tells of its regions in numbers that JSON does not know."""
    return with_regions(_Telling)


class _Waiting(Walk):
    _runs = 0

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        self._runs += 1
        return super().__call__(context, *inputs)

    def facts(self) -> Mapping[str, Any]:
        return {"share of the first run": 1 / self._runs}


@mutant("graph.explained")
def tells_when_it_has_run() -> Subject:
    """Tells of its regions what it only knows when they have run."""
    return with_regions(_Waiting)
