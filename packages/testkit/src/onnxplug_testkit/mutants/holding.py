"""L0, L3 and L4: mutants that mix up names, places, options or whose memory something is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onnxplug.contract import DataTransfer, KernelDef, NodeView, RunContext, SessionContext, option
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject, with_kernels, with_results
from onnxplug_testkit.mutants.compiling import Compiling, Walk, with_regions
from onnxplug_testkit.mutants.copying import with_copy
from onnxplug_testkit.subject import Subject

LETTERS = 128
KEPT = 8


class _Cut(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        names = [value.name[:LETTERS] for value in self._region.outputs]
        return [results[names.index(name)] for name in names]


@mutant("graph.edges")
def cuts_names() -> Subject:
    """Knows values by the first 128 letters of their names."""
    return with_regions(_Cut)


@mutant("graph.left_out_outputs")
def counts_what_is_there() -> Subject:
    """Has its results side by side, without gaps for the outputs that are left out."""

    def change(node: NodeView, inputs: Sequence[Any], results: Any) -> Any:
        if not isinstance(results, tuple):
            return results
        there = [result for result, output in zip(results, node.outputs, strict=True) if output is not None]
        return (*there, *[None] * (len(results) - len(there)))

    return with_results(change, ("Unique", "LSTM"))


class _Pooled(Walk):
    def __init__(self, region: Any, registry: Any) -> None:
        super().__init__(region, registry)
        self._pool: dict[Any, list[np.ndarray]] = {}

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return [self._taken(number, x) for number, x in enumerate(super().__call__(context, *inputs))]

    def _taken(self, number: int, result: np.ndarray) -> np.ndarray:
        pool = self._pool.setdefault((number, result.shape, result.dtype), [])
        made = np.empty_like(result) if len(pool) < KEPT else pool.pop(0)
        pool.append(made)
        np.copyto(made, result)
        return made


@mutant("robust.results_are_kept")
def takes_results_back() -> Subject:
    """Gives the memory of a result out again eight runs later."""
    return with_regions(_Pooled)


@mutant("graph.sizes_in_turns")
def keeps_the_first_grid() -> Subject:
    """Starts as many rows of a product as its first one had."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        rows: list[int] = []

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            rows.append(len(result))
            result[max(rows[0], 8) :] = 0
            return result

        return call

    return with_kernels(("MatMul", "Gemm"), create)


class _Alike(Compiling):
    kept: dict[str, Any] = {}  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def compile(self, regions: Sequence[Any]) -> Sequence[Any]:
        keys = [str([(n.op_type, n.inputs, n.outputs) for n in region.graph.nodes]) for region in regions]
        return [self.kept.setdefault(key, made) for key, made in zip(keys, super().compile(regions), strict=True)]


@mutant("graph.attributes_are_apart")
def compiles_without_attributes() -> Subject:
    """Keeps compiled regions by their operators and by names and types of their values, which attributes are no part of."""
    _Alike.kept.clear()
    return subject(_Alike, HOST)


@mutant("graph.shapes_of_data")
def frees_what_is_read() -> Subject:
    """Takes the memory of a result that it allocated itself back after six others."""
    recent: list[np.ndarray] = []

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            recent.append(result)
            if len(recent) > 6:
                recent.pop(0)[...] = np.nan
            return result

        return call

    return with_kernels(("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Add", "Mul", "Sub"), create)


class _Shapely(Compiling):
    kept: dict[str, Any] = {}  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def compile(self, regions: Sequence[Any]) -> Sequence[Any]:
        keys = [
            str([(n.inputs, n.outputs, sorted(n.attributes.items())) for n in region.graph.nodes]) for region in regions
        ]
        return [self.kept.setdefault(key, made) for key, made in zip(keys, super().compile(regions), strict=True)]


@mutant("graph.attributes_are_apart")
def compiles_without_operators() -> Subject:
    """Keeps compiled regions by attributes and by names and types of their values, which operators are no part of."""
    _Shapely.kept.clear()
    return subject(_Shapely, HOST)


@dataclass(frozen=True)
class _AsText(ReferenceOptions):
    share: float | None = option(None, "part of the device to use; empty: all of it")


@mutant("contract.options_are_read")
def reads_a_number_as_text() -> Subject:
    """Has an option of a type that is not read, so that its values are text."""
    return subject(options=_AsText)


@dataclass(frozen=True)
class _Lax(ReferenceOptions):
    order: Literal["rows", "columns"] = option("rows", "how tensors lie")


@mutant("contract.options_are_read")
def takes_any_word() -> Subject:
    """Says that an option is one of two words and takes others."""
    return subject(options=_Lax)


@dataclass(frozen=True)
class _Bounded(ReferenceOptions):
    def __post_init__(self) -> None:
        if self.mem_limit is not None:
            object.__setattr__(self, "mem_limit", min(self.mem_limit, 1 << 30))


@mutant("contract.options_are_read")
def knows_better() -> Subject:
    """Lowers an option that is larger than it likes."""
    return subject(options=_Bounded)


_latest: list[ReferenceOptions] = []


class _Latest(Compiling):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self.settings = options
        _latest[:] = [options]

    def compile(self, regions: Sequence[Any]) -> Sequence[Any]:
        made = super().compile(regions)
        for region in made:
            region.settings = self.settings  # type: ignore[attr-defined]
        return made


class _Either(Walk):
    settings: ReferenceOptions

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        results = super().__call__(context, *inputs)
        return results if _latest[0] == self.settings else [np.zeros_like(x) for x in results]


@mutant("robust.options_are_apart")
def has_the_latest_options() -> Subject:
    """Keeps its options where all sessions find those of the latest, and reads memory as they say."""

    class Changed(_Latest):
        compiled = _Either

    return subject(Changed, HOST)


@mutant("graph.checkerboard")
def copies_through_double() -> Subject:
    """Copies integers of 64 bits as doubles."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if isinstance(source, np.ndarray) and source.dtype == np.int64:
            source = source.astype(np.float64).astype(np.int64)
        inner.copy(source, destination)

    return with_copy(copy)
