"""Copies between host and device: what they wait for, and the memory that they go through."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from opencl_models import needs_device

from onnxplug.contract import ArenaConfig, Device, staging
from onnxplug_ep_opencl.device import listed
from onnxplug_ep_opencl.machine import Machine
from onnxplug_ep_opencl.memory import ClAllocator, ClTensor
from onnxplug_ep_opencl.queue import Queue
from onnxplug_ep_opencl.transfer import ClTransfer

pytestmark = needs_device
DEVICE = Device("opencl", 0)


class Copies:
    """A queue, and copies on it; ``made``: bytes of the page-locked blocks."""

    def __init__(self, shares_memory: bool) -> None:
        machine = Machine(listed()[0])
        machine.shares_memory = shares_memory
        self.queue = Queue(machine, False, (), "")
        self.transfer = ClTransfer(self.queue, DEVICE)
        self.allocator = ClAllocator(machine, DEVICE, ArenaConfig())
        self.made: list[int] = []
        block = self.transfer._block

        def noted(nbytes: int) -> Any:
            self.made.append(nbytes)
            return block(nbytes)

        self.transfer._staging._make = noted

    def tensor(self, array: np.ndarray) -> ClTensor:
        return self.allocator.tensor(array.dtype, array.shape)

    def back(self, tensor: ClTensor) -> np.ndarray:
        array = np.empty(tensor.shape, tensor.dtype)
        self.transfer.copy(tensor, array)
        return array


@pytest.fixture(params=[True, False], ids=["shared", "apart"])
def copies(request: pytest.FixtureRequest) -> Copies:
    return Copies(request.param)


@pytest.mark.parametrize("count", [1, 20_003, (1 << 15) + 1])
@pytest.mark.parametrize("within", [False, True])
def test_bytes_come_back(copies: Copies, count: int, within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "LARGEST", 1 << 17)
    data = np.arange(count, dtype=np.float32)
    tensor = copies.tensor(data)
    copies.transfer.copy(data, tensor, copies.queue if within else None)
    np.testing.assert_array_equal(copies.back(tensor), data)


@pytest.mark.parametrize("count", [3, 20_003])
def test_what_a_run_sends_waits_for_nothing(copies: Copies, count: int) -> None:
    device = listed()[0]
    if device.name.startswith("basic") or device.platform.name == "Oclgrind":
        pytest.skip("a driver without threads hangs where an event of the user's is set")
    data = np.arange(count, dtype=np.float32)
    tensor, gate = copies.tensor(data), cl.UserEvent(copies.queue.machine.context)
    cl.enqueue_barrier(copies.queue.queue, wait_for=[gate])
    with ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(copies.transfer.copy, data, tensor, copies.queue).result(timeout=30)
            data[:] = 0  # taken from the host by then
        finally:
            gate.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(copies.back(tensor), np.arange(count))


@pytest.mark.skipif(os.environ.get("OCLGRIND_UNINITIALIZED") == "1", reason="kernels write for it (conftest.py)")
def test_blocks_serve_again(copies: Copies) -> None:
    data = np.arange(20_003, dtype=np.float32)
    tensor = copies.tensor(data)
    for _ in range(3):
        copies.transfer.copy(data, tensor, copies.queue)
        copies.queue.finish()
        copies.back(tensor)
    assert copies.made == [1 << 17]
