"""L0, L1 and L4: mutants that change what is not theirs, hold what they were lent, and take whatever options they are given."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug.contract import DataTransfer, Device, EPFail, KernelDef, KernelRegistry, NodeView, SessionContext
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.kernels import trial
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject, with_kernels
from onnxplug_testkit.subject import Subject


@dataclass(frozen=True)
class _Lenient(ReferenceOptions):
    ignore_unknown = True


@mutant("contract.options_are_refused")
def drops_what_it_does_not_know() -> Subject:
    """Takes a misspelt option without a word."""
    return subject(options=_Lenient)


@mutant("contract.options_are_refused")
def any_device_will_do() -> Subject:
    """Runs on the first device whichever it is asked for."""
    return subject(
        create=lambda options, context: ReferenceProvider(dataclasses.replace(options, device_id=0), context)
    )


@mutant("contract.code_is_left_alone")
@contextlib.contextmanager
def judges_itself() -> Iterator[Subject]:
    """Replaces the kit's comparison by one that finds no difference."""
    compare = vars(trial)["compare"]

    def create(options: ReferenceOptions, context: SessionContext) -> ReferenceProvider:
        vars(trial)["compare"] = lambda *_, **__: 0.0
        return ReferenceProvider(options, context)

    made = subject(create=create)
    made.announce()
    try:
        yield made
    finally:
        vars(trial)["compare"] = compare


_instances = itertools.count()


class _Growing(ReferenceProvider):
    def get_kernel_registry(self) -> KernelRegistry:
        few = next(_instances) < 2
        return KernelRegistry(
            dataclasses.replace(d, types={"T": frozenset({"tensor(float)"})}) if few else d
            for d in super().get_kernel_registry()
            if d.op_type == "Neg"
        )


@mutant("kernels.claim_is_steady", "Neg")
def claims_more_later() -> Subject:
    """Registers one type when it is asked what it can do, and the others afterwards."""
    global _instances
    _instances = itertools.count()
    return subject(_Growing)


class _Late(DataTransfer):
    def __init__(self, inner: DataTransfer) -> None:
        self._inner = inner

    def can_copy(self, source: Device, destination: Device) -> bool:
        return self._inner.can_copy(source, destination)

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        def later() -> None:
            time.sleep(0.02)
            with contextlib.suppress(EPFail):  # the memory is gone by then
                self._inner.copy(source, destination)

        if stream is None:
            self._inner.copy(source, destination)
        else:
            threading.Thread(target=later, daemon=True).start()


class _Streaming(ReferenceProvider):
    def get_data_transfer(self) -> DataTransfer | None:
        made = super().get_data_transfer()
        return None if made is None else _Late(made)

    def create_stream(self, device: Device) -> Any:
        return object()

    def sync(self) -> None:
        """Waits for nothing."""


@mutant("memory.stream_copies")
def waits_for_nothing() -> Subject:
    """Copies on a stream go on after ``sync()``."""
    return subject(_Streaming)


class _Resentful(ReferenceProvider):
    failures: list[np.ndarray] = []  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def on_run_start(self, options: Any) -> None:
        """There is nothing to prepare."""

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        if error is not None:
            self.failures.append(np.zeros(1 << 13))


@mutant("memory.leaks_over_failures")
def remembers_failures() -> Subject:
    """Keeps something of every run that fails."""
    _Resentful.failures.clear()
    return subject(_Resentful)


@mutant("memory.feeds_are_let_go")
def holds_its_inputs() -> Subject:
    """Keeps every input it was given."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        held: list[np.ndarray] = []

        def call(*inputs: np.ndarray) -> np.ndarray:
            held.append(inputs[0])
            result: np.ndarray = kernel(*inputs)
            return result

        return call

    return with_kernels(("Relu",), create)


class _Silencing(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        np.seterr(all="ignore")


@mutant("robust.process_is_left_alone")
@contextlib.contextmanager
def silences_numpy() -> Iterator[Subject]:
    """Turns NumPy's floating point warnings off when a session is made."""
    with np.errstate():
        made = subject(_Silencing)
        made.announce()
        yield made


class _Seeding(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        random.seed(0)


@mutant("robust.process_is_left_alone")
def seeds_everybody() -> Subject:
    """Sets the seed of Python's random numbers in every run."""
    return subject(_Seeding)
