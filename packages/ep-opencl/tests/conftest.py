"""What Oclgrind's check for uninitialised reads needs (``nox -s oclgrind``): copies from the host that it follows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_PART = 896
"""Bytes that a kernel takes as an argument: devices take a kilobyte of arguments."""
_COPY = f"""typedef struct {{ uchar bytes[{_PART}]; }} part;
__kernel void copy(const part from, __global uchar *to, const long first, const long count) {{
  for (long n = 0; n < count; n++) to[first + n] = from.bytes[n];
}}
__kernel void within(__global const uchar *from, __global uchar *to, const long source, const long first, const long count) {{
  for (long n = 0; n < count; n++) to[first + n] = from[source + n];
}}"""


@pytest.fixture(scope="session", autouse=True)
def _followed_copies() -> Any:
    """Oclgrind 21.10 marks the wrong bytes as written where a host writes to a part of a buffer, or to memory that another buffer had
    before; a copy from a buffer into a part of another spoils what it knows of the rest. What kernels write it follows, so that data
    goes to a kernel by value, or from buffer to buffer in one; and no memory is given back."""
    if os.environ.get("OCLGRIND_UNINITIALIZED") != "1":
        yield
        return
    import pyopencl as cl

    from onnxplug_ep_opencl.memory import Block
    from onnxplug_ep_opencl.transfer import ClTransfer

    held: list[Any] = []
    make = Block.__init__

    def kept(self: Block, *arguments: Any) -> None:
        make(self, *arguments)
        held.append(self.memory)

    def forgotten(self: Block) -> None:
        self.memory = None  # ``release`` of the buffer itself would give the memory back, whoever else holds it

    def write(self: ClTransfer, data: np.ndarray, tensor: Any, _: Any) -> None:
        queue = self._queue.queue
        kernel = cl.Program(queue.context, _COPY).build().copy
        for at in range(0, data.size, _PART):
            part = np.zeros(_PART, np.uint8)
            count = min(_PART, data.size - at)
            part[:count] = data[at : at + count]
            kernel.set_args(part, tensor.buffer(), np.int64(tensor.offset + at), np.int64(count))
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        queue.finish()

    def within(self: ClTransfer, source: Any, destination: Any, _: Any) -> None:
        queue = self._queue.queue
        places = (np.int64(source.offset), np.int64(destination.offset), np.int64(source.nbytes))
        kernel = cl.Program(queue.context, _COPY).build().within
        kernel.set_args(source.buffer(), destination.buffer(), *places)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        queue.finish()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClTransfer, "_write", write)
        patch.setattr(ClTransfer, "_within", within)
        patch.setattr(Block, "__init__", kept)
        patch.setattr(Block, "release", forgotten)
        yield


@pytest.fixture(scope="session", autouse=True)
def _recorded() -> Any:
    """What runs goes into a record for the simulator, where one is asked for."""
    if "ONNXPLUG_RECORD" not in os.environ:
        yield
        return
    from opencl_record import Recorder, save

    with Recorder().installed(as_gpu=os.environ.get("ONNXPLUG_RECORD_AS") == "gpu") as record:
        yield
    save(record, Path(os.environ["ONNXPLUG_RECORD"]))
