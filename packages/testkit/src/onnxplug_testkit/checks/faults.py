"""L4: allocations and copies that fail, and a device that is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import EPFail, Into, Kernel, KernelRegistry
from onnxplug.contract.errors import STATUS_ERRORS, DeviceReset
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import ATOL, RTOL
from onnxplug_testkit.models import chain, expected, open_session
from onnxplug_testkit.subject import Subject

FAULTS = 6


@check("robust.allocation_fails")
def allocation_fails(subject: Subject, seed: int) -> None:
    """When allocation fails from the k-th on, that run raises or is answered, no memory is lost, and the next run is right."""
    _inject(subject, seed, MemoryError("injected"), _break_allocators)


@check("robust.copy_fails")
def copy_fails(subject: Subject, seed: int) -> None:
    """When copies fail from the k-th on, that run raises or is answered, no memory is lost, and the next run is right."""
    with subject.instance() as instance:
        if instance.call("get_data_transfer") is None:
            raise Unsupported("device_memory")
    _inject(subject, seed, EPFail("injected"), _break_transfer)


@check("robust.device_lost")
def device_lost(subject: Subject, seed: int) -> None:
    """When everything on the device fails from the k-th call on, runs raise, closing is quiet, and the next session is right."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((64, 16)).astype(np.float32)
    want = expected(made, {"x": x}, subject.name)[0]
    for k in range(FAULTS):
        fault = _Fault(DeviceReset("injected"))

        def watch(provider: Any, fault: _Fault = fault) -> Any:
            _break_allocators(provider, fault)
            _break_kernels(provider, fault)
            if provider.get_data_transfer() is not None:
                _break_transfer(provider, fault)
            return provider

        with subject.watched(watch):
            session = open_session(subject, made)
        try:
            session.run(None, {"x": x})
            fault.count, fault.at = 0, k
            for _ in range(2):
                try:
                    session.run(None, {"x": x})
                except STATUS_ERRORS:
                    continue
                assert fault.count <= k, f"a run on a device that was lost at call {k} gives a result"
        finally:
            try:
                session.close()
            except Exception as error:
                raise AssertionError(
                    f"close() after the device was lost raises {type(error).__name__}: {error}"
                ) from error
        if fault.count <= k:
            break
        with open_session(subject, made) as session:
            got = session.run(None, {"x": x})[0]
            assert np.allclose(got, want, RTOL, ATOL), "a session made after the device was lost is wrong"


class _Fault:
    """Counts calls and fails the chosen one and those after it."""

    def __init__(self, error: Exception) -> None:
        self.error, self.at, self.count = error, -1, 0

    def strike(self) -> None:
        """One call."""
        self.count += 1
        if 0 <= self.at < self.count:
            raise self.error


def _inject(subject: Subject, seed: int, error: Exception, install: Callable[[Any, _Fault], list[Any]]) -> None:
    """Fail calls from k = 0, 1, ... on in the first run of fresh sessions; the second run is left alone."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((64, 16)).astype(np.float32)
    want = expected(made, {"x": x}, subject.name)[0]
    struck = False
    for k in range(FAULTS):
        fault = _Fault(error)
        noted: list[Any] = []

        def watch(provider: Any, fault: _Fault = fault, noted: list[Any] = noted) -> Any:
            noted.extend(install(provider, fault))
            return provider

        with subject.watched(watch), open_session(subject, made) as session:
            fault.count, fault.at = 0, k
            try:
                got = session.run(None, {"x": x})[0]
                assert np.allclose(got, want, RTOL, ATOL), f"after call {k} failed a wrong result is given"
            except STATUS_ERRORS:
                pass
            struck = struck or fault.count > k
            fault.at = -1
            got = session.run(None, {"x": x})[0]
            assert np.allclose(got, want, RTOL, ATOL), f"the run after the one in which call {k} failed is wrong"
        left = sum(a.stats().bytes_in_use for a in noted)
        assert left == 0, f"{left} bytes stay in use after a session in which call {k} failed"
    if not struck:
        raise Unsupported("allocator", "a run makes no such call")


def _break_allocators(provider: Any, fault: _Fault) -> list[Any]:
    create = provider.create_allocators
    noted: list[Any] = []

    def create_allocators() -> Sequence[Any]:
        made = create()
        for allocator in made:
            allocate = allocator.allocate

            def failing(nbytes: int, allocate: Any = allocate) -> Any:
                fault.strike()
                return allocate(nbytes)

            allocator.allocate = failing
        noted.extend(made)
        return made  # type: ignore[no-any-return]

    provider.create_allocators = create_allocators
    return noted


def _break_transfer(provider: Any, fault: _Fault) -> list[Any]:
    get = provider.get_data_transfer

    def get_data_transfer() -> Any:
        transfer = get()
        copy = transfer.copy

        def failing(source: Any, destination: Any, stream: Any = None) -> None:
            fault.strike()
            copy(source, destination, stream)

        transfer.copy = failing
        return transfer

    provider.get_data_transfer = get_data_transfer
    return _break_allocators(provider, _Fault(MemoryError()))


def _break_kernels(provider: Any, fault: _Fault) -> None:
    get = provider.get_kernel_registry

    def get_kernel_registry() -> KernelRegistry:
        return KernelRegistry(
            dataclasses.replace(d, create=lambda node, d=d: _Failing(d.create(node), fault)) for d in get() or ()
        )

    provider.get_kernel_registry = get_kernel_registry


class _Failing(Kernel):
    """A kernel behind a fault."""

    def __init__(self, kernel: Any, fault: _Fault) -> None:
        self._kernel, self._fault = kernel, fault
        self.packed = kernel.packed if isinstance(kernel, Kernel) else ()

    def __call__(self, *inputs: Any) -> Any:
        self._fault.strike()
        return self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        into = self._kernel.bind(inputs, outputs) if isinstance(self._kernel, Kernel) else None
        if into is None:
            return None

        def call(*operands: Any) -> None:
            self._fault.strike()
            into.call(*operands)

        return Into(call, into.workspace)
