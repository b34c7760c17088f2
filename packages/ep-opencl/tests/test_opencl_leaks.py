"""What stays behind when sessions go: nothing of the process's memory, no buffer on the device, a bounded number of programs."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
import soak
from opencl_models import PROVIDER, needs_device

from onnxplug_ep_opencl import machine, memory, programs
from onnxplug_ep_opencl.device import listed

pytestmark = needs_device
SESSIONS = int(os.environ.get("ONNXPLUG_SESSIONS", "40"))
"""``nox -s opencl`` makes 1,000."""
TWICE = "__kernel void twice(__global int *x) {{ x[get_global_id(0)] *= 2; }} // {number}"


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[weakref.WeakSet[memory.Block]]:
    """Every block of device memory that is made meanwhile and still there."""
    held: weakref.WeakSet[memory.Block] = weakref.WeakSet()
    made: list[None] = []
    make = memory.Block.__init__

    def noted(self: memory.Block, *arguments: Any) -> None:
        make(self, *arguments)
        held.add(self)
        made.append(None)

    monkeypatch.setattr(memory.Block, "__init__", noted)
    yield held
    assert len(made) > SESSIONS


def test_sessions_leave_nothing_behind(blocks: weakref.WeakSet[memory.Block]) -> None:
    """Products with weights, branches, loops, bound outputs; some sessions are closed, the others dropped."""
    assert soak.sessions(SESSIONS, [PROVIDER, soak.CPU]) < soak.NOISE
    gc.collect()
    assert not [block for block in blocks if block.memory is not None]


def test_threads_leave_nothing_behind(blocks: weakref.WeakSet[memory.Block]) -> None:
    """More shapes than plans are kept for, from several threads on one session and on sessions of their own."""
    soak.runs(4, 2 * SESSIONS, [PROVIDER, soak.CPU])  # after which what is kept of drivers, shapes and plans is there
    assert soak.runs(4, 2 * SESSIONS, [PROVIDER, soak.CPU]) < soak.NOISE
    gc.collect()
    assert not [block for block in blocks if block.memory is not None]


def test_programs_of_the_past_are_given_up_and_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "KEPT", 2)
    made = machine.Machine(listed()[0])
    built = [made.program(TWICE.format(number=n), (), "") for n in range(3)]
    assert made.program(TWICE.format(number=2), (), "") is built[-1]
    again = made.program(TWICE.format(number=0), (), "")
    assert again is not built[0]
    queue = cl.CommandQueue(made.context)
    x = np.ones(4, np.int32)
    held = cl.Buffer(made.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    for kernel in (built[0].twice, again.twice):  # a program outlives its place
        kernel.set_arg(0, held)
        cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    cl.enqueue_copy(queue, x, held)
    np.testing.assert_array_equal(x, 4)


def test_a_session_gives_up_the_kernels_of_past_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "KEPT", 2)
    asked: list[str] = []
    build = machine.Machine.program

    def noted(self: machine.Machine, source: str, *others: Any) -> Any:
        asked.append(source)
        return build(self, source, *others)

    monkeypatch.setattr(machine.Machine, "program", noted)
    made = programs.Programs(machine.machine(listed()[0]), (), "")
    texts = [(TWICE.format(number=n), "twice") for n in range(4)]
    for text in texts[:3]:
        made.announce(text)
    for number, builds in (
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 2),
        (1, 2),
        (2, 2),
        (0, 3),
        (3, 4),
    ):  # three at once; 0 goes for 3, then 3 for 0
        made.kernel(texts[number])
        assert len(asked) == builds
