"""The generated kernels under the simulator Oclgrind, which tells of races, accesses out of bounds and uses of uninitialised values:
``nox -s oclgrind``, which reads what it logs. Elsewhere other tests run the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from job_models import Node, close, device, on_opencl
from test_cuda_generated import every_kind
from test_cuda_grouped import every_grouped, node
from test_cuda_integers import every_quantized
from test_cuda_written import every_written

from onnxplug.contract import TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Job, Launch
from onnxplug_kernel_text.nodes.call import Ref
from onnxplug_kernel_text.nodes.indexing import bounds
from onnxplug_kernel_text.pool import pooling

LARGEST = 6e3
"""Elements of all inputs: a simulator takes seconds for more."""


HELD: list[Any] = []
"""Buffers to the end of the process: memory that is given back and taken again counts as uninitialised, whatever is copied there."""
MAKERS = [every_kind, every_grouped, every_quantized, every_written]
"""Those with small nodes; the texts of attentions are simulated by the tests of onnxplug-ep-opencl."""


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the device is one; then its buffers stay."""
    cl, context, _ = device()
    if context.devices[0].platform.name != "Oclgrind":
        return False
    plain = cl.Buffer

    def buffer(*given: Any, **named: Any) -> Any:
        HELD.append(plain(*given, **named))
        return HELD[-1]

    monkeypatch.setattr(cl, "Buffer", buffer)
    return True


@pytest.mark.parametrize("make", MAKERS)
def test_every_kernel_in_a_simulator(make: Callable[[], list[Node]], simulator: bool) -> None:
    if not simulator:
        pytest.skip("capability: Oclgrind, the simulator that finds races")
    seen = set()
    for each in make():
        job = each.job()
        texts = None if job is None else tuple(launch.text for launch in job.launches)
        if texts is None or texts in seen or sum(x.size for x in each.inputs if x is not None) > LARGEST:
            continue
        seen.add(texts)
        each.results()  # what they must be is asked by the tests of values
    assert seen


@pytest.mark.parametrize("beyond", [0, 1])
def test_indices_are_looked_at(beyond: int, simulator: bool) -> None:
    """By a kernel that no other provider has."""
    x, told = np.array([[0, 4], [3, 4 + beyond]]), list[int]()
    call = Call("bounds", 1, {}, [TensorSpec(x.dtype, x.shape)], [])
    on_opencl(bounds(call, call.fault(), 64, 0, 5), [x], [], told=told)
    assert told == [beyond]


def test_parts_of_a_cache_are_joined(simulator: bool) -> None:
    """By a kernel that no other provider has."""
    found = node(1, 520, batch=1, heads=1, kv_heads=1, size=4, lasts=[519])
    job = found.job()
    assert job is not None and job.launches[-1].name == "joined"
    close(found, 64)


@pytest.mark.parametrize("mean", [True, False])
def test_pooling_with_channels_last(mean: bool, simulator: bool) -> None:
    """By a kernel that no other provider has."""
    x = np.random.default_rng(3).standard_normal((2, 4, 6, 3)).astype(np.float32)
    scalars = [np.int64(n) for n in (2 * 2 * 3 * 3, 3, 4, 6, 2, 3, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0)]
    launch = Launch(pooling("pool", "f32", mean=mean), "pool", (Ref(0, 4), Ref(1, 4)), tuple(scalars), 2, 32)
    (got,) = on_opencl(Job([launch]), [x], [TensorSpec(x.dtype, (2, 2, 3, 3))])
    windows = x.reshape(2, 2, 2, 3, 2, 3)
    want = windows.mean((2, 4)) if mean else windows.max((2, 4))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
