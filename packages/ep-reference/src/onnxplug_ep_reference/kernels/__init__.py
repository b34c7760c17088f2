"""The provider's kernels: every operator of onnx.reference in every schema version it implements."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from onnxplug.contract import KernelDef, KernelRegistry
from onnxplug.contract.versions import schema_versions
from onnxplug_ep_reference.kernels.adapter import ReferenceKernel
from onnxplug_ep_reference.kernels.catalogue import OpClass, implementations
from onnxplug_ep_reference.kernels.types import narrowed
from onnxplug_ep_reference.memory import SimAllocator

Types = Mapping[str, frozenset[str]]
# Views and overwrites that let a plan exercise both on simulated memory.
_SAME_BYTES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_OVERWRITES = {"Add": (0, 1), "Mul": (0, 1), "Relu": (0,)}


def registry(memory: SimAllocator | None, *, double: bool) -> KernelRegistry:
    """The kernels over ``memory`` (None: host memory, where all sessions share one object), ``double`` with float64 arithmetic."""
    return _on_host(double) if memory is None else KernelRegistry(_definitions(memory, double))


@functools.cache
def _on_host(double: bool) -> KernelRegistry:
    return KernelRegistry(_definitions(None, double))


def _definitions(memory: SimAllocator | None, double: bool) -> Iterator[KernelDef]:
    for domain, op_type, since, until, implementation, types in _spans():
        yield KernelDef(
            domain,
            op_type,
            since,
            functools.partial(ReferenceKernel, implementation, memory, double=double),
            until=until,
            types=types,
            alias={0: 0} if not domain and op_type in _SAME_BYTES else {},
            inplace={0: _OVERWRITES[op_type]} if not domain and op_type in _OVERWRITES else {},
        )


@functools.cache
def _spans() -> list[tuple[str, str, int, int, OpClass, Types]]:
    """Domain, operator, first and last version of each run of consecutive versions that one class implements for one set of types, the
    class and the types."""
    found = implementations()
    spans: list[tuple[str, str, int, int, OpClass, Types]] = []
    for (domain, op_type), versions in schema_versions().items():
        previous = None
        for version in sorted(versions):
            implementation = found.get((domain, op_type, version))
            current = None if implementation is None else (implementation, narrowed(domain, op_type, version))
            if current is not None and current == previous:
                spans[-1] = (*spans[-1][:3], version, *current)
            elif current is not None:
                spans.append((domain, op_type, version, version, *current))
            previous = current
    return spans
