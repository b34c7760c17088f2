"""L4: mutants that fail under threads, faults and repetition."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np

from onnxplug.contract import KernelDef, NodeView, SessionContext
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import forgiving, subject, with_kernels
from onnxplug_testkit.subject import Subject

_FLOATS = ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Add", "Mul", "Sub")


@mutant("robust.threads")
def global_scratch() -> Subject:
    """All threads compute in one buffer."""
    scratch: dict[tuple[int, ...], np.ndarray] = {}

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            shared = scratch.setdefault(result.shape, np.empty_like(result))
            np.copyto(shared, result)
            time.sleep(0.0005)
            return shared.copy()

        return call

    return with_kernels(_FLOATS, create)


class _OneThread(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._owner: int | None = None

    def on_run_start(self, options: Any) -> None:
        if self._owner is None:
            self._owner = threading.get_ident()
        while self._owner != threading.get_ident():
            time.sleep(0.05)


@mutant("robust.threads")
def stuck_second_thread() -> Subject:
    """A second thread waits for ever."""
    return subject(_OneThread)


_open = [0]


class _Alone(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        if _open[0] and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the device is busy")
        _open[0] += 1
        time.sleep(0.01)

    def close(self) -> None:
        _open[0] -= 1
        super().close()


@mutant("robust.sessions_in_threads")
def one_session_at_a_time() -> Subject:
    """A session cannot be made while a thread holds another."""
    return subject(_Alone)


@mutant("robust.same_bits")
def adds_noise() -> Subject:
    """The last bit of a result is random."""
    rng = np.random.default_rng()

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            return np.where(rng.random(result.shape) < 0.5, np.nextafter(result, np.float32(9)), result)

        return call

    return with_kernels(_FLOATS, create)


@mutant("robust.errors_are_raised")
def swallows_errors() -> Subject:
    """Gives zeros where a kernel fails."""
    operators = ("Add", "Mul", "MatMul", "Gather", "Reshape")
    return forgiving(operators, lambda inputs: np.zeros(inputs[0].shape, inputs[0].dtype))


class _Despairing(ReferenceProvider):
    """Takes scratch memory at the start of a run; once refused it never asks again and cannot run."""

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._refused = False

    def on_run_start(self, options: Any) -> None:
        if self._refused:
            raise RuntimeError("out of memory before")

    def on_run_end(self, options: Any, error: BaseException | None) -> None:
        self._refused = error is not None


@mutant("robust.allocation_fails")
def despairs_of_memory() -> Subject:
    """Refuses every run after one that ran out of memory."""
    return subject(_Despairing)


@mutant("robust.copy_fails")
def despairs_of_copies() -> Subject:
    """Refuses every run after one in which a copy failed."""
    return subject(_Despairing)


_closed = itertools.count()


class _Loud(ReferenceProvider):
    def close(self) -> None:
        super().close()
        raise RuntimeError(f"session {next(_closed)} was closed")


@mutant("robust.close_is_quiet")
def loud_close() -> Subject:
    """Raises when it is closed."""
    return subject(_Loud)


class _Homely(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        self._home = threading.get_ident()

    def close(self) -> None:
        super().close()
        if threading.get_ident() != self._home:
            raise RuntimeError("the device belongs to another thread")


@mutant("robust.close_is_quiet")
def closes_at_home() -> Subject:
    """Raises when it is closed on another thread than it was made on."""
    return subject(_Homely)
