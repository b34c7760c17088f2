"""The profile of a session: Chrome trace events, one per line, in onnxruntime's form (opens in Perfetto and
chrome://tracing)."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import element_of
from onnxplug.plan.steps import Step


class Profile:
    """Collects events; times in microseconds since profiling began."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.perf_counter_ns()
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        self.path = f"{prefix}_{stamp}_{int(now * 1000) % 1000:03d}.json"
        self._events: list[dict[str, Any]] = []

    def event(self, category: str, name: str, start_ns: int, end_ns: int, **arguments: Any) -> None:
        """One finished piece of work."""
        self._events.append(
            {
                "cat": category, "pid": os.getpid(), "tid": threading.get_native_id(), "dur": (end_ns - start_ns) // 1000,
                "ts": (start_ns - self.start_ns) // 1000, "ph": "X", "name": name, "args": arguments,
            }
        )  # fmt: skip

    def step(self, step: Step, frame: Any, start_ns: int, end_ns: int) -> None:
        """One step of a plan."""
        ins, outs = ([frame.values[n] for n in numbers if n is not None] for numbers in (step.ins, step.outs))
        self.event(
            "Node", f"{step.name}_kernel_time", start_ns, end_ns, op_name=step.op_type, provider=step.provider, node_name=step.name,
            form=step.form.value, activation_size=str(sum(map(_nbytes, ins))), output_size=str(sum(map(_nbytes, outs))),
            input_type_shape=[s for v in ins if (s := _type_shape(v))], output_type_shape=[s for v in outs if (s := _type_shape(v))],
        )  # fmt: skip

    def save(self) -> str:
        """Write the file; returns its name. Fail when it cannot be written."""
        try:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write("[\n" + ",\n".join(json.dumps(e) for e in self._events) + "\n]\n")
        except OSError as error:
            raise Fail(f"Cannot write the profile to '{self.path}': {error.strerror or error}") from error
        return self.path


def _nbytes(value: Any) -> int:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return (
        int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize if shape is not None and dtype is not None else 0
    )


def _type_shape(value: Any) -> dict[str, list[int]] | None:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return {element_of(np.dtype(dtype)): list(shape)} if shape is not None and dtype is not None else None
