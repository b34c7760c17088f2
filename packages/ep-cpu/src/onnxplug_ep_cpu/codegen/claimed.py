"""What an earlier process claimed of a graph: which nodes are regions. A session that finds this and has no regions imports no more of
``codegen``."""

from __future__ import annotations

import functools
import marshal
from typing import Any

from onnxplug.contract import GraphView
from onnxplug.contract.cache import DiskCache, user_cache
from onnxplug.contract.digest import blake2b
from onnxplug_ep_cpu.codegen.host import host
from onnxplug_ep_cpu.codegen.settings import Settings

LIMIT = 256 << 20
"""Bytes of the folder."""


Claimed = tuple[list[list[int]], list[int]]
"""Positions of the nodes of each region in a graph, and of those that have a kernel."""


@functools.cache
def cache() -> DiskCache | None:
    """Where all of this is kept; None where nothing is."""
    return user_cache("regions", ".region", LIMIT)


def entry(*facts: Any) -> str:
    """The name of what is kept for these facts, on this processor."""
    return blake2b(repr((*facts, host().versions)).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


class ClaimShelf:
    """Where it is kept what is claimed of a graph."""

    def __init__(self, kept: DiskCache, name: str) -> None:
        self._kept, self._name = kept, name

    @classmethod
    def of(cls, graph: GraphView, threads: int, settings: Settings) -> ClaimShelf | None:
        """The shelf of a graph; None for one that nobody knows again."""
        found, identity = cache(), graph.identity
        return None if found is None or not identity else cls(found, entry("claims", identity, threads, settings))

    def get(self) -> Claimed | None:
        """What is kept, if anything."""
        blob = self._kept.get(self._name)
        return None if blob is None else marshal.loads(blob)

    def put(self, claimed: Claimed) -> None:
        """Keep this."""
        self._kept.put(self._name, marshal.dumps(claimed))
