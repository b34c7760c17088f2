"""L1, L3 and L4: mutants that show where memory is used again, where tensors are large, and in what stays when a session is gone."""

from __future__ import annotations

import contextlib
import decimal
import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import NodeView, Region, RunContext, SessionContext
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.models import BINARY, UNARY
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject, with_results
from onnxplug_testkit.mutants.compiling import Walk, with_regions
from onnxplug_testkit.mutants.writing import Written, with_writing
from onnxplug_testkit.subject import Subject

_GROUPS = 65535
"""The most groups along the second axis of a grid, on devices of several vendors."""


class _ByAddress(Walk):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self._known: tuple[Any, Sequence[Any]] | None = None

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        places = [(x.ctypes.data, x.shape) for x in inputs]
        if self._known is None or self._known[0] != places:
            self._known = places, [x.copy() for x in super().__call__(context, *inputs)]
        return [x.copy() for x in self._known[1]]


@mutant("graph.fed_again")
def knows_inputs_by_address() -> Subject:
    """Takes inputs that lie where the last ones lay for the same, and gives the last results."""
    return with_regions(_ByAddress)


class _Accumulator(Written):
    def __init__(self, region: Region, registry: Any) -> None:
        super().__init__(region, registry)
        self.inplace = dict.fromkeys(range(len(region.outputs)), tuple(range(len(region.inputs))))
        self._first: dict[int, np.ndarray] = {}

    def run_into(self, context: RunContext, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        held = [self._state(x, outputs) for x in inputs]
        return super().run_into(context, held, outputs)

    def _state(self, x: Any, outputs: Sequence[Any]) -> Any:
        updated = any(y is not None and np.shares_memory(x, y) for y in outputs)
        return self._first.setdefault(x.ctypes.data, x.copy()) if updated else x.copy()


@mutant("graph.fed_again")
def updates_what_it_saw_first() -> Subject:
    """Keeps what it is to update in place where it met it first, and updates that again."""
    return with_writing(_Accumulator)


def _first_groups(node: NodeView, inputs: Sequence[Any], results: Any) -> Any:
    if results.ndim and len(results) > _GROUPS:
        results[_GROUPS:] = 0
    return results


@mutant("graph.dynamic_shapes")
def starts_too_few_groups() -> Subject:
    """Has a group of threads for each row, and no more groups than some devices start at once."""
    return with_results(_first_groups, (*UNARY, *BINARY))


@mutant("graph.sizes_in_turns")
def multiplies_too_few_rows() -> Subject:
    """Has a group of threads for each row of a product, and no more groups than some devices start at once."""
    return with_results(_first_groups, ("MatMul", "Gemm"))


class _Working(ReferenceProvider):
    let_go = threading.Event()

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        threading.Thread(target=self.let_go.wait, daemon=True).start()


@mutant("memory.leaks_over_sessions")
@contextlib.contextmanager
def leaves_threads_behind() -> Iterator[Subject]:
    """Starts a worker for each session and does not end it."""
    _Working.let_go.clear()
    made = subject(_Working)
    made.announce()
    try:
        yield made
    finally:
        _Working.let_go.set()


class _Opening(ReferenceProvider):
    opened: list[int] = []  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self.opened.append(os.open(os.devnull, os.O_RDONLY))


@mutant("memory.leaks_over_sessions")
@contextlib.contextmanager
def leaves_files_open() -> Iterator[Subject]:
    """Opens its device's file for each session and does not close it."""
    made = subject(_Opening)
    made.announce()
    try:
        yield made
    finally:
        for descriptor in _Opening.opened:
            os.close(descriptor)
        _Opening.opened.clear()


@mutant("memory.leaks_over_sessions")
@contextlib.contextmanager
def leaves_temporary_files() -> Iterator[Subject]:
    """Writes what it compiles into a temporary file for each session and does not remove it."""
    files: list[str] = []

    class Writing(ReferenceProvider):
        def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
            super().__init__(options, context)
            descriptor, name = tempfile.mkstemp()
            os.close(descriptor)
            files.append(name)

    made = subject(Writing)
    made.announce()
    try:
        yield made
    finally:
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                os.remove(name)


@mutant("memory.leaks_over_sessions")
@contextlib.contextmanager
def leaves_processes_behind() -> Iterator[Subject]:
    """Starts a process for each session and never asks how it ended."""
    started: list[subprocess.Popen[bytes]] = []

    class Starting(ReferenceProvider):
        def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
            super().__init__(options, context)
            started.append(subprocess.Popen([sys.executable, "-S", "-E", "-c", ""]))

    made = subject(Starting)
    made.announce()
    try:
        yield made
    finally:
        for process in started:
            process.wait()


class _Stubborn(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return super().__call__(context, *inputs)


@mutant("robust.interrupts")
def runs_on() -> Subject:
    """Begins anew when it is interrupted."""
    return with_regions(_Stubborn)


class _Half(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        try:
            return super().__call__(context, *inputs)
        except BaseException as error:
            raise RuntimeError(f"{self.kernels[0][0].name}: {error}") from error


@mutant("robust.interrupts")
def takes_interrupts_for_errors() -> Subject:
    """Ends a run that is interrupted as one that failed, which another provider may answer."""
    return with_regions(_Half)


class _Copy:
    """Copies when it is gone."""

    def __init__(self, source: np.ndarray) -> None:
        self._source, self.target = source, np.zeros_like(source)

    def __del__(self) -> None:
        np.copyto(self.target, self._source)


class _Finalizing(Walk):
    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        copies = [_Copy(x) for x in super().__call__(context, *inputs)]
        targets = [copy.target for copy in copies]
        del copies
        return targets


@mutant("robust.interrupts")
def ends_its_work_in_finalizers() -> Subject:
    """Copies its results in finalizers, in which interrupts are dropped and the copy with them."""
    return with_regions(_Finalizing)


class _Scratching(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        assert self.allocator is not None
        self._scratch = self.allocator.allocate(1 << 10)

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        assert self.allocator is not None
        if error is None or isinstance(error, Exception):
            self.allocator.free(self._scratch)

    def close(self) -> None:
        """Runs have given everything back."""


@mutant("robust.interrupts")
def keeps_scratch_of_interrupted_runs() -> Subject:
    """Gives its scratch memory back when a run ends or fails, not when it is interrupted."""
    return subject(_Scratching)


class _Talking(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        os.write(2, b"42 kernels launched\n")


@mutant("robust.process_is_left_alone")
def prints_past_python() -> Subject:
    """Has a library that writes to the error stream by itself."""
    return subject(_Talking)


class _Exact(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        decimal.getcontext().prec = 50


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def counts_in_fifty_digits() -> Iterator[Subject]:
    """Sets how exact decimal numbers of the thread are."""
    with decimal.localcontext():
        made = subject(_Exact)
        made.announce()
        yield made


class _Hurried(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        gc.disable()


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def stops_the_collector() -> Iterator[Subject]:
    """Turns the garbage collector off, so that a run takes the same time each time."""
    made = subject(_Hurried)
    made.announce()
    try:
        yield made
    finally:
        gc.enable()
