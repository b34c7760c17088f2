"""Faults of the generator, behind which NumPy gives the answer, are failures here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onnxplug_ep_cpu.codegen import capability
from onnxplug_ep_cpu.codegen.region import FAULT, NativeRegion


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a region could not be generated for a fault, unless it is marked ``faults``."""
    seen: list[str] = []
    by_node = NativeRegion._by_node

    def noting(self: NativeRegion, specs: Any, reason: str) -> Any:
        seen.append(reason)
        return by_node(self, specs, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeRegion, "_by_node", noting)
        yield
    if request.node.get_closest_marker("faults") is None:
        assert not [reason for reason in seen if reason.startswith(FAULT)]


@pytest.fixture(scope="module")
def single_nodes() -> Iterator[None]:
    """A light operator is a region even by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capability, "SMALLEST", 1)
        yield
