"""The kernel registry: the tables of all families, for what one device can do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from onnxplug.contract import Fail, Kernel, KernelDef, KernelRegistry, NodeView, type_strings
from onnxplug_ep_opencl.kernels.call import CountedKernel, DeviceKernel, Session
from onnxplug_ep_opencl.kernels.entry import Entry
from onnxplug_ep_opencl.kernels.table import entries
from onnxplug_ep_opencl.kernels.target import Target


def registry(session: Session) -> KernelRegistry:
    """The kernels of one session on one device."""

    def make(entry: Entry, node: NodeView) -> Kernel:
        reason = None if entry.refuse is None else entry.refuse(node)
        if reason is not None:  # asked for all the same: to evaluate a node of constants
            raise Fail(f"{entry.op_type}: {reason}")
        if entry.largest is not None:
            return CountedKernel(entry.lower, session, node, entry.largest, entry.counted)
        packed = () if entry.pack is None else entry.pack(node, session.target)
        return DeviceKernel(entry.lower, session, node, packed)

    return KernelRegistry(_definition(entry, session.target, make) for entry in entries())


def refusals() -> Iterator[tuple[tuple[str, str], Callable[[NodeView], str | None]]]:
    """Operators with nodes that are declined although a kernel's types and versions fit, and what says so."""
    for entry in entries():
        if entry.refuse is not None:
            yield (entry.domain, entry.op_type), entry.refuse


def _definition(entry: Entry, target: Target, make: Callable[[Entry, NodeView], Kernel]) -> KernelDef:
    types = {
        name: type_strings(e for e in elements if e != "double" or target.double)
        for name, elements in entry.types.items()
    }
    create = entry.create if entry.create is not None else functools.partial(make, entry)
    return KernelDef(
        entry.domain, entry.op_type, entry.since, create, entry.until, types, frozenset(entry.host_inputs), frozenset(entry.host_outputs),
        {0: 0} if entry.alias else {}, {0: entry.inplace} if entry.inplace else {},
    )  # fmt: skip
