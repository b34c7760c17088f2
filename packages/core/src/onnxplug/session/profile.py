"""The profile of a session: Chrome trace events, one per line, in onnxruntime's form (opens in Perfetto and
chrome://tracing)."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.graph import NodeView, ValueView
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import Device
from onnxplug.contract.types import element_of
from onnxplug.place import CORE
from onnxplug.place.units import RegionUnit
from onnxplug.plan.steps import Form, Keep, Step

if TYPE_CHECKING:
    from onnxplug.contract.claims import DeviceWork
    from onnxplug.contract.logs import Logger


class Profile:
    """Collects events; times in microseconds since profiling began. What was not saved when ``session`` goes is saved then, or when
    the process ends, as onnxruntime does."""

    def __init__(self, prefix: str, session: object, log: Logger) -> None:
        self.start_ns = time.perf_counter_ns()
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        self.path = f"{prefix}_{stamp}_{int(now * 1000) % 1000:03d}.json"
        self._events: list[dict[str, Any]] = []
        self._unsaved = weakref.finalize(session, _leave, self.path, self._events, os.getpid(), log)

    def event(self, category: str, name: str, start_ns: int, end_ns: int, **arguments: Any) -> None:
        """One finished piece of work."""
        start, end = ((each - self.start_ns) // 1000 for each in (start_ns, end_ns))  # rounded so that nesting stays
        self._events.append(
            {
                "cat": category, "pid": os.getpid(), "tid": threading.get_native_id(), "dur": end - start, "ts": start,
                "ph": "X", "name": name, "args": arguments,
            }
        )  # fmt: skip

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage of session creation, which may hold others."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.event("Session", name, start, time.perf_counter_ns())

    def copy(self, source: Device, target: Device, array: np.ndarray, start_ns: int, end_ns: int) -> None:
        """An input or result carried between the host and a device at the edge of a run."""
        shape = _type_shape(array)
        self.event(
            "Node", "Memcpy_kernel_time", start_ns, end_ns, op_name="Memcpy", provider=CORE, node_index="", form="copy",
            source=str(source), target=str(target), activation_size=str(array.nbytes), output_size=str(array.nbytes),
            parameter_size="0", input_type_shape=[shape] if shape else [], output_type_shape=[shape] if shape else [],
            thread_scheduling_stats="",
        )  # fmt: skip

    def step(self, step: Step, number: int, frame: Any, start_ns: int, end_ns: int) -> None:
        """One step of a plan, the ``number``-th of a run."""
        slots, values = frame.plan.slots, frame.values
        constant = [n for n in step.ins if n is not None and slots[n].keep is Keep.CONSTANT]
        ins, outs = ([values[n] for n in numbers if n is not None] for numbers in (step.ins, step.outs))
        parameters = sum(_nbytes(values[n]) for n in constant)
        further: dict[str, Any] = {}
        if isinstance(step.unit, RegionUnit):
            further = {"nodes": [node.name for node in step.unit.nodes]}
        if step.form is Form.COPY:
            at, to = step.ins[0], step.outs[0]
            further = {"source": str(slots[at].device), "target": str(slots[to].device)}
        self.event(
            "Node", f"{step.name}_kernel_time", start_ns, end_ns, op_name=step.op_type, provider=step.provider, node_name=step.name,
            node_index=str(number), form=step.form.value, parameter_size=str(parameters),
            activation_size=str(sum(map(_nbytes, ins)) - parameters), output_size=str(sum(map(_nbytes, outs))), **further,
            input_type_shape=[s for v in ins if (s := _type_shape(v))], output_type_shape=[s for v in outs if (s := _type_shape(v))],
            thread_scheduling_stats="",  # as onnxruntime writes it of what one thread runs
        )  # fmt: skip

    def part(
        self, step: Step, nodes: Sequence[NodeView], specs: Mapping[str, TensorSpec], start_ns: int, end_ns: int
    ) -> None:
        """Part of a step that runs a region: nodes that were fused."""
        made = {v.name for node in nodes for v in node.outputs if v is not None}
        ours = {id(node) for node in nodes}
        reads = {v.name: v for node in nodes for v in node.inputs if v is not None and v.name not in made}
        leaves = [v for n in nodes for v in n.outputs if v is not None and not ours.issuperset(map(id, v.consumers))]
        ins, outs = list(reads.values()), leaves or [v for v in nodes[-1].outputs if v is not None]
        self.event(
            "Kernel", f"{nodes[0].name}_kernel_time", start_ns, end_ns, op_name="+".join(dict.fromkeys(n.op_type for n in nodes)),
            provider=step.provider, node_name=nodes[0].name, nodes=[node.name for node in nodes], region=step.name,
            input_type_shape=_type_shapes(specs, ins), output_type_shape=_type_shapes(specs, outs),
        )  # fmt: skip

    def device_work(self, provider: str, work: DeviceWork) -> None:
        """What a device tells of a step: a kernel's launch, say."""
        nodes = work.nodes
        self.event(
            "Kernel", f"{work.kernel}_kernel_time", work.start_ns, work.end_ns, op_name="+".join(dict.fromkeys(n.op_type for n in nodes)),
            provider=provider, node_name=nodes[0].name, nodes=[node.name for node in nodes], region=work.step,
        )  # fmt: skip

    def save(self) -> str:
        """Write the file; returns its name. Fail when it cannot be written."""
        self._unsaved.detach()
        _write(self.path, self._events)
        return self.path

    def leave(self) -> None:
        """Write the file of a session that is closed."""
        self._unsaved()


def _write(path: str, events: Sequence[Mapping[str, Any]]) -> None:
    import json

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(e) for e in events) + "\n]\n")
    except OSError as error:
        raise Fail(f"Cannot write the profile to '{path}': {error.strerror or error}") from error


def _leave(path: str, events: Sequence[Mapping[str, Any]], process: int, log: Logger) -> None:
    """Write the file where nobody asked for it, in the process that it belongs to."""
    if os.getpid() != process:
        return
    try:
        _write(path, events)
    except Fail as error:
        log.error("%s", error)


def _nbytes(value: Any) -> int:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return (
        int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize if shape is not None and dtype is not None else 0
    )


def _type_shapes(specs: Mapping[str, TensorSpec], values: Sequence[ValueView]) -> list[dict[str, list[int]]]:
    return [s for v in values if (s := _type_shape(specs.get(v.name, v)))]


def _type_shape(value: Any) -> dict[str, list[int]] | None:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return {element_of(np.dtype(dtype)): list(shape)} if shape is not None and dtype is not None else None
