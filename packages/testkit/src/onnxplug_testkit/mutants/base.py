"""What mutants are made of: the reference under another name, and ways to change one thing about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import (
    CONTRACT_VERSION,
    DataTransfer,
    Kernel,
    KernelDef,
    KernelRegistry,
    NodeView,
    ProviderSpec,
)
from onnxplug_ep_reference.device import check, devices
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.subject import Subject

NAME = "MutantExecutionProvider"
HOST = {"memory": "host"}
Change = Callable[[NodeView, Sequence[Any], Any], Any]
"""(node, inputs, results of the unchanged kernel) -> results."""


def subject(
    provider: type[ReferenceProvider] = ReferenceProvider, given: dict[str, str] | None = None, **changes: Any
) -> Subject:
    """A subject of a provider class, tested with the options given; ``changes`` are fields of its announcement."""
    spec = ProviderSpec(
        NAME,
        CONTRACT_VERSION,
        provider,
        device_kind="sim",
        vendor="mutants",
        options=ReferenceOptions,
        check=check,
        devices=devices,
    )
    return Subject(dataclasses.replace(spec, **changes), given or {})


def with_transfer(change: Callable[[DataTransfer], DataTransfer]) -> Subject:
    """The reference with its data transfer changed."""

    class Changed(ReferenceProvider):
        def get_data_transfer(self) -> DataTransfer | None:
            made = super().get_data_transfer()
            return None if made is None else change(made)

    return subject(Changed)


def with_results(change: Change, operators: Iterable[str]) -> Subject:
    """The reference, on host memory, with the results of some operators changed."""
    return with_kernels(operators, lambda definition, node: altered(node, definition.create(node), change))


def with_kernels(
    operators: Iterable[str], create: Callable[[KernelDef, NodeView], Any], options: dict[str, str] | None = None
) -> Subject:
    """The reference with the kernels of some operators made by ``create(definition, node)``."""
    chosen = frozenset(operators)

    class Changed(ReferenceProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry(
                dataclasses.replace(d, create=lambda node, d=d: create(d, node)) if d.op_type in chosen else d  # type: ignore[misc]
                for d in super().get_kernel_registry()
            )

    return subject(Changed, HOST if options is None else options)


def forgiving(operators: Iterable[str], answer: Callable[[Sequence[np.ndarray]], np.ndarray]) -> Subject:
    """The reference with kernels of some operators that give ``answer(inputs)`` where they would fail."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(*inputs: np.ndarray) -> np.ndarray:
            try:
                result: np.ndarray = kernel(*inputs)
            except Exception:
                return answer(inputs)
            return result

        return call

    return with_kernels(operators, create)


def altered(node: NodeView, kernel: Kernel | Callable[..., Any], change: Change) -> Callable[..., Any]:
    """A kernel in the returning form whose results are changed."""
    return lambda *inputs: change(node, inputs, kernel(*inputs))
