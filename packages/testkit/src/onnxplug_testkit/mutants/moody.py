"""L3 and L4: mutants whose results depend on the circumstances of a run."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, NodeView, Region, RunContext
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject, with_results
from onnxplug_testkit.mutants.compiling import Compiling, Walk, with_regions
from onnxplug_testkit.subject import Subject


@mutant("graph.feeds_at_any_address")
def loads_whole_vectors() -> Subject:
    """Reads what lies at the multiple of 16 bytes before its input."""

    def change(node: NodeView, inputs: Sequence[Any], results: Any) -> Any:
        return results if inputs[0].ctypes.data % 16 == 0 else np.roll(results, 1)

    return with_results(change, ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Add", "Mul", "Sub"))


class _Watched(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        return results if context.watch() is None else [np.zeros_like(x) for x in results]


@mutant("graph.profiled_runs")
def goes_to_pieces_when_watched() -> Subject:
    """Runs its regions in parts when it is profiled, and does not put the parts together."""
    return with_regions(_Watched)


class _Timed(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        start = time.time_ns()
        results = super().__call__(context, *inputs)
        if (watch := context.watch()) is not None:
            watch([node for node, _ in self.kernels], {}, start, time.time_ns())
        return results


@mutant("graph.profiled_runs")
def has_another_clock() -> Subject:
    """Tells the profile times of day."""
    return with_regions(_Timed)


class _Shared(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        for result in (r for r in results if r.ndim):
            result[len(result) // context.threads * context.threads :] = 0
        return results


@mutant("robust.thread_counts")
def leaves_the_rest() -> Subject:
    """Shares rows out to its threads evenly and leaves those that remain."""
    return with_regions(_Shared)


class _Stopped(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        return [np.zeros_like(x) for x in results] if context.cancelled() else results


@mutant("robust.terminated_runs")
def stops_halfway() -> Subject:
    """Leaves a region when the run is to stop, and gives what it has as the result."""
    return with_regions(_Stopped)


class _Short(Walk):
    def __init__(self, region: Region, registry: Any, count: int) -> None:
        super().__init__(region, registry)
        self.kernels = self.kernels[:count]


class _Believing(Compiling):
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [_Short(region, self.get_kernel_registry(), self._count(region)) for region in regions]

    def _count(self, region: Region) -> int:
        """The region's number of nodes, from a file."""
        folder = os.environ.get("ONNXPLUG_CACHE_DIR")
        if folder is None:
            return len(region.graph.nodes)
        file = Path(folder, region.key())
        if not file.exists():
            file.write_bytes(bytes([len(region.graph.nodes)]))
        return file.read_bytes()[0]


@mutant("robust.damaged_cache")
def believes_its_cache() -> Subject:
    """Takes what it finds in its files for what it wrote."""
    return subject(_Believing, HOST)


class _Worn(Walk):
    runs = 0

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        self.runs += 1
        results = super().__call__(context, *inputs)
        return results if self.runs < 256 else [np.zeros_like(x) for x in results]


@mutant("robust.same_bits")
def wears_out() -> Subject:
    """Is right for 255 runs."""
    return with_regions(_Worn)


class _Wanted(Compiling):
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        names = [region.outputs[0].name for region in regions]
        assert len(names) == len(regions)
        return super().compile(regions)


@mutant("robust.odd_graphs")
def wants_a_result() -> Subject:
    """Raises when nothing reads the results of a region."""
    return subject(_Wanted, HOST)


_exported: dict[bytes, CompiledRegion] = {}


class _Scaled(Walk):
    """Is exported as a number under which it is found, and one by which its results are multiplied."""

    scale = np.float32(1)

    def export(self) -> bytes | None:
        key = len(_exported).to_bytes(8, "little")
        _exported[key] = self
        return key + self.scale.tobytes()

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return [x * self.scale for x in super().__call__(context, *inputs)]


class _Trusting(Compiling):
    compiled = _Scaled

    def load_region(self, blob: bytes) -> CompiledRegion:
        if len(blob) != 12 or blob[:8] not in _exported:
            raise RuntimeError("this is not what was exported")
        made = copy.copy(_exported[blob[:8]])
        made.scale = np.frombuffer(blob[8:], np.float32)[0]  # type: ignore[attr-defined]
        return made


@mutant("robust.damaged_exports")
def believes_what_it_loads() -> Subject:
    """Takes whatever it is to load for what it exported, if it is as long and begins alike."""
    _exported.clear()
    return subject(_Trusting, HOST)
