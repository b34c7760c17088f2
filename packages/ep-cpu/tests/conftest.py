"""Faults of the generator, behind which NumPy gives the answer, are failures here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from onnxplug_ep_cpu.codegen import capability


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a region could not be generated for a fault, unless it is marked ``faults``."""
    seen = _Faults()
    log = logging.getLogger("onnxplug.cpu")
    log.addHandler(seen)
    try:
        yield
    finally:
        log.removeHandler(seen)
    if request.node.get_closest_marker("faults") is None:
        assert not seen.records, seen.records[0]


@pytest.fixture(scope="module")
def single_nodes() -> Iterator[None]:
    """A light operator is a region even by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capability, "SMALLEST", 1)
        yield
