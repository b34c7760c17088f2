"""The provider's kernels: every operator of onnx.reference in every schema version it implements."""

from __future__ import annotations

import functools

from onnxplug.contract import KernelDef, KernelRegistry
from onnxplug.contract.versions import schema_versions
from onnxplug_ep_reference.kernels.adapter import ReferenceKernel
from onnxplug_ep_reference.kernels.catalogue import OpClass, implementations
from onnxplug_ep_reference.kernels.types import narrowed
from onnxplug_ep_reference.memory import SimAllocator

# Views and overwrites that let a plan exercise both on simulated memory.
_SAME_BYTES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_OVERWRITES = {"Add": (0, 1), "Mul": (0, 1), "Relu": (0,)}


def registry(memory: SimAllocator | None, *, double: bool) -> KernelRegistry:
    """The kernels over ``memory`` (None: host memory), ``double`` with float64 arithmetic."""
    return KernelRegistry(
        KernelDef(
            domain,
            op_type,
            since,
            functools.partial(ReferenceKernel, implementation, memory, double=double),
            until=until,
            types=narrowed(domain, op_type, until),
            alias={0: 0} if not domain and op_type in _SAME_BYTES else {},
            inplace={0: _OVERWRITES[op_type]} if not domain and op_type in _OVERWRITES else {},
        )
        for domain, op_type, since, until, implementation in _spans()
    )


@functools.cache
def _spans() -> list[tuple[str, str, int, int, OpClass]]:
    """Domain, operator, first and last version of each run of consecutive versions that one class implements for one set of types."""
    found = implementations()
    spans: list[tuple[str, str, int, int, OpClass]] = []
    for (domain, op_type), versions in schema_versions().items():
        previous = None
        for version in sorted(versions):
            implementation = found.get((domain, op_type, version))
            current = None if implementation is None else (implementation, narrowed(domain, op_type, version))
            if implementation is not None and current == previous:
                spans[-1] = (*spans[-1][:3], version, implementation)
            elif implementation is not None:
                spans.append((domain, op_type, version, version, implementation))
            previous = current
    return spans
