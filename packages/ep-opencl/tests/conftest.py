"""What Oclgrind's check for uninitialised reads needs (``nox -s oclgrind``): copies from the host that it follows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

_COPY = """__kernel void copy(__global const uchar *from, __global uchar *to, const long first) {
  to[first + get_global_id(0)] = from[get_global_id(0)];
}"""


@pytest.fixture(scope="session", autouse=True)
def _followed_copies() -> Any:
    """Oclgrind 21.10 marks the wrong bytes as written where a host writes anywhere but to the whole of a buffer. Kernels' writes it
    follows, so that data goes to a buffer of its own first and a kernel copies it from there."""
    if os.environ.get("OCLGRIND_UNINITIALIZED") != "1":
        yield
        return
    import pyopencl as cl

    from onnxplug_ep_opencl.transfer import ClTransfer

    held: dict[int, cl.Buffer] = {}  # one of each size: memory that was of another size is known wrongly, too

    def write(self: ClTransfer, data: np.ndarray, tensor: Any, _: Any) -> None:
        queue = self._queue.queue
        whole = held.get(data.nbytes)
        if whole is None:
            whole = held[data.nbytes] = cl.Buffer(queue.context, cl.mem_flags.READ_ONLY, data.nbytes)
        cl.enqueue_copy(queue, whole, data, is_blocking=True)
        kernel = cl.Program(queue.context, _COPY).build().copy
        kernel(queue, data.shape, None, whole, tensor.buffer(), np.int64(tensor.offset))
        queue.finish()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClTransfer, "_write", write)
        yield
