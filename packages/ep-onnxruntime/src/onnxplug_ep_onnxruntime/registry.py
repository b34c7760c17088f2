"""The kernels of onnxruntime's CPU provider as a registry: what it is offered, and the claim that the conformance kit judges."""

from __future__ import annotations

import functools
from typing import Any

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, NodeView
from onnxplug_ep_onnxruntime import library

_INTERNAL = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of what onnxruntime's optimizer writes."""


@functools.cache
def registry() -> KernelRegistry:
    """One definition for each of onnxruntime's, with the versions of the operator's schema that it is for."""
    found = KernelRegistry()
    seen = set()
    for kernel in library.native().get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain not in _INTERNAL:
            made = _definition(kernel)
            key = made and (made.domain, made.op_type, made.since, made.until, repr(sorted(made.types.items())))
            if made is not None and key not in seen:
                seen.add(key)
                found.add(made)
    return found


def _definition(kernel: Any) -> KernelDef | None:
    """A kernel whose version is open to the end is for the schema of its first version alone, as onnxruntime looks it up."""
    first, last = kernel.version_range
    known = library.operators().get((kernel.domain, kernel.op_name), frozenset())
    versions = [v for v in known if v == first or (last < 2**31 - 1 and first <= v <= last)]
    if not versions:
        return None
    types = {name: frozenset(kinds) for name, kinds in kernel.type_constraints.items()}
    return KernelDef(kernel.domain, kernel.op_name, min(versions), never, until=max(versions), types=types)


def never(node: NodeView) -> Kernel:
    """Nodes are claimed as regions, also alone."""
    raise NotImplementedError(f"{node.name}: whatever is claimed of onnxruntime's is a region")
