"""L3: mutants whose regions write into the memory that a plan gives them, and keep scratch; the unchanged one of them is right."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, EPFail, KernelLookup, NodeView, Region, RunContext, SessionContext
from onnxplug.contract.claims import Shapes
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.models import BINARY, UNARY
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject
from onnxplug_testkit.mutants.compiling import Compiling, Walk, with_regions
from onnxplug_testkit.subject import Subject


class Written(Walk):
    """A region of element-wise nodes that writes its results, by way of scratch."""

    def output_shapes(self, inputs: Shapes) -> Shapes:
        zeros = [np.zeros(shape or (), v.dtype) for shape, v in zip(inputs, self._region.inputs, strict=True)]
        with np.errstate(all="ignore"):
            return [result.shape for result in self._results(*zeros)]

    def workspace(self, inputs: Shapes) -> int:
        return sum(4 * int(np.prod(shape)) for shape in self.output_shapes(inputs) if shape is not None)

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        for result, output, scratch in zip(
            self._results(*inputs), outputs, self._scratch(context, outputs), strict=True
        ):
            if output is not None:
                self.write(np.asarray(result), output, scratch)
        return True

    def write(self, result: np.ndarray, output: np.ndarray, scratch: np.ndarray) -> None:
        """Put one result where it belongs. ``scratch`` is as large."""
        np.copyto(scratch, result)
        np.copyto(output, scratch)

    def _results(self, *inputs: Any) -> Sequence[Any]:
        return Walk.__call__(self, None, *inputs)  # type: ignore[arg-type]

    def _scratch(self, context: RunContext, outputs: Sequence[Any]) -> Iterator[Any]:
        place, whole = 0, np.empty(0, np.uint8) if context.workspace is None else np.asarray(context.workspace)
        for output in outputs:
            nbytes = 0 if output is None else output.nbytes
            part: Any = whole[place : place + nbytes]
            yield None if output is None else part.view(output.dtype).reshape(output.shape)
            place += nbytes


class Writing(Compiling):
    """Compiles element-wise nodes on floats."""

    compiled: type[Walk] = Written

    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        floats = all(v is not None and v.dtype == np.float32 for v in (*node.inputs, *node.outputs))
        return floats and node.op_type in (*UNARY, *BINARY) and super().takes(node, kernels)


def with_writing(walk: type[Walk]) -> Subject:
    """The writing reference with regions that run otherwise."""

    class Changed(Writing):
        compiled = walk

    return subject(Changed, HOST)


class _Elsewhere(Written):
    def write(self, result: np.ndarray, output: np.ndarray, scratch: np.ndarray) -> None:
        np.copyto(scratch, result)


@mutant("graph.random_graphs")
def keeps_results_to_itself() -> Subject:
    """Computes everything, and writes nothing into the outputs it is given."""
    return with_writing(_Elsewhere)


class _Accumulating(Written):
    def write(self, result: np.ndarray, output: np.ndarray, scratch: np.ndarray) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            output += result


@mutant("graph.random_graphs")
def adds_to_what_is_there() -> Subject:
    """Takes memory that it is to write for cleared, and adds its results to what it holds."""
    return with_writing(_Accumulating)


class _Littered(Written):
    def write(self, result: np.ndarray, output: np.ndarray, scratch: np.ndarray) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            scratch += result
        np.copyto(output, scratch)


@mutant("graph.random_graphs")
def sums_in_stale_scratch() -> Subject:
    """Takes its scratch memory for cleared."""
    return with_writing(_Littered)


class _Spendthrift(Written):
    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        done = super().run_into(context, inputs, outputs)
        for value in inputs:
            if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype == np.float32:
                value[...] = 0
        return done


@mutant("graph.shared_sessions")
def clears_its_inputs() -> Subject:
    """Uses the memory of its inputs for scratch when it has read them, though others read them too."""
    return with_writing(_Spendthrift)


class _Updating(Written):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self.inplace = dict.fromkeys(range(len(region.outputs)), tuple(range(len(region.inputs))))

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        for output in outputs:
            if output is not None:
                output.fill(0)
        return super().run_into(context, inputs, outputs)


@mutant("graph.bound_results")
def clears_what_it_updates() -> Subject:
    """Says that its results may lie in the memory of its inputs, and clears that before it reads them."""
    return with_writing(_Updating)


class _Unread(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        read = {v.name for node in self._region.graph.nodes for v in node.inputs if v is not None}
        results = super().__call__(context, *inputs)
        return [x * 0 if v.name in read else x for v, x in zip(self._region.outputs, results, strict=True)]


@mutant("graph.random_graphs")
def drops_what_it_reads_itself() -> Subject:
    """Gives zeros for outputs of a region that nodes inside read too."""
    return with_regions(_Unread)


class _Rows(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return [x.reshape(1) if x.ndim == 0 else x for x in super().__call__(context, *inputs)]


@mutant("graph.scalars")
def makes_rows_of_scalars() -> Subject:
    """Gives results without dimensions one."""
    return with_regions(_Rows)


class _Remembering(Walk):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self._first: dict[int, Any] = {}

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        kept = [self._first.setdefault(i, x.copy()) if x.ndim == 0 else x for i, x in enumerate(inputs)]
        return super().__call__(context, *kept)


@mutant("graph.scalars")
def takes_scalars_for_constants() -> Subject:
    """Keeps the value that an input without dimensions had first."""
    return with_regions(_Remembering)


class _Turned(Compiling):
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        made = list(super().compile(regions))
        return made[::-1] if len({tuple(n.op_type for n in r.graph.nodes) for r in regions}) > 1 else made


@mutant("graph.shared_sessions")
def compiles_in_another_order() -> Subject:
    """Gives what it compiled in the reverse order of what it was to compile."""
    return subject(_Turned, HOST)


class _Overwhelmed(Compiling):
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        if any(len(region.graph.nodes) > 1 for region in regions):
            raise EPFail("the compiler ran out of registers")
        return super().compile(regions)


@mutant("graph.random_graphs")
def compiles_small_regions_only() -> Subject:
    """Claims regions of several nodes and cannot compile them, so that others run what it claimed."""
    return subject(_Overwhelmed, HOST)


class _OneAtATime(Compiling):
    busy = False

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        assert not _OneAtATime.busy, "the compiler is busy"
        _OneAtATime.busy = True
        try:
            time.sleep(0.02)
            return super().compile(regions)
        finally:
            _OneAtATime.busy = False


@mutant("robust.sessions_in_threads")
def compiles_one_at_a_time() -> Subject:
    """Cannot compile for two sessions at once."""
    return subject(_OneAtATime, HOST)


class _OneRun(Compiling):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._failed = False

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        self._failed = self._failed or error is not None

    def on_run_start(self, options: Any) -> None:
        assert not self._failed, "the run before failed"


@mutant("robust.errors_are_raised")
def never_forgives() -> Subject:
    """Refuses to begin a run after one that failed."""
    return subject(_OneRun, HOST)


class _Settled(Written):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self._first: dict[Any, Sequence[Any]] = {}

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        shapes = tuple(None if output is None else output.shape for output in outputs)
        return super().run_into(context, inputs, self._first.setdefault(shapes, outputs))


@mutant("graph.bound_anew")
def writes_where_it_wrote_first() -> Subject:
    """Binds its results when it is first run for some shapes, and writes there ever after."""
    return with_writing(_Settled)


class _Used(Written):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self._first: dict[Any, Sequence[Any]] = {}

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        shapes = tuple(x.shape for x in inputs)
        return super().run_into(context, self._first.setdefault(shapes, inputs), outputs)


@mutant("graph.bound_anew")
def reads_where_it_read_first() -> Subject:
    """Binds its inputs when it is first run for some shapes, and reads there ever after."""
    return with_writing(_Used)
