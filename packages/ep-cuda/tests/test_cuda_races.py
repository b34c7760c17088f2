"""The generated kernels under the simulator Oclgrind, which tells of races, accesses out of bounds and uses of uninitialised values:
``nox -s oclgrind``, which reads what it logs. Elsewhere other tests run the same kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from job_models import Node, device
from test_cuda_attention_contrib import every_contrib
from test_cuda_generated import every_attention, every_kind
from test_cuda_grouped import every_grouped
from test_cuda_integers import every_quantized

LARGEST = 6e3
"""Elements of all inputs: a simulator takes seconds for more."""


MAKERS = [every_kind, every_attention, every_contrib, every_grouped, every_quantized]


@pytest.mark.parametrize("make", MAKERS)
def test_every_kernel_in_a_simulator(make: Callable[[], list[Node]]) -> None:
    _, context, _ = device()
    if context.devices[0].platform.name != "Oclgrind":
        pytest.skip("capability: Oclgrind, the simulator that finds races")
    seen = set()
    for node in make():
        job = node.job()
        texts = None if job is None else tuple(launch.text for launch in job.launches)
        if texts is None or texts in seen or sum(x.size for x in node.inputs if x is not None) > LARGEST:
            continue
        seen.add(texts)
        node.results()  # what they must be is asked by the tests of values
    assert seen
