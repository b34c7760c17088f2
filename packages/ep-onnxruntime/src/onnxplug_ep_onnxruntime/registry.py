"""The kernels of onnxruntime's CPU provider as a registry: what it is offered, and the claim that the conformance kit judges."""

from __future__ import annotations

import functools
from typing import Any

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, NodeView
from onnxplug_ep_onnxruntime import library

_INTERNAL = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of what onnxruntime's optimizer writes."""
_FLOAT, _HALF = "tensor(float)", "tensor(float16)"
_OPEN = 2**31 - 1

Types = dict[str, frozenset[str]]
Range = tuple[str, str, int, int]


@functools.cache
def registry() -> KernelRegistry:
    """The kernels by schema versions. Where there are some for float32 and none for float16, onnxruntime casts, so that it takes both."""
    by_range: dict[Range, list[Types]] = {}
    for kernel in library.kernels():
        if kernel.domain not in _INTERNAL and (versions := _versions(kernel)):
            types = {name: frozenset(kinds) for name, kinds in kernel.type_constraints.items()}
            _add(by_range.setdefault((kernel.domain, kernel.op_name, *versions), []), types)
    return KernelRegistry(
        KernelDef(domain, op_type, since, never, until=until, types=types)
        for (domain, op_type, since, until), kinds in by_range.items()
        for types in (
            kinds if any(_HALF in some for each in kinds for some in each.values()) else map(_with_half, kinds)
        )
    )


def never(node: NodeView) -> Kernel:
    """Nodes are claimed as regions, also alone."""
    raise NotImplementedError(f"{node.name}: whatever is claimed of onnxruntime's is a region")


def _versions(kernel: Any) -> tuple[int, int] | None:
    """The first and last version of the operator's schema that a kernel is for. One that is open to the end is for the schema of its first
    version alone, as onnxruntime looks it up."""
    first, last = kernel.version_range
    known = library.operators().get((kernel.domain, kernel.op_name), frozenset())
    versions = [v for v in known if v == first or (last < _OPEN and first <= v <= last)]
    return (min(versions), max(versions)) if versions else None


def _with_half(types: Types) -> Types:
    return {name: kinds | {_HALF} if _FLOAT in kinds else kinds for name, kinds in types.items()}


def _add(known: list[Types], types: Types) -> None:
    """Add what a kernel takes, as one with those that differ from it in one constraint: onnxruntime has a kernel for each type."""
    for other in known:
        differing = [name for name in types if types[name] != other.get(name)]
        if types.keys() == other.keys() and len(differing) <= 1:
            for name in differing:
                types[name] |= other[name]
            known.remove(other)
            return _add(known, types)
    known.append(types)
