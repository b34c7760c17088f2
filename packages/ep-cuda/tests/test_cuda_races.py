"""The generated kernels under the simulator Oclgrind, which tells of races, accesses out of bounds and uses of uninitialised values:
``nox -s oclgrind``, which reads what it logs. Elsewhere other tests run the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from job_models import Node, device
from test_cuda_generated import every_kind
from test_cuda_grouped import every_grouped
from test_cuda_integers import every_quantized
from test_cuda_written import every_written

LARGEST = 6e3
"""Elements of all inputs: a simulator takes seconds for more."""


HELD: list[Any] = []
"""Buffers to the end of the process: memory that is given back and taken again counts as uninitialised, whatever is copied there."""
MAKERS = [every_kind, every_grouped, every_quantized, every_written]
"""Those with small nodes; the texts of attentions are simulated by the tests of onnxplug-ep-opencl."""


@pytest.mark.parametrize("make", MAKERS)
def test_every_kernel_in_a_simulator(make: Callable[[], list[Node]], monkeypatch: pytest.MonkeyPatch) -> None:
    cl, context, _ = device()
    if context.devices[0].platform.name != "Oclgrind":
        pytest.skip("capability: Oclgrind, the simulator that finds races")
    plain = cl.Buffer

    def buffer(*given: Any, **named: Any) -> Any:
        HELD.append(plain(*given, **named))
        return HELD[-1]

    monkeypatch.setattr(cl, "Buffer", buffer)
    seen = set()
    for node in make():
        job = node.job()
        texts = None if job is None else tuple(launch.text for launch in job.launches)
        if texts is None or texts in seen or sum(x.size for x in node.inputs if x is not None) > LARGEST:
            continue
        seen.add(texts)
        node.results()  # what they must be is asked by the tests of values
    assert seen
